# SPDX-License-Identifier: Apache-2.0
"""Collect measured speeds of a model on a machine: from recipes' sources, from baselines, and from kept verdicts."""

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
    """Tokens per second of one request after a prompt of `context` tokens (None if not stated), with its source.

    `alike`: it is known that the recipe's formats and padding were used; otherwise they may differ. `released`: it is of an upstream
    release without changes.
    """

    context: int | None
    decode: float
    source: str
    alike: bool = False
    released: bool = False


def of(recipe: Recipe, machine: Profile, nodes: int, laid_out: Layout | None = None) -> tuple[Measured, ...]:
    """Collect all known speeds of a recipe's model on that many such machines, each once; `laid_out` is the layout of a gpt-oss.

    Raises:
        StackError: a baseline or a verdict is invalid.

    """
    others = [*_baselines(recipe.model, machine, nodes), *_verdicts(recipe, machine, nodes, laid_out)]
    # A recipe's expected speeds come from measurements: skip those that a baseline has, which are less rounded there.
    known = {(speed.context, round(speed.decode, 1)) for speed in others}
    expected = [
        Measured(speed.context, speed.decode, speed.source)
        for speed in recipe.speeds
        if recipe.hardware is not None and recipe.hardware.name == machine.name and (speed.context, speed.decode) not in known
    ]
    return (*expected, *others)


def _baselines(model: str, machine: Profile, nodes: int) -> Iterator[Measured]:
    for recorded in baseline.load(_KEPT / "baselines"):
        if recorded.model == model and machine.gpu is not None and recorded.gpus == (machine.gpu,) * nodes:
            yield from _decodes(recorded)


def _decodes(recorded: Baseline) -> Iterator[Measured]:
    """Yield the speeds for the shortest answers, since later tokens have a longer context."""
    if not recorded.decode:
        return
    answer = min(recorded.decode, key=lambda size: float("inf") if size == ANY else int(size))
    for prompt, runs in recorded.decode[answer].items():
        context = None if prompt == ANY else int(prompt)
        source = f"{recorded.source}, {recorded.date}, {recorded.tool}"
        yield Measured(context, statistics.median(runs), source, released=recorded.released)


def _verdicts(recipe: Recipe, machine: Profile, nodes: int, laid_out: Layout | None) -> Iterator[Measured]:
    for file in sorted((_KEPT / "verdicts").rglob("*.json")):
        found = verdict.load(file)
        if machine.gpu is None or tuple(gpu.name for gpu in found.machine.gpus) != (machine.gpu,) * nodes:
            continue
        weights = f", {found.weights} weights" if found.weights else ""
        for server, context, speed in _cases(found, recipe.model):
            source = f"this stack, {found.made[:10]}, {file.name}: {server}{weights}"
            alike = laid_out is not None and _layout(server, recipe, machine, laid_out) == laid_out
            yield Measured(context, speed, source, alike=alike)


def _cases(found: Verdict, model: str) -> Iterator[tuple[str, int, float]]:
    """Yield the servers of a model, each with a prompt length and its speed."""
    cases = {case.name: case for case in found.cases}
    for name, case in cases.items():
        matched = _CASE.fullmatch(name)
        if matched is None or (served := cases.get(f"serve/{matched[1]}/models")) is None:
            continue
        speed = case.measured.get("tok/s")
        if served.measured.get("model") == model and isinstance(speed, int | float):
            yield matched[1], int(matched[2]), speed


def _layout(server: str, recipe: Recipe, machine: Profile, laid_out: Layout) -> Layout | None:
    """Compute how one of the validation's own servers lays out the recipe's model; None if it has none of that name."""
    for packed in pack.RECIPES:
        if packed.name == server:
            served = replace(recipe, arguments=packed.arguments, backends=Backends())
            found = layout.of(served, laid_out.shape, machine.capability)
            return replace(found, rounding=layout.rounding(found.moe, released=pack.PADDING in packed.without))
    return None
