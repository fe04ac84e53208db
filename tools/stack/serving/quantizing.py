# SPDX-License-Identifier: Apache-2.0
"""What `--quantization-config` makes of dense layers: upstream's kinds and patterns, and this stack's `lm_head`, `fp8` and `none`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from stack.base.errors import StackError
from stack.serving import formats
from stack.serving.formats import Format

_PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
"""Patterns may name what is fused by its parts."""


@dataclass(frozen=True, slots=True)
class Quantizing:
    """What `--quantization-config` says of dense layers: formats by kind, or by patterns of their names."""

    dense: Format
    kinds: Mapping[str, Format]
    targets: Mapping[str, Format]
    ignore: tuple[str, ...]
    activation: str | None

    def linear(self, layer: str) -> Format:
        """The format of a linear layer, by its full name."""
        if any(_matches(layer, pattern) for pattern in self.ignore):
            return self.dense
        if self.targets:
            return next((chosen for pattern, chosen in self.targets.items() if _matches(layer, pattern)), self.dense)
        return self.kinds.get("linear", self.dense)

    def lm_head(self) -> Format:
        """The format of the output head, which neither `linear` nor `targets` covers."""
        ignored = any(_matches("lm_head", pattern) for pattern in self.ignore)
        return self.dense if ignored else self.kinds.get("lm_head", self.dense)


def read(text: str, dense: Format) -> Quantizing:
    """From the option's JSON; `dense` is the model's own format.

    Raises:
        StackError: it is none, or names what is not counted.

    """
    said = _json(text)
    if odd := sorted({*said} - {"linear", "lm_head", "moe", "targets", "ignore"}):
        raise StackError(f"--quantization-config has {odd[0]!r:.100}", "it has linear, lm_head, moe, targets and ignore")
    moe = said.get("moe") or {}
    if not isinstance(moe, dict) or moe.get("weight") is not None:
        raise StackError("--quantization-config quantizes experts anew", "that is not counted: the checkpoint has MXFP4")
    targets, ignore = said.get("targets") or {}, said.get("ignore") or []
    if not isinstance(targets, dict) or not isinstance(ignore, list):
        raise StackError("--quantization-config: targets is no object, or ignore no list", "see the series mxfp4-dense")
    return Quantizing(
        dense,
        {kind: _named(said[kind], dense) for kind in ("linear", "lm_head") if said.get(kind) is not None},
        {pattern: _named(name, dense) for pattern, name in targets.items()},
        tuple(map(str, ignore)),
        moe.get("activation"),
    )


def _json(text: str) -> Mapping[str, Any]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"--quantization-config {text!r:.100} is no JSON", 'write \'{"linear":"mxfp4"}\'') from bad
    if not isinstance(said, dict):
        raise StackError(f"--quantization-config {text!r:.100} is no object", 'write \'{"linear":"mxfp4"}\'')
    return said


def _named(said: object, dense: Format) -> Format:
    """A format by its name, or by an object that names it as `weight`."""
    name = said.get("weight") if isinstance(said, dict) else said
    return formats.weight("none" if name is None else str(name), dense)


def _matches(layer: str, pattern: str) -> bool:
    """Whether a pattern names a layer, or all that is fused in it: as it stands, by fnmatch, or as a `re:`."""
    *before, last = layer.split(".")
    parts = [".".join((*before, part)) for part in _PARTS.get(last, ())]
    return _is(layer, pattern) or (bool(parts) and all(_is(part, pattern) for part in parts))


def _is(name: str, pattern: str) -> bool:
    if not pattern.startswith("re:"):
        return fnmatch(name, pattern)
    try:
        return re.match(pattern[3:], name) is not None
    except re.error as bad:
        raise StackError(f"{pattern!r:.100} is no regular expression ({bad})", "mend --quantization-config") from bad
