# SPDX-License-Identifier: Apache-2.0
"""Compute the speed limit of decoding: the bytes that a step reads, divided by the memory bandwidth.

Several nodes read their shares in parallel. Communication between nodes, computing, launches and latencies count as zero time. So a
server can only be slower.
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
"""Contexts with which published speeds were measured."""
_SLOWEST, _FASTEST = 0.1, 1_000_000
"""Plausible range of a memory bandwidth in 10^9 bytes per second."""
LONGEST = 131_072
"""Longest context of gpt-oss in tokens."""


@dataclass(frozen=True, slots=True)
class Point:
    """The limit for `batch` requests of `context` tokens; `bandwidth` in bytes per second. `measured` holds single requests."""

    context: int
    batch: int
    bandwidth: float
    components: tuple[Component, ...]
    measured: tuple[Measured, ...] = ()

    @property
    def size(self) -> float:
        """Bytes that each node reads in a step."""
        return sum(part.size for part in self.components)

    @property
    def weights(self) -> float:
        """Bytes that do not depend on the context."""
        return sum(part.size for part in self.components if part.name != CACHE)

    @property
    def seconds(self) -> float:
        """Least time of a step."""
        return self.size / self.bandwidth

    @property
    def limit(self) -> float:
        """Most tokens per second, over all requests."""
        return self.batch / self.seconds


@dataclass(frozen=True, slots=True)
class Change:
    """A change between the release and a recipe, in words, and the limits by context with it and all changes before it."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of a recipe on a machine, and the changes that lead to it from the release and the checkpoint's formats."""

    recipe: Recipe
    model: str
    machine: Profile
    layout: Layout
    points: tuple[Point, ...]
    steps: tuple[Change, ...]


def of(
    recipe: Recipe,
    machine: Profile,
    *,
    contexts: Sequence[int] = CONTEXTS,
    batches: Sequence[int] = (1,),
    config: Path | None = None,
) -> Roofline:
    """Compute the limits of a recipe.

    Args:
        recipe: how the model is served.
        machine: where; the function `machine` finds that of a recipe.
        contexts: lengths of the requests in tokens.
        batches: numbers of concurrent requests.
        config: a `config.json` to use in place of the published model's.

    Raises:
        StackError: the model or the machine is unknown, or the recipe has something that is not counted.

    """
    shape = checkpoints.shape(config) if config is not None else _shape(recipe)
    _demand("--context", contexts, 0, LONGEST)
    _demand("--batch", batches, 1, 100_000)
    contexts, batches = tuple(dict.fromkeys(contexts)), tuple(dict.fromkeys(batches))
    laid_out = layout.of(recipe, shape, machine.capability)
    model = str(config) if config is not None else recipe.model
    known = () if config is not None else measured.of(recipe, machine, laid_out)
    points = tuple(
        replace(_point(laid_out, machine, context, batch), measured=_fitting(known, context, batch))
        for batch in batches
        for context in contexts
    )
    steps = tuple(
        Change(title, tuple(_point(step, machine, context, batches[0]) for context in contexts))
        for title, step in way(laid_out)
    )
    return Roofline(recipe, model, machine, laid_out, points, steps)


def machine(recipe: Recipe, name: str | None = None, bandwidth: float | None = None) -> Profile:
    """Load the machine of a recipe, or the one of that name; `bandwidth` in 10^9 bytes per second replaces its own.

    Raises:
        StackError: there is no such machine, the recipe names none, or the bandwidth is out of range.

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
    """Compute the most tokens per second that a recipe's server can decode on a machine, for one request of `context` tokens.

    Raises:
        StackError: the model is unknown, or the recipe has something that is not counted.

    """
    return of(recipe, machine, contexts=(context,)).points[0].limit


def way(laid_out: Layout) -> tuple[tuple[str, Layout], ...]:
    """List the layouts from the pinned release's to the given one, one change at a time, each with its description."""
    plain = (laid_out.dense,) * laid_out.shape.num_hidden_layers
    start = replace(
        laid_out,
        qkv=plain,
        o=plain,
        lm_head=laid_out.dense,
        kv=laid_out.dense,
        rounding=layout.rounding(laid_out.moe, released=True),
    )
    changes = (
        _dense_change(laid_out),
        (f"lm_head in {laid_out.lm_head.name}", {"lm_head": laid_out.lm_head}),
        *_paddings(start, laid_out),
        (f"KV in {laid_out.kv.name}", {"kv": laid_out.kv}),
    )
    found = [(f"as released: dense layers in {laid_out.dense.name}, {_experts(start)}", start)]
    for title, change in changes:
        after = replace(found[-1][1], **change)
        if after != found[-1][1]:
            found.append((title, after))
    return tuple(found)


def _dense_change(laid_out: Layout) -> tuple[str, dict[str, Any]]:
    qkv, o = (", ".join(dict.fromkeys(form.name for form in each)) for each in (laid_out.qkv, laid_out.o))
    title = f"qkv and o in {qkv}" if qkv == o else f"qkv in {qkv}, o in {o}"
    return title, {"qkv": laid_out.qkv, "o": laid_out.o}


def _paddings(start: Layout, laid_out: Layout) -> list[tuple[str, dict[str, Any]]]:
    """List paddings that shrink step by step; CUTLASS's lies between the release's Marlin and this stack's."""
    found: list[tuple[str, dict[str, Any]]] = []
    least = start.hidden
    for multiples in (layout.rounding("FLASHINFER_CUTLASS"), laid_out.rounding):
        padded = replace(start, rounding=multiples)
        if laid_out.hidden <= padded.hidden < least:
            found.append((_experts(padded), {"rounding": multiples}))
            least = padded.hidden
    return found


def _experts(laid_out: Layout) -> str:
    return f"experts {laid_out.hidden} x {laid_out.intermediate}"


def _point(laid_out: Layout, machine: Profile, context: int, batch: int) -> Point:
    return Point(context, batch, machine.bandwidth * 1e9, traffic.of(laid_out, context, batch))


def _fitting(known: Sequence[Measured], context: int, batch: int) -> tuple[Measured, ...]:
    return tuple(speed for speed in known if batch == 1 and speed.context in (None, context))


def _shape(recipe: Recipe) -> Shape:
    published = checkpoints.load(recipe.model) if recipe.model in checkpoints.known() else None
    if published is not None and published.shape is not None:
        return published.shape
    if published is not None:
        raise StackError(
            f"recipe {recipe.name} serves {published.repository}, which is not a gpt-oss", "name a recipe of gpt-oss"
        )
    what = "serves any model" if recipe.model == GIVEN else "serves a model of a few MB that the validation writes"
    raise StackError(f"recipe {recipe.name} {what}", "name a published model's --config config.json")


def _demand(name: str, given: Sequence[int], least: int, most: int) -> None:
    for number in given:
        if not least <= number <= most:
            raise StackError(f"{name} {number} is out of range", f"it goes from {least} to {most}")
