# SPDX-License-Identifier: Apache-2.0
"""Find the format of each layer in a checkpoint's `quantization_config`, by the rules of vLLM's loaders.

Known are compressed-tensors, ModelOpt (FP8, NVFP4, MXFP8, MIXED_PRECISION), fp8 and mxfp4. A layer that they leave out stays in the
model's own type. Anything else is refused with its key: a guess would be off by a factor of two to four.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stack.deploy import formats
from stack.deploy.formats import Format
from stack.deploy.shapes.keys import Keys
from stack.deploy.shapes.patterns import Patterns

MOST = 50_000
"""Entries of the longest list of layers; 94 layers with each projection have 1,000."""

_MODELOPT = {
    "FP8": formats.QUANTIZED["fp8_per_tensor"],
    "FP8_PER_CHANNEL_PER_TOKEN": formats.QUANTIZED["fp8"],
    "FP8_PB_WO": formats.QUANTIZED["fp8_per_block"],
    "NVFP4": formats.NVFP4,
    "W4A16_NVFP4": formats.NVFP4,
    "MXFP8": formats.QUANTIZED["mxfp8"],
}
"""Formats by `quant_algo`: LINEAR_ALGOS in vLLM's quantization/modelopt.py."""
_MIXED = "MIXED_PRECISION"
_CLASSES = {"Linear": ("linear", "experts"), "RoutedExperts": ("experts",), "FusedMoE": ("experts",)}
"""Classes of layers that compressed-tensors may target, and the kinds of layers that they are here."""

LINEAR, EXPERTS, HEAD = "linear", "experts", "head"
"""Kinds of layers: quantization methods treat experts and the output head in ways of their own."""

Find = Callable[[Sequence[str], str], Format]
"""Returns the format of a layer, by all of its names and its kind."""


@dataclass(frozen=True, slots=True)
class Quantization:
    """The formats of a checkpoint's layers: `find` by names and kind; `kv`: the format for its cache, None for the model's own."""

    find: Find
    kv: str | None = None


def read(config: object, dense: Format, where: str) -> Quantization:
    """Read a `quantization_config`, or the content of an `hf_quant_config.json`; None means an unquantized checkpoint.

    Raises:
        StackError: something in it is not known.

    """
    if config is None:
        return Quantization(lambda _names, _kind: dense)
    if not isinstance(config, dict):
        raise Keys({}, where).error("", "is not an object")
    inner = config.get("quantization")
    keys = Keys({**config, **inner} if isinstance(inner, dict) else config, f"{where}.")
    # ModelOpt's own file does not name a method; vLLM takes the file's name for it.
    method = keys.text("quant_method") if keys.given("quant_method") else "modelopt" if keys.given("quant_algo") else None
    if method is None:
        raise keys.error("quant_method", "is missing")
    reader = next((reader for name, reader in _READERS.items() if method == name or method.startswith(f"{name}_")), None)
    if reader is None:
        raise keys.error("quant_method", f"is {method!r:.40}", f"known are {', '.join(_READERS)}")
    return reader(keys, dense, where)


def _modelopt(keys: Keys, dense: Format, where: str) -> Quantization:
    algorithm = keys.text("quant_algo").upper()
    ignored = Patterns((*keys.texts("ignore", MOST), *keys.texts("exclude_modules", MOST)), f"{where}.ignore", loose=True)
    kv = _modelopt_kv(keys)
    if algorithm == _MIXED:
        listed = _listed(keys)

        def mixed(names: Sequence[str], _kind: str) -> Format:
            if ignored.match(names):
                return dense
            return next((listed[name] for name in names if name in listed), dense)

        return Quantization(mixed, kv)
    form = _algorithm(keys, algorithm)

    def single(names: Sequence[str], _kind: str) -> Format:
        return dense if ignored.match(names) else form

    return Quantization(single, kv)


def _algorithm(keys: Keys, name: str) -> Format:
    if name not in _MODELOPT:
        raise keys.error("quant_algo", f"is {name!r:.40}", f"known are {', '.join((*_MODELOPT, _MIXED))}")
    if keys.optional("group_size") not in (None, 16) and _MODELOPT[name] is formats.NVFP4:
        raise keys.error("group_size", "is not 16", "NVFP4 has a scale for each 16 values")
    return _MODELOPT[name]


def _listed(keys: Keys) -> Mapping[str, Format]:
    """Read ModelOpt's formats by layer; experts may be listed one by one, and count as the first of them."""
    layers = keys.value("quantized_layers")
    if not isinstance(layers, dict) or not 0 < len(layers) <= MOST:
        raise keys.error("quantized_layers", f"is not an object of 1 to {MOST} layers")
    listed = {}
    for name, entry in layers.items():
        if not isinstance(entry, dict):
            raise keys.error("quantized_layers", f"has {name!r:.60} without an object")
        inner = Keys(entry, f"quantized_layers.{name[:80]}.")
        listed[name] = _algorithm(inner, inner.text("quant_algo").upper())
    return listed


