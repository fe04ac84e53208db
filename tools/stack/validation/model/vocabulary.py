# SPDX-License-Identifier: Apache-2.0
"""gpt-oss's vocabulary without a download: harmony's package holds it.

The same bytes as OpenAI publishes as `o200k_base.tiktoken`: tiktoken, which reads them from its cache, checks their hash.
"""

import base64
import os
import tempfile
from pathlib import Path

from openai_harmony import HarmonyEncodingName, load_harmony_encoding

from stack.validation.model.config import VOCABULARY

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
PLAIN = 199998
"""How many tokens are text; control tokens follow."""
_CACHED = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""What tiktoken calls the file in its cache: the SHA-1 of its address."""


def encode(text: str) -> list[int]:
    """The tokens of a text; `<|…|>` stands for a control token."""
    return list(ENCODING.encode(text, allowed_special="all"))


def write(folder: Path) -> None:
    """Write a tokenizer as transformers loads it into a folder."""
    import tiktoken  # noqa: PLC0415  (seconds, for who only encodes)
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415
    from transformers.convert_slow_tokenizer import TikTokenConverter  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as cache:
        raw = Path(cache, _CACHED)
        inner = ENCODING._inner  # the public decode() gives text, and a token may be half a character
        raw.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(inner.decode_bytes([one])), one) for one in range(PLAIN)))
        os.environ["TIKTOKEN_CACHE_DIR"] = cache
        published = tiktoken.get_encoding("o200k_harmony")
        control = sorted((number, name) for name, number in published._special_tokens.items() if number < VOCABULARY)
        converter = TikTokenConverter(str(raw), pattern=published._pat_str, extra_special_tokens=[name for _, name in control])
        tokenizer = converter.converted()
    ends = {"eos_token": "<|return|>", "pad_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(folder)
