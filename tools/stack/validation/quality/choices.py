# SPDX-License-Identifier: Apache-2.0
"""The measured choices of layers and formats, each with the server's flag for it."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REFERENCE = "bf16"
"""The server whose dense layers have the checkpoint's format."""

_LAYERS = {"qkv": "*.qkv_proj", "o": "*.o_proj"}
_FORMATS = ("mxfp4", "fp8")


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice: its name, and its value of `--quantization-config`."""

    name: str
    config: Mapping[str, Any]

    @property
    def needs(self) -> tuple[str, ...]:
        """Features that a machine must have. On a CPU vLLM has a kernel for linear layers in FP8, but none in MXFP4."""
        return ("gpu",) if self.name.endswith("-mxfp4") else ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `vllm serve`."""
        return ("--quantization-config", json.dumps(self.config, separators=(",", ":")))

    @property
    def flag(self) -> str:
        """The arguments, quoted for a shell."""
        return shlex.join(self.arguments)


def _choices(form: str) -> tuple[Choice, ...]:
    every = {"targets": dict.fromkeys(_LAYERS.values(), form), "lm_head": form}
    return (
        *(Choice(f"{layer}-{form}", {"targets": {pattern: form}}) for layer, pattern in _LAYERS.items()),
        Choice(f"lm_head-{form}", {"lm_head": form}),
        Choice(f"all-{form}", every),
    )


CHOICES = tuple(choice for form in _FORMATS for choice in _choices(form))
"""Each of qkv, o and lm_head alone, and all three, in each format of the series mxfp4-dense."""
