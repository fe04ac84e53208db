# SPDX-License-Identifier: Apache-2.0
"""The choices of layers and formats that are measured, by the flag that a server takes for each."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REFERENCE = "bf16"
"""The server whose dense layers are as the checkpoint has them."""

_LAYERS = {"qkv": "*.qkv_proj", "o": "*.o_proj"}
_FORMATS = ("mxfp4", "fp8")


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice: its name, and what `--quantization-config` says for it."""

    name: str
    config: Mapping[str, Any]

    @property
    def needs(self) -> tuple[str, ...]:
        """What a machine must have for it: vLLM has no kernel for linear layers in MXFP4 on a CPU, and one for FP8."""
        return ("gpu",) if self.name.endswith("-mxfp4") else ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of `vllm serve`."""
        return ("--quantization-config", json.dumps(self.config, separators=(",", ":")))

    @property
    def flag(self) -> str:
        """The same, for a shell."""
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
