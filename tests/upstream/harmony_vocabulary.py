# SPDX-License-Identifier: Apache-2.0
"""gpt-oss without the model: its vocabulary comes with harmony's package, and has no tokenizer to download.

A pytest plugin, too: `-p harmony_vocabulary` gives upstreams' own tests this tokenizer where they ask for the model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import support

with support.quiet():
    import transformers
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


class Tokenizer:
    """What vLLM's parsers ask of a tokenizer, by harmony's encoding."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, control tokens included."""
        return str(ENCODING.decode(list(ids)))

    def get_vocab(self) -> dict[str, int]:
        """Nothing: harmony's parser reads token ids."""
        return {}


def encode(text: str) -> list[int]:
    """The tokens of a text; `<|…|>` stands for a control token."""
    return list(ENCODING.encode(text, allowed_special="all"))


def decode(ids: Sequence[int]) -> str:
    """The text of tokens, control tokens included."""
    return Tokenizer().decode(ids)


@pytest.fixture(scope="session", autouse=True)
def _no_download() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: Tokenizer())
        yield