def _modelopt_kv(keys: Keys) -> str | None:
    """Return the cache's format; get_kv_cache_quant_algo_string() in vLLM's utils/torch_utils.py."""
    named = keys.value("kv_cache_scheme") or keys.value("kv_cache_quant_algo")
    if named is None:
        return None
    if isinstance(named, dict):
        return "fp8" if (named.get("num_bits"), named.get("type"), named.get("dynamic")) == (8, "float", False) else "unknown"
    return "fp8" if isinstance(named, str) and named.lower() in ("fp8", "fp8_e4m3") else "unknown"


def _compressed(keys: Keys, dense: Format, where: str) -> Quantization:
    ignored = Patterns(keys.texts("ignore", MOST), f"{where}.ignore")
    groups = keys.value("config_groups")
    if not isinstance(groups, dict) or not 0 < len(groups) <= _GROUPS:
        raise keys.error("config_groups", f"is not an object of 1 to {_GROUPS} groups")
    targets: list[tuple[Patterns, frozenset[str], Format]] = []
    for name, group in groups.items():
        if not isinstance(group, dict):
            raise keys.error("config_groups", f"has {name!r:.40} without an object")
        inner = Keys(group, f"{where}.config_groups.{name[:40]}.")
        named = inner.texts("targets", MOST)
        if len(named) == 1 and named[0].endswith("Attention"):
            continue  # vLLM leaves it to the format of the cache
        kinds = {kind for target in named for kind in _CLASSES.get(target, ())}
        places = [target for target in named if target not in _CLASSES]
        if odd := [target for target in places if target[:1].isupper() and "." not in target]:
            raise inner.error("targets", f"has {odd[0]!r:.40}", f"known classes are {', '.join(_CLASSES)}")
        form = _weights(inner, dense)
        targets.append((Patterns(places, f"{where}.config_groups"), frozenset(kinds), form))

    def find(names: Sequence[str], kind: str) -> Format:
        if ignored.match(names):
            return dense
        # A layer's own name comes before its class.
        by_name = (form for patterns, _, form in targets if patterns.match(names))
        by_class = (form for _, kinds, form in targets if kind in kinds)
        return next(by_name, next(by_class, dense))

    return Quantization(find, _compressed_kv(keys))


_GROUPS = 100


def _compressed_kv(keys: Keys) -> str | None:
    """Return the cache's format; vLLM's layers/attention/attention.py takes FP8 for any scheme, and knows 8 bits only."""
    scheme = keys.value("kv_cache_scheme")
    if scheme is None:
        return None
    known = isinstance(scheme, dict) and (scheme.get("num_bits"), scheme.get("type")) == (8, "float")
    return "fp8" if known else "unknown"


def _weights(group: Keys, dense: Format) -> Format:
    """Find the format of a group's weights by bits, type, and how its scales are grouped."""
    value: Any = group.value("weights")
    if value is None:
        return dense
    if not isinstance(value, dict):
        raise group.error("weights", "is not an object")
    bits, kind, strategy, size = (value.get(key) for key in ("num_bits", "type", "strategy", "group_size"))
    if kind == "float" and bits == 4 and size in (16, 32):
        return formats.NVFP4 if size == 16 else formats.MXFP4
    if kind == "float" and bits == 8 and size == 32:
        return formats.QUANTIZED["mxfp8"]
    if kind == "float" and bits == 8 and size is None:
        named = {"tensor": "fp8_per_tensor", "channel": "fp8", None: "fp8_per_tensor"}
        if isinstance(strategy, str | None) and strategy in named:
            return formats.QUANTIZED[named[strategy]]
        if strategy == "block":
            return formats.blocks(*_block(group, value.get("block_structure")))
    shown = f"{bits} bits of {kind}, strategy {strategy}, group_size {size}"
    raise group.error("weights", f"is {shown:.100}", "known are NVFP4, MXFP4, MXFP8 and FP8")


def _fp8(keys: Keys, dense: Format, where: str) -> Quantization:
    listed = (*keys.texts("modules_to_not_convert", MOST), *keys.texts("ignored_layers", MOST))
    ignored = Patterns(listed, f"{where}.modules_to_not_convert")
    block = keys.value("weight_block_size")
    form = formats.QUANTIZED["fp8_per_tensor"] if block is None else formats.blocks(*_block(keys, block))
    if keys.given("store_dtype"):
        raise keys.error("store_dtype", "is unknown", "it is not counted here")

    def find(names: Sequence[str], kind: str) -> Format:
        # vLLM's Fp8Config has no method for the output head.
        return dense if kind == HEAD or ignored.match(names) else form

    return Quantization(find)


def _block(keys: Keys, value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(size) is int and 1 <= size <= _BLOCK for size in value):
        raise keys.error("weight_block_size", f"is {value!r:.40}", "it has to be two whole numbers, such as [128, 128]")
    return value[0], value[1]


_BLOCK = 2**16


def _mxfp4(_keys: Keys, dense: Format, _where: str) -> Quantization:
    def find(_names: Sequence[str], kind: str) -> Format:
        # vLLM's Mxfp4Config quantizes experts only.
        return formats.MXFP4 if kind == EXPERTS else dense

    return Quantization(find)


_READERS = {"compressed-tensors": _compressed, "modelopt": _modelopt, "fp8": _fp8, "mxfp4": _mxfp4}
