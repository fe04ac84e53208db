# SPDX-License-Identifier: Apache-2.0
"""Compute the speed limit of decoding: the bytes that a step reads, divided by the memory bandwidth.

Several nodes read their shares in parallel. Communication between nodes, computing, launches and latencies count as zero time. So a
server can only be slower.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stack.base.errors import StackError
from stack.deploy import checkpoints, hardware
from stack.deploy.checkpoints import Shape
from stack.deploy.hardware import Profile
from stack.deploy.recipes import GIVEN, Recipe
from stack.deploy.shapes import config_file
from stack.serving import counting, general, layout, measured, speculation, traffic
from stack.serving.layout import Layout
from stack.serving.measured import Measured
from stack.serving.release_steps import way as way  # noqa: PLC0414 - part of this module's interface
from stack.serving.speculation import Speculation
from stack.serving.traffic import CACHE, Component

CONTEXTS = (512, 2048, 8192)
"""Contexts with which published speeds were measured."""
_SLOWEST, _FASTEST = 0.1, 1_000_000
"""Plausible range of a memory bandwidth in 10^9 bytes per second."""
LONGEST = 131_072
"""Longest context of gpt-oss in tokens."""
_NODES = 1024
_MANY = 10**12
"""Requests at once with which every expert has at least one."""


@dataclass(frozen=True, slots=True)
class Point:
    """The limit for `batch` requests of `context` tokens; `bandwidth` in bytes per second. `measured` holds single requests.

    `tokens`: mean number of tokens that a step makes for each request. `sheet`: the data sheet's bandwidth, if `bandwidth` is measured.
    """

    context: int
    batch: int
    bandwidth: float
    components: tuple[Component, ...]
    measured: tuple[Measured, ...] = ()
    tokens: float = 1.0
    sheet: float | None = None

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
        return self.batch * self.tokens / self.seconds

    @property
    def sheet_limit(self) -> float | None:
        """Most tokens per second with the data sheet's bandwidth."""
        return None if self.sheet is None else self.limit * self.sheet / self.bandwidth


@dataclass(frozen=True, slots=True)
class Change:
    """A change between the release and a recipe, in words, and the limits by context with it and all changes before it."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of a recipe on a machine, and the changes that lead to it from the release and the checkpoint's formats.

    `layout` and `steps` are those of gpt-oss; `moe` is the backend of its experts. `notes` say what is not counted. `weights`: bytes of
    all matrices on each node, of all experts, too.
    """

    recipe: Recipe
    model: str
    machine: Profile
    nodes: int
    layout: Layout | None
    points: tuple[Point, ...]
    steps: tuple[Change, ...] = ()
    speculation: Speculation | None = None
    notes: tuple[str, ...] = ()
    weights: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the memory of each node has room for its weights."""
        return self.weights <= self.machine.memory * 1e9

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes; first, that the weights do not fit, if so."""
        if self.fits:
            return self.notes
        each = " each" if self.nodes > 1 else ""
        has = f"{self.weights / 1e9:.0f} GB of weights{each}, {self.machine.title} has {self.machine.memory:g} GB"
        return (
            f"it does not fit: {has}, so no speed here can be reached: name more --nodes, or a quantized checkpoint",
            *self.notes,
        )

    @property
    def moe(self) -> str | None:
        """The backend of a gpt-oss's experts."""
        return None if self.layout is None else self.layout.moe


def of(
    recipe: Recipe,
    machine: Profile,
    *,
    contexts: Sequence[int] = CONTEXTS,
    batches: Sequence[int] = (1,),
    config: Path | None = None,
    nodes: int | None = None,
    drafts: int | None = None,
    acceptance: float | None = None,
) -> Roofline:
    """Compute the limits of a recipe.

    Args:
        recipe: how the model is served.
        machine: where; the function `machine` finds that of a recipe.
        contexts: lengths of the requests in tokens.
        batches: numbers of concurrent requests.
        config: a `config.json` to use in place of the published model's.
        nodes: nodes that share the model, tensor parallel; None: as many as the recipe has.
        drafts: tokens that a step drafts for each request; None: as the recipe says, if `acceptance` is known.
        acceptance: the probability that a drafted token is accepted.

    Raises:
        StackError: the model or the machine is unknown, or the recipe has something that is not counted.

    """
    speculation.demand(drafts, acceptance)
    recipe, asked, notes = speculation.asked(_with_nodes(recipe, nodes), drafts, acceptance)
    found = _model(recipe, config, machine)
    _demand("--context", contexts, 0, LONGEST if isinstance(found, Shape) else found.longest)
    _demand("--batch", batches, 1, 100_000)
    contexts, batches = tuple(dict.fromkeys(contexts)), tuple(dict.fromkeys(batches))
    count = 0 if asked is None else asked[0]
    laid_out = layout.of(recipe, found, machine.capability) if isinstance(found, Shape) else None
    read: Callable[[int, int], tuple[Component, ...]]
    if laid_out is not None:
        parts, known, counted = laid_out, laid_out.nodes, False
        read = lambda context, batch: traffic.of(parts, context, batch, count + 1)  # noqa: E731
    else:
        assert not isinstance(found, Shape)
        served = general.served(recipe, found)
        known, counted = served.nodes, found.draft is not None
        notes = notes if found.quantized else (*notes, f"no quantization_config: all weights are counted in {found.dense.name}")
        read = lambda context, batch: served.components(context, batch, count)  # noqa: E731
    speculative = None if asked is None else Speculation(*asked, counted)
    if speculative is not None and not counted:
        notes = (*notes, "the draft's own bytes are not known and not counted: a step reads more")
    tokens = 1.0 if speculative is None else speculative.tokens
    speeds = measured.of(recipe, machine, known, laid_out) if config is None and speculative is None else ()
    points = tuple(
        replace(_point(read(context, batch), machine, context, batch, tokens), measured=_fitting(speeds, context, batch))
        for batch in batches
        for context in contexts
    )
    steps = _steps(laid_out, machine, contexts, batches[0]) if laid_out is not None and speculative is None else ()
    model = str(config) if config is not None else recipe.model
    return Roofline(recipe, model, machine, known, laid_out, points, steps, speculative, notes, _weights(read))


def machine(recipe: Recipe, name: str | None = None, bandwidth: float | None = None) -> Profile:
    """Load the machine of a recipe, or the one of that name; `bandwidth` in 10^9 bytes per second replaces its own.

    Raises:
        StackError: there is no such machine, the recipe names none, or the bandwidth is out of range.

    """
    if name is None:
        if recipe.hardware is None:
            who = f"recipe {recipe.name}" if recipe.name else "the command"
            raise StackError(f"{who} names no hardware", f"name --hardware: {', '.join(hardware.known())}")
        name = recipe.hardware.name
    found = hardware.load(name)
    if bandwidth is None:
        return found
    if not _SLOWEST <= bandwidth <= _FASTEST:
        raise StackError(f"--bandwidth {bandwidth:g} is out of range", f"it goes from {_SLOWEST} to {_FASTEST} GB/s")
    return replace(found, bandwidth=bandwidth, source="as named", sheet=None)


def anonymous(kv: str | None = None) -> Recipe:
    """Make the recipe of a server without any options, for a `config.json` alone; `kv`: the format of its cache."""
    arguments = () if kv is None else ("--kv-cache-dtype", kv)
    return Recipe("", "", GIVEN, arguments, MappingProxyType({}), ())


def limit(recipe: Recipe, machine: Profile, context: int) -> float:
    """Compute the most tokens per second that a recipe's server can decode on a machine, for one request of `context` tokens.

    Raises:
        StackError: the model is unknown, or the recipe has something that is not counted.

    """
    found = of(recipe, machine, contexts=(context,))
    if found.notes:
        raise StackError(f"recipe {recipe.name}: {found.notes[0]}", "name --acceptance")
    return found.points[0].limit


def _weights(read: Callable[[int, int], tuple[Component, ...]]) -> float:
    """Count the bytes of all matrices: with that many requests, every expert is read."""
    return sum(part.size for part in read(0, _MANY) if part.name not in (CACHE, counting.STATE, counting.DRAFTS))


def _with_nodes(recipe: Recipe, nodes: int | None) -> Recipe:
    if nodes is None:
        return recipe
    _demand("--nodes", (nodes,), 1, _NODES)
    return replace(recipe, arguments=(*recipe.arguments, "--tensor-parallel-size", str(nodes)))


def _model(recipe: Recipe, config: Path | None, machine: Profile) -> Shape | general.Model:
    """Find the model: that of a file, or the published one of the recipe."""
    if config is not None:
        own = config_file.load(config)
        if config_file.kind(own) == config_file.GPT_OSS or ("model_type" not in own and {*Shape.__slots__} <= own.keys()):
            return checkpoints.shape_of(own, config)
        return _read(config_file.formats_beside(config, own), str(config), recipe, machine)
    published = checkpoints.load(recipe.model) if recipe.model in checkpoints.known() else None
    if published is not None and published.shape is not None:
        return published.shape
    if published is not None and (values := checkpoints.config(recipe.model)) is not None:
        return _read(values, f"the shape of {published.repository}", recipe, machine)
    if published is not None:
        problem = f"recipe {recipe.name} serves {published.repository}, whose shape is not known here"
        raise StackError(problem, "name its config.json with --config")
    few = "serves a model of a few MB that the validation writes"
    what = (
        "serves any model"
        if recipe.model == GIVEN
        else few
        if recipe.is_ours
        else f"serves {recipe.model}, whose shape is not known here"
    )
    raise StackError(f"recipe {recipe.name} {what}", "name a published model's --config config.json")


def _read(values: Mapping[str, Any], where: str, recipe: Recipe, machine: Profile) -> general.Model:
    dtype = layout.options(recipe.arguments).get("--dtype", "auto")
    return config_file.model(values, where, machine.capability, None if dtype == "auto" else dtype)


def _steps(laid_out: Layout, machine: Profile, contexts: Sequence[int], batch: int) -> tuple[Change, ...]:
    return tuple(
        Change(title, tuple(_point(traffic.of(step, context, batch), machine, context, batch) for context in contexts))
        for title, step in way(laid_out)
    )


def _point(components: tuple[Component, ...], machine: Profile, context: int, batch: int, tokens: float = 1.0) -> Point:
    sheet = None if machine.sheet is None else machine.sheet * 1e9
    return Point(context, batch, machine.bandwidth * 1e9, components, tokens=tokens, sheet=sheet)


def _fitting(known: Sequence[Measured], context: int, batch: int) -> tuple[Measured, ...]:
    return tuple(speed for speed in known if batch == 1 and speed.context in (None, context))


def _demand(name: str, given: Sequence[int], least: int, most: int) -> None:
    for number in given:
        if not least <= number <= most:
            raise StackError(f"{name} {number} is out of range", f"it goes from {least} to {most}")
