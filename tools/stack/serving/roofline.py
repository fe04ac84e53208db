# SPDX-License-Identifier: Apache-2.0
"""The speed limit of decoding: what a step reads, over the bandwidth of the memory.

Several nodes read their shares at the same time; what they send each other counts as nothing, and so does all computing, every
launch and every latency. A server can only be slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.deploy import checkpoints, hardware
from stack.deploy.checkpoints import Shape
from stack.deploy.hardware import Profile
from stack.deploy.recipes import GIVEN, Recipe
from stack.serving import layout, measured, traffic
from stack.serving.layout import Layout
from stack.serving.measured import Measured
from stack.serving.traffic import CACHE, Component

CONTEXTS = (512, 2048, 8192)
"""What published speeds have been measured with."""
_SLOWEST, _FASTEST = 0.1, 1_000_000
"""10^9 bytes a second of any memory."""
LONGEST = 131_072
"""Tokens of gpt-oss' longest context."""


@dataclass(frozen=True, slots=True)
class Point:
    """The limit for `batch` requests of `context` tokens each; `bandwidth` in bytes a second. `measured` is of one request."""

    context: int
    batch: int
    bandwidth: float
    components: tuple[Component, ...]
    measured: tuple[Measured, ...] = ()

    @property
    def size(self) -> float:
        """Bytes that each node reads in a step."""
        return sum(one.size for one in self.components)

    @property
    def weights(self) -> float:
        """Those of them that do not depend on the context."""
        return sum(one.size for one in self.components if one.name != CACHE)

    @property
    def seconds(self) -> float:
        """What a step takes at least."""
        return self.size / self.bandwidth

    @property
    def limit(self) -> float:
        """The most tokens a second, of all requests together."""
        return self.batch / self.seconds


@dataclass(frozen=True, slots=True)
class Step:
    """A change on the way to a recipe, in words, and the limits with it and all before it, by context."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of one recipe on one machine, and the way there from the release and the formats of the checkpoint."""

    recipe: Recipe
    model: str
    machine: Profile
    layout: Layout
    points: tuple[Point, ...]
    steps: tuple[Step, ...]


def of(
    recipe: Recipe,
    machine: Profile,
    *,
    contexts: Sequence[int] = CONTEXTS,
    batches: Sequence[int] = (1,),
    config: Path | None = None,
) -> Roofline:
    """The limits of a recipe.

    Args:
        recipe: how it is served.
        machine: where; `machine` says for what machine a recipe is.
        contexts: tokens that the requests are long.
        batches: numbers of requests at once.
        config: a `config.json` in place of the published model's.

    Raises:
        StackError: the model or the machine is not known, or something in the recipe is not counted.

    """
    shape = checkpoints.shape(config) if config is not None else _shape(recipe)
    _demand("--context", contexts, 0, LONGEST)
    _demand("--batch", batches, 1, 100_000)
    contexts, batches = tuple(dict.fromkeys(contexts)), tuple(dict.fromkeys(batches))
    lies = layout.of(recipe, shape, machine.capability)
    model = str(config) if config is not None else recipe.model
    known = () if config is not None else measured.of(recipe, machine, lies)
    points = tuple(
        replace(_point(lies, machine, context, batch), measured=_fitting(known, context, batch))
        for batch in batches
        for context in contexts
    )
    steps = tuple(
        Step(title, tuple(_point(step, machine, context, batches[0]) for context in contexts)) for title, step in way(lies)
    )
    return Roofline(recipe, model, machine, lies, points, steps)


def machine(recipe: Recipe, name: str | None = None, bandwidth: float | None = None) -> Profile:
    """What a recipe is for, or the machine of that name; `bandwidth` in 10^9 bytes a second is put in place of its own.

    Raises:
        StackError: there is no such machine, the recipe names none, or the bandwidth is none.

    """
    if name is None:
        if recipe.hardware is None:
            raise StackError(f"recipe {recipe.name} names no hardware", f"name --hardware: {', '.join(hardware.known())}")
        name = recipe.hardware.name
    found = hardware.load(name)
    if bandwidth is None:
        return found
    if not _SLOWEST <= bandwidth <= _FASTEST:
        raise StackError(f"--bandwidth {bandwidth:g} is out of range", f"it goes from {_SLOWEST} to {_FASTEST} GB/s")
    return replace(found, bandwidth=bandwidth, source="as named")


def limit(recipe: Recipe, machine: Profile, context: int) -> float:
    """The most tokens a second that a recipe's server can decode there, for one request of `context` tokens.

    Raises:
        StackError: the model is not known, or something in the recipe is not counted.

    """
    return of(recipe, machine, contexts=(context,)).points[0].limit


def way(lies: Layout) -> tuple[tuple[str, Layout], ...]:
    """From what the release at the pin makes of the checkpoint to a layout, one change at a time; each with its words."""
    plain = (lies.dense,) * lies.shape.num_hidden_layers
    start = replace(
        lies, qkv=plain, o=plain, lm_head=lies.dense, kv=lies.dense, rounding=layout.rounding(lies.moe, released=True)
    )
    changes = (
        _dense_change(lies),
        (f"lm_head in {lies.lm_head.name}", {"lm_head": lies.lm_head}),
        *_paddings(start, lies),
        (f"KV in {lies.kv.name}", {"kv": lies.kv}),
    )
    found = [(f"as released: dense layers in {lies.dense.name}, {_experts(start)}", start)]
    for title, change in changes:
        after = replace(found[-1][1], **change)
        if after != found[-1][1]:
            found.append((title, after))
    return tuple(found)


def _dense_change(lies: Layout) -> tuple[str, dict[str, Any]]:
    qkv, o = (", ".join(dict.fromkeys(one.name for one in each)) for each in (lies.qkv, lies.o))
    title = f"qkv and o in {qkv}" if qkv == o else f"qkv in {qkv}, o in {o}"
    return title, {"qkv": lies.qkv, "o": lies.o}


def _paddings(start: Layout, lies: Layout) -> list[tuple[str, dict[str, Any]]]:
    """Less and less of it; between Marlin's of the release and this stack's lies CUTLASS's."""
    found: list[tuple[str, dict[str, Any]]] = []
    least = start.hidden
    for one in (layout.rounding("FLASHINFER_CUTLASS"), lies.rounding):
        padded = replace(start, rounding=one)
        if lies.hidden <= padded.hidden < least:
            found.append((_experts(padded), {"rounding": one}))
            least = padded.hidden
    return found


def _experts(lies: Layout) -> str:
    return f"experts {lies.hidden} x {lies.intermediate}"


def _point(lies: Layout, machine: Profile, context: int, batch: int) -> Point:
    return Point(context, batch, machine.bandwidth * 1e9, traffic.of(lies, context, batch))


def _fitting(known: Sequence[Measured], context: int, batch: int) -> tuple[Measured, ...]:
    return tuple(one for one in known if batch == 1 and one.context in (None, context))


def _shape(recipe: Recipe) -> Shape:
    if recipe.model in checkpoints.known():
        return checkpoints.load(recipe.model).shape
    what = (
        "serves whatever model there is" if recipe.model == GIVEN else "serves a model of a few MB that the validation writes"
    )
    raise StackError(f"recipe {recipe.name} {what}", "name a published model's --config config.json")


def _demand(name: str, given: Sequence[int], least: int, most: int) -> None:
    for one in given:
        if not least <= one <= most:
            raise StackError(f"{name} {one} is out of range", f"it goes from {least} to {most}")
