# SPDX-License-Identifier: Apache-2.0
"""Strict reading of a `config.json`: every value is checked, and a key about sizes that nobody reads is an error.

A configuration is untrusted input. It has many keys that do not change what is read from memory; a key that could, by its name, and
that no reader knows is refused, so that a model of another kind is never counted as one that is known.
"""

import re
from collections.abc import Mapping
from typing import Any

from stack.base.errors import StackError

MOST = 10**8
"""Largest size that any key may have."""
_SIZES = re.compile(
    r"(^|_)(n|num)_|^num|(size|dim|rank|ratio|heads|layers|experts|window|kernel|pattern|types?|config|configs|step|freq|topk|replace)$"
)
"""Names of keys that say how much there is of something."""
_HARMLESS = frozenset(
    {
        *("model_type", "output_gate_type", "vision_config", "quantization_config", "text_config", "rope_type", "torch_dtype"),
        *("num_logits_to_keep", "num_return_sequences", "num_beams", "num_beam_groups", "num_labels", "problem_type"),
        *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "chunk_size", "chunk_size_feed_forward", "max_window_layers"),
        *("decoder_start_token_id", "pretraining_tp", "n_group", "n_groups", "topk_group", "num_hidden_groups", "norm_topk"),
        *("num_attention_layers", "transformers_version", "tokenizer_class", "task_specific_params", "router_aux_loss_coef"),
        *(
            "partial_rotary_factor",
            "time_step_rank",
            "attn_implementation",
            "compression_config",
            "ep_size",
            "num_nextn_predict_layers",
        ),
        *("intermediate_size", "mtp_num_hidden_layers", "mtp_hybrid_override_pattern", "mtp_layers_block_type", "expand"),
    }
)
"""Keys with such names that change nothing here, or that only some layers of a kind of model need."""


class Keys:
    """The keys of a JSON object, with the name of its file for errors; remembers which ones were read."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self._where = values, where
        self._read: set[str] = set()

    def error(self, key: str, problem: str, remedy: str = "") -> StackError:
        """Make an error that names the file and the key."""
        return StackError(f"{self._where}{key[:100]} {problem}", remedy or "name a config.json as its model is published with")

    def given(self, key: str) -> bool:
        """Return whether a key has a value; null counts as none."""
        self._read.add(key)
        return self._values.get(key) is not None

    def value(self, key: str) -> Any:
        """Return a value of any type; None if it is missing."""
        self._read.add(key)
        return self._values.get(key)

    def whole(self, key: str, *, least: int = 1, most: int = MOST) -> int:
        """Return a required whole number.

        Raises:
            StackError: it is missing, not a whole number, or out of range.

        """
        if not self.given(key):
            raise self.error(key, "is missing")
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"is {value!r:.60}", "it has to be a whole number")
        if not least <= value <= most:
            # Python refuses to print integers with thousands of digits.
            raise self.error(key, f"is out of range: it goes from {least} to {most}")
        return value

    def optional(self, key: str, *, least: int = 0) -> int | None:
        """Return a whole number, or None if it is missing."""
        return self.whole(key, least=least) if self.given(key) else None

    def stated(self, key: str) -> int:
        """Return a whole number that has to be there; null counts as 0.

        Raises:
            StackError: it is missing, or not a whole number.

        """
        if key not in self._values:
            raise self.error(key, "is missing")
        return self.optional(key) or 0

    def flag(self, key: str, *, otherwise: bool = False) -> bool:
        """Return true or false.

        Raises:
            StackError: it is something else.

        """
        value = self._values[key] if self.given(key) else otherwise
        if not isinstance(value, bool):
            raise self.error(key, f"is {value!r:.60}", "it has to be true or false")
        return value

    def text(self, key: str) -> str:
        """Return a required string.

        Raises:
            StackError: it is missing, or something else.

        """
        if not self.given(key):
            raise self.error(key, "is missing")
        value = self._values[key]
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise self.error(key, f"is {value!r:.60}", "it has to be a text")
        return value

    def texts(self, key: str, most: int) -> tuple[str, ...]:
        """Return a list of strings; an empty one if it is missing.

        Raises:
            StackError: it is something else, or too long.

        """
        value = self._values[key] if self.given(key) else []
        if not isinstance(value, list) or not all(isinstance(entry, str) and len(entry) <= _LONGEST for entry in value):
            raise self.error(key, "is not a list of texts")
        if len(value) > most:
            raise self.error(key, f"has more than {most} entries")
        return tuple(value)

    def wholes(self, key: str, most: int) -> tuple[int, ...]:
        """Return a list of whole numbers; an empty one if it is missing.

        Raises:
            StackError: it is something else, or too long.

        """
        value = self._values[key] if self.given(key) else []
        if not isinstance(value, list) or len(value) > most:
            raise self.error(key, f"is not a list of at most {most} numbers")
        if not all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value):
            raise self.error(key, "is not a list of whole numbers")
        return tuple(value)

    def finish(self) -> None:
        """Refuse a key about sizes that was not read.

        Raises:
            StackError: there is one.

        """
        for key, value in self._values.items():
            if key in self._read or key in _HARMLESS or value in (None, False, [], {}) or not _SIZES.search(key):
                continue
            raise self.error(key, "is unknown for this kind of model", "what it changes is not counted here")


_LONGEST = 4096
"""Characters of the longest text."""
