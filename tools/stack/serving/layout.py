# SPDX-License-Identifier: Apache-2.0
"""Compute how a recipe's server lays out its model in memory: formats, padding, and the share of each node."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy import formats
from stack.deploy.checkpoints import Shape
from stack.deploy.formats import Format
from stack.deploy.recipes import Recipe
from stack.serving import quantizing
from stack.serving.quantizing import Quantizing

Multiples = tuple[int, int]
"""Multiples to which the hidden and the intermediate size of the experts are rounded up."""

ROUNDING: Mapping[str, Multiples] = MappingProxyType(
    {
        "MARLIN": (64, 128),
        "FLASHINFER_CUTLASS": (128, 128),
        "FLASHINFER_DECODE": (32, 32),
        "FLASHINFER_TRTLLM": (256, 128),
        "CUTLASS": (128, 128),
        "DEEPGEMM": (128, 128),
        "DEEP_GEMM": (128, 128),
        "TRITON": (1, 64),
        "HUMMING": (1, 64),
        "B12X": (1, 1),
        "CPU": (32, 32),
        "EMULATION": (32, 32),
    }
)
"""Keys are beginnings of backends' names, in the log and in --moe-backend. Source: vLLM's
mxfp4_round_up_hidden_size_and_intermediate_size() (fused_moe/oracle/mxfp4.py) with the patches of the series mxfp4-moe."""
RELEASED: Mapping[str, Multiples] = MappingProxyType({"MARLIN": (256, 128)})
"""Multiples of the pinned release that differ."""
DEFAULT = MappingProxyType({"12": "MARLIN", "9": "TRITON"})
"""vLLM's default backend of the experts by major compute capability. Sources: the same file, and a verdict of an H200."""

_REFUSED = {
    "--enable-expert-parallel": "experts are not cut, but dealt out",
    "--pipeline-parallel-size": "layers are dealt out",
    "--data-parallel-size": "several copies serve",
    "--decode-context-parallel-size": "the cache is cut by its tokens",
    "--speculative-config": "a step makes several tokens",
    "--cpu-offload-gb": "weights are read over the bus",
}
"""Options that change which bytes are read, in ways that are not counted."""
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-q": "--quantization",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a model in the memory of each of `nodes`, tensor parallel; `qkv` and `o` have a format per layer.

    `tiles`: 4-bit dense layers are padded like Marlin's. `rounding` is that of the experts, which are in MXFP4 as in the checkpoint.
    The router always stays in the model's own type, `dense`.
    """

    shape: Shape
    dense: Format
    qkv: tuple[Format, ...]
    o: tuple[Format, ...]
    lm_head: Format
    kv: Format
    moe: str
    rounding: Multiples
    tiles: bool = True
    nodes: int = 1

    @property
    def hidden(self) -> int:
        """The experts' hidden size, padded."""
        return _up(self.shape.hidden_size, self.rounding[0])

    @property
    def intermediate(self) -> int:
        """The experts' intermediate size on one node, padded."""
        return _up(math.ceil(self.shape.intermediate_size / self.nodes), self.rounding[1])


def of(recipe: Recipe, shape: Shape, capability: str) -> Layout:
    """Compute how a recipe's server lays out a model of that shape, on GPUs of that compute capability (`12.1`).

    Raises:
        StackError: an argument cannot be read, or its effect is not counted here.

    """
    _demand_sane(shape)
    given = options(recipe.arguments)
    demand_counted(recipe, given)
    nodes = _nodes(given.get("--tensor-parallel-size", "1"), shape, recipe)
    dense = formats.TYPES.get(given.get("--dtype", "auto"))
    if dense is None:
        raise StackError(f"--dtype {given['--dtype']!r:.100} is not known", f"known are {', '.join(formats.TYPES)}")
    if (quantization := given.get("--quantization", "mxfp4")) != "mxfp4":
        raise StackError(f"--quantization {quantization!r:.100} is not counted", "name formats in --quantization-config")
    chosen = quantizing.read(given.get("--quantization-config", "{}"), dense)
    moe = (recipe.backends.moe or _experts(given, chosen, capability)).upper()
    # The decode kernels do not read their backend's padding.
    reads = moe if recipe.backends.decode is None else "FLASHINFER_DECODE"
    return Layout(
        shape=shape,
        dense=dense,
        qkv=tuple(chosen.linear(f"model.layers.{layer}.attn.qkv_proj") for layer in range(shape.num_hidden_layers)),
        o=tuple(chosen.linear(f"model.layers.{layer}.attn.o_proj") for layer in range(shape.num_hidden_layers)),
        lm_head=chosen.lm_head(),
        kv=formats.cache(given.get("--kv-cache-dtype", "auto"), dense),
        moe=moe,
        rounding=rounding(reads),
        tiles=given.get("--linear-backend", "auto") in ("auto", "marlin"),
        nodes=nodes,
    )


