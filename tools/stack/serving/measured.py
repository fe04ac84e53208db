# SPDX-License-Identifier: Apache-2.0
"""What was measured of a model on a machine: by a recipe's sources, in baselines, and by this stack in verdicts that are kept."""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace

from stack.deploy.data import DATA
from stack.deploy.hardware import Profile
from stack.deploy.recipes import Backends, Recipe
from stack.model import verdict
from stack.model.verdict import Verdict
from stack.serving import layout
from stack.serving.layout import Layout
from stack.validation.bench import baseline
from stack.validation.bench.baseline import ANY, Baseline
from stack.validation.pack import recipes as pack

_KEPT = DATA
_CASE = re.compile(r"bench/([^/]+)/decode/(\d+)")


@dataclass(frozen=True, slots=True)
class Measured:
    """Tokens a second of one request after a prompt of `context` tokens (None: any, it is not stated), by whom and with what.

    `alike`: it is known to have been measured with the recipe's formats and padding; otherwise they may be others.
    """

    context: int | None
    decode: float
    source: str
    alike: bool = False


def of(recipe: Recipe, machine: Profile, lies: Layout) -> tuple[Measured, ...]:
    """All that is known of a recipe's model on as many of a machine as it is laid out on, each once.

    Raises:
        StackError: a baseline or a verdict is not of its form.

    """
    others = [*_baselines(recipe.model, machine, lies.nodes), *_verdicts(recipe, machine, lies)]
    # A recipe expects what somebody measured: what a baseline has in full is not said again, rounded.
    said = {(one.context, round(one.decode, 1)) for one in others}
    expected = [
        Measured(one.context, one.decode, one.source)
        for one in recipe.speeds
        if recipe.hardware is not None and recipe.hardware.name == machine.name and (one.context, one.decode) not in said
    ]
    return (*expected, *others)


def _baselines(model: str, machine: Profile, nodes: int) -> Iterator[Measured]:
    for one in baseline.load(_KEPT / "baselines"):
        if one.model == model and machine.gpu is not None and one.gpus == (machine.gpu,) * nodes:
            yield from _decodes(one)


def _decodes(one: Baseline) -> Iterator[Measured]:
    """Of the shortest answers: later tokens have a longer context."""
    if not one.decode:
        return
    answer = min(one.decode, key=lambda size: float("inf") if size == ANY else int(size))
    for prompt, runs in one.decode[answer].items():
        context = None if prompt == ANY else int(prompt)
        yield Measured(context, statistics.median(runs), f"{one.source}, {one.date}, {one.tool}")


def _verdicts(recipe: Recipe, machine: Profile, lies: Layout) -> Iterator[Measured]:
    for file in sorted((_KEPT / "verdicts").rglob("*.json")):
        found = verdict.load(file)
        if machine.gpu is None or tuple(gpu.name for gpu in found.machine.gpus) != (machine.gpu,) * lies.nodes:
            continue
        weights = f", {found.weights} weights" if found.weights else ""
        for server, context, speed in _cases(found, recipe.model):
            source = f"this stack, {found.made[:10]}, {file.name}: {server}{weights}"
            yield Measured(context, speed, source, alike=_layout(server, recipe, machine, lies) == lies)


def _cases(found: Verdict, model: str) -> Iterator[tuple[str, int, float]]:
    """The servers of a model, and the speed of each after prompts of so many tokens."""
    cases = {one.name: one for one in found.cases}
    for name, one in cases.items():
        matched = _CASE.fullmatch(name)
        if matched is None or (served := cases.get(f"serve/{matched[1]}/models")) is None:
            continue
        speed = one.measured.get("tok/s")
        if served.measured.get("model") == model and isinstance(speed, int | float):
            yield matched[1], int(matched[2]), speed


def _layout(server: str, recipe: Recipe, machine: Profile, lies: Layout) -> Layout | None:
    """How one of the validation's own servers lays out the recipe's model; None where there is none of that name."""
    for one in pack.RECIPES:
        if one.name == server:
            served = replace(recipe, arguments=one.arguments, backends=Backends())
            found = layout.of(served, lies.shape, machine.capability)
            return replace(found, rounding=layout.rounding(found.moe, released=pack.PADDING in one.without))
    return None
