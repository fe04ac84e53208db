# SPDX-License-Identifier: Apache-2.0
"""Read how `--quantization-config` quantizes dense layers: upstream's kinds and patterns, and this stack's `lm_head`, `fp8`, `none`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from stack.base.errors import StackError
from stack.deploy import formats
from stack.deploy.formats import Format

_PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj")}
"""Parts of fused layers; patterns may name the parts."""


@dataclass(frozen=True, slots=True)
class Quantizing:
    """The formats of dense layers in `--quantization-config`, by kind or by patterns of names."""

    dense: Format
    kinds: Mapping[str, Format]
    targets: Mapping[str, Format]
    ignore: tuple[str, ...]
    activation: str | None

    def linear(self, layer: str) -> Format:
        """Return the format of a linear layer, by its full name."""
        if any(_matches(layer, pattern) for pattern in self.ignore):
            return self.dense
        if self.targets:
            return next((chosen for pattern, chosen in self.targets.items() if _matches(layer, pattern)), self.dense)
        return self.kinds.get("linear", self.dense)

    def lm_head(self) -> Format:
        """Return the format of the output head, to which neither `linear` nor `targets` applies."""
        ignored = any(_matches("lm_head", pattern) for pattern in self.ignore)
        return self.dense if ignored else self.kinds.get("lm_head", self.dense)


def read(text: str, dense: Format) -> Quantizing:
    """Read the option's JSON; `dense` is the model's own format.

    Raises:
        StackError: it is not valid, or has something that is not counted.

    """
    config = _json(text)
    if odd := sorted({*config} - {"linear", "lm_head", "moe", "targets", "ignore"}):
        raise StackError(f"--quantization-config has {odd[0]!r:.100}", "it has linear, lm_head, moe, targets and ignore")
    moe = config.get("moe") or {}
    if not isinstance(moe, dict) or moe.get("weight") is not None:
        raise StackError(
            "--quantization-config quantizes the experts again", "leave moe.weight out: roofline counts the checkpoint's MXFP4"
        )
    targets, ignore = config.get("targets") or {}, config.get("ignore") or []
    if not isinstance(targets, dict) or not isinstance(ignore, list):
        raise StackError(
            "--quantization-config: targets is not an object, or ignore is not a list", "see the series mxfp4-dense"
        )
    return Quantizing(
        dense,
        {kind: _named(config[kind], dense) for kind in ("linear", "lm_head") if config.get(kind) is not None},
        {pattern: _named(name, dense) for pattern, name in targets.items()},
        tuple(map(str, ignore)),
        moe.get("activation"),
    )


def _json(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"--quantization-config {text!r:.100} is not valid JSON", 'write \'{"linear":"mxfp4"}\'') from bad
    if not isinstance(value, dict):
        raise StackError(f"--quantization-config {text!r:.100} is not an object", 'write \'{"linear":"mxfp4"}\'')
    return value


def _named(value: object, dense: Format) -> Format:
    """Find a format by its name, or by an object that names it as `weight`."""
    name = value.get("weight") if isinstance(value, dict) else value
    return formats.weight("none" if name is None else str(name), dense)


def _matches(layer: str, pattern: str) -> bool:
    """Return whether a pattern matches a layer, or all parts that are fused in it: by fnmatch, or as a `re:`."""
    *before, last = layer.split(".")
    parts = [".".join((*before, part)) for part in _PARTS.get(last, ())]
    return _is(layer, pattern) or (bool(parts) and all(_is(part, pattern) for part in parts))


def _is(name: str, pattern: str) -> bool:
    if not pattern.startswith("re:"):
        return fnmatch(name, pattern)
    try:
        return re.match(pattern[3:], name) is not None
    except re.error as bad:
        raise StackError(f"{pattern!r:.100} is not a regular expression ({bad})", "correct --quantization-config") from bad