def demand_counted(recipe: Recipe, given: Mapping[str, str]) -> None:
    """Refuse options that change which bytes are read in ways that are not counted.

    Raises:
        StackError: a recipe has one.

    """
    for name, why in _REFUSED.items():
        if given.get(name, "1") != "1":
            raise StackError(f"recipe {recipe.name} has {name}: {why}", "that is not counted here: leave it out")


def rounding(moe: str, *, released: bool = False) -> Multiples:
    """Return the multiples to which a backend rounds up the experts' sizes; `released`: without this stack's patches.

    Raises:
        StackError: they are not known for this backend.

    """
    for name, multiples in ROUNDING.items():
        if moe.startswith(name):
            return RELEASED.get(name, multiples) if released else multiples
    raise StackError(f"how experts are padded for {moe!r:.100} is not known", f"known are {', '.join(ROUNDING)}")


def options(arguments: Sequence[str]) -> Mapping[str, str]:
    """Read the options among a server's arguments, by long name. One without a value has an empty one; the last one counts.

    Raises:
        StackError: an option sets a part of a JSON value by a dotted name.

    """
    options_: dict[str, str] = {}
    name = ""
    for argument in arguments:
        if re.match(r"--?[a-zA-Z]", argument):
            flag, equals, value = argument.partition("=")
            long = _SHORT.get(flag, flag.replace("_", "-"))
            if re.match(r"--(quantization|speculative)-config\.", long):
                raise StackError(f"{argument:.100} is not read", f"write {long.partition('.')[0]} and JSON")
            options_[long] = value
            name = "" if equals else long
        elif name:
            options_[name], name = argument, ""
    return MappingProxyType(options_)


def _experts(given: Mapping[str, str], chosen: Quantizing, capability: str) -> str:
    """Return the experts' backend that the arguments name, or vLLM's default."""
    named = given.get("--moe-backend", "auto")
    if named != "auto":
        return named
    major = capability.partition(".")[0]
    if major == "12" and chosen.activation == "mxfp8":
        return "FLASHINFER_CUTLASS"
    if major not in DEFAULT:
        raise StackError(f"what vLLM chooses for experts on {capability} is not known", "name --moe-backend in the recipe")
    return DEFAULT[major]


def _nodes(text: str, shape: Shape, recipe: Recipe) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise StackError(f"--tensor-parallel-size {text!r:.100} is not a number of nodes", f"correct recipe {recipe.name}")
    nodes, heads = int(text), shape.num_key_value_heads
    if shape.num_attention_heads % nodes or (heads % nodes and nodes % heads):
        raise StackError(
            f"{shape.num_attention_heads} query and {heads} KV heads cannot be divided among {nodes} nodes",
            "--tensor-parallel-size must divide them",
        )
    return nodes


def _demand_sane(shape: Shape) -> None:
    """Refuse sizes that no model has: the computation would take hours with a user's bad configuration."""
    for name, most in (*((name, 10**8) for name in Shape.__slots__), ("num_hidden_layers", 10**4)):
        if getattr(shape, name) > most:
            raise StackError(f"{name} is above {most}", "no model has so much")
    if shape.num_experts_per_tok > shape.num_local_experts:
        raise StackError(
            f"a token chooses {shape.num_experts_per_tok} of {shape.num_local_experts} experts", "correct num_experts_per_tok"
        )


def _up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple
