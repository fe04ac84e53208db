# SPDX-License-Identifier: Apache-2.0
"""gpt-oss's vocabulary without a download: harmony's package contains it.

It has the bytes that OpenAI publishes as `o200k_base.tiktoken`: tiktoken reads them from its cache and checks their hash.
"""

import base64
import os
import tempfile
from pathlib import Path

from openai_harmony import HarmonyEncodingName, load_harmony_encoding

from stack.validation.model.config import VOCABULARY

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
PLAIN = 199998
"""Number of text tokens; control tokens follow."""
_CACHED = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""Name of the file in tiktoken's cache: the SHA-1 of its address."""


def encode(text: str) -> list[int]:
    """Encode a text; `<|…|>` becomes a control token."""
    return list(ENCODING.encode(text, allowed_special="all"))


def write(folder: Path) -> None:
    """Write a tokenizer in transformers' format into a folder."""
    import tiktoken  # noqa: PLC0415  (takes seconds, and encode() does not need it)
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415
    from transformers.convert_slow_tokenizer import TikTokenConverter  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as cache:
        raw = Path(cache, _CACHED)
        inner = ENCODING._inner  # the public decode() returns text, but a token may be a part of a character
        raw.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(inner.decode_bytes([token])), token) for token in range(PLAIN)))
        os.environ["TIKTOKEN_CACHE_DIR"] = cache
        published = tiktoken.get_encoding("o200k_harmony")
        control = sorted((number, name) for name, number in published._special_tokens.items() if number < VOCABULARY)
        converter = TikTokenConverter(str(raw), pattern=published._pat_str, extra_special_tokens=[name for _, name in control])
        tokenizer = converter.converted()
    ends = {"eos_token": "<|return|>", "pad_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(folder)
