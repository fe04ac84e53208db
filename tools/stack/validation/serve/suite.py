# SPDX-License-Identifier: Apache-2.0
"""The suite `serve`: servers by recipe, what they are asked, and which series are in them."""

import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.deploy.recipes import Recipe
from stack.model import digest
from stack.model.series import Series
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome
from stack.proof import series_proofs
from stack.proof.runner import Runner
from stack.validation import machine, python_env
from stack.validation.python_env import Packages
from stack.validation.serve import checks, fixture_cache, numbers, patches, server
from stack.validation.serve.checks import Asked, Measured
from stack.validation.serve.client import Talk, Wrong
from stack.validation.serve.fixture_cache import Material
from stack.validation.serve.numbers import Judged
from stack.validation.serve.server import NotServing, Running
from stack.validation.suite import Job

LONGEST = 900.0
"""Seconds to wait for a server: more than ten times what a tiny model takes where nothing else runs."""
EFFECT_BY = {"harmony": "cpu-fp32", "cpu-mxfp4": "cpu-mxfp4"}
"""The recipe whose server shows what a series does on a CPU."""
REFUSED = {"cpu-mxfp4": "No MXFP4 MoE backend supports the deployment configuration"}
"""What the log says where a series is missed by a server that does not start; for another reason it proves nothing."""
NUMBERS = {"log-probabilities": numbers.scores, "greedy": numbers.answers}
_HERE = "cpu"

Wheel = Callable[[Stack], Path]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked for.

    `url`: a server that runs already, in place of one of ours. `inside`: what has the stack's packages (an image), in place of the
    validation's own environment with a wheel of the stack; not with `ablate`. `ablate`: leave out each series that acts here, and see what it did
    missed. `prove`: run the proofs of all series.
    """

    recipes: tuple[Recipe, ...]
    url: str | None = None
    inside: Packages | None = None
    ablate: bool = False
    prove: bool = True


def cases(job: Job, stores: Stores, wheel: Wheel, plan: Plan) -> Iterator[Case]:
    """All cases of the suite, one after the other.

    Args:
        job: which are wanted.
        stores: of the stack under test.
        wheel: makes the wheel of vLLM for the CPU that carries a stack.
        plan: what is asked for.

    Raises:
        StackError: what servers and checks need cannot be had.

    """
    suite = _Suite(job, stores, wheel, plan)
    for recipe in plan.recipes:
        yield from suite.recipe(recipe)
    if plan.url is None:
        for series in stores.stack.series:
            yield from suite.series(series)


def versions(stack: Stack, plan: Plan) -> dict[str, str]:
    """What our servers run, by name; of somebody's own server the case `version` says it."""
    archives = {pin.upstream: pin.archive for pin in stack.pins if pin.archive is not None}
    if plan.url is not None or patches.SERVED not in archives:
        return {}
    if plan.inside is not None:
        return python_env.versions(plan.inside, "torch", patches.SERVED)
    return {"torch": fixture_cache.torch(), patches.SERVED: archives[patches.SERVED].version}


class _Suite:
    """One run of the suite; what several cases need is made once."""

    def __init__(self, job: Job, stores: Stores, wheel: Wheel, plan: Plan) -> None:
        self._job, self._stores, self._wheel, self._plan = job, stores, wheel, plan
        self._flags = frozenset(machine.here().flags)
        self._packages: dict[str, Packages] = {}

    def recipe(self, recipe: Recipe) -> Iterator[Case]:
        """The cases of one recipe: a server is started if one of them is wanted."""
        names = self._names(recipe)
        effects = [
            (series, name)
            for series, named in checks.EFFECTS.items()
            for name in named
            if EFFECT_BY[series] == recipe.name and self._job.wants(effect_name(series, name))
        ]
        wanted = {name for name in names if self._job.wants(_name(recipe, name))}
        if not wanted and not effects:
            return
        missing = sorted({*recipe.flags} - self._flags)
        if missing and self._plan.url is None:
            for name in names:
                if name in wanted:
                    yield _not_run(_name(recipe, name), f"the CPU has no {' and no '.join(missing)}", recipe)
            return
        try:
            with self._running(recipe, self._stores.stack) as running:
                if "starts" in wanted:
                    yield Case(
                        _name(recipe, "starts"),
                        Outcome.PASSED,
                        needs=_needs(recipe),
                        seconds=running.started,
                        measured={"title": recipe.title},
                    )
                yield from self._asked(
                    recipe, running, [name for name in names if name in wanted and name != "starts"], effects
                )
        except NotServing as failed:
            for name in names:
                if name == "starts" and name in wanted:
                    yield Case(_name(recipe, name), Outcome.FAILED, str(failed), _needs(recipe))
                elif name in wanted:
                    yield _not_run(_name(recipe, name), "the server did not start", recipe)
            for series, name in effects:
                yield _not_run(effect_name(series, name), "the server did not start", recipe)

    def _names(self, recipe: Recipe) -> list[str]:
        """The cases of a recipe: of a server that is not ours, neither its start nor its log is seen."""
        if not recipe.is_ours:
            return list(checks.GENERAL)
        if self._plan.url is not None:
            return [*(name for name in checks.CHECKS if name != "backends"), *NUMBERS]
        return ["starts", *checks.CHECKS, *NUMBERS]

    def _asked(
        self, recipe: Recipe, running: Running, names: Sequence[str], effects: Sequence[tuple[str, str]]
    ) -> Iterator[Case]:
        asked = Asked(Talk(running.url, running.model), recipe, running.log, self._tokens, digest.of(self._stores.stack))
        for place, name in enumerate(names):
            self._job.step(f"{recipe.name}: {name}", place, len(names))
            yield self._case(_name(recipe, name), recipe, running, functools.partial(self._measured, name, asked))
        for series, name in effects:
            effect = checks.EFFECTS[series][name]
            yield self._case(effect_name(series, name), recipe, running, functools.partial(_taken, effect, asked))

    def _measured(self, name: str, asked: Asked) -> Measured | Judged:
        if name in NUMBERS:
            return _taken(functools.partial(NUMBERS[name], reference=self._reference), asked)
        return _taken((checks.GENERAL if not asked.recipe.is_ours else checks.CHECKS)[name], asked)

    def _case(self, name: str, recipe: Recipe, running: Running, run: Callable[[], Measured | Judged]) -> Case:
        began = time.monotonic()
        case = Case(name, Outcome.PASSED, needs=_needs(recipe))
        try:
            found = run()
        except Wrong as wrong:
            return replace(case, outcome=Outcome.FAILED, why=_why(str(wrong), running), seconds=time.monotonic() - began)
        case = replace(case, seconds=time.monotonic() - began)
        if not isinstance(found, Judged):
            return replace(case, measured=found)
        case = replace(case, measured=found.measured, margins=found.margins, bar=recipe.bar.at if recipe.bar else None)
        return replace(case, outcome=Outcome.FAILED, why=found.why) if found.why else case

    def series(self, series: Series) -> Iterator[Case]:
        """What can be said of a series here: it is delivered, its proofs hold, its effect is seen, and missed without it."""
        name = f"serve/series/{series.name}"
        if self._job.wants(f"{name}/delivered"):
            yield self._delivered(series)
        if self._job.wants(f"{name}/proved"):
            yield self._proved(series)
        if _HERE not in series.acts_on or series.name not in EFFECT_BY:
            if self._job.wants(f"{name}/effect"):
                yield Case(
                    f"{name}/effect",
                    Outcome.NOT_RUN,
                    _no_effect(series),
                    tuple(sorted({*series.acts_on} - {_HERE})) or ("sm121",),
                )
        elif self._plan.ablate and self._job.wants(f"{name}/missed"):
            yield self._missed(series)

    def _delivered(self, series: Series) -> Case:
        name = f"serve/series/{series.name}/delivered"
        wanted = patches.delivery(self._stores, series)
        if not wanted.carried:
            return Case(name, Outcome.NOT_RUN, "a CPU's server does not load what its patches change", ("sm121",))
        began = time.monotonic()
        try:
            patches.check(self._installed(self._stores.stack), wanted)
        except Wrong as wrong:
            return Case(name, Outcome.FAILED, str(wrong), (_HERE,), seconds=time.monotonic() - began)
        return Case(name, Outcome.PASSED, "", (_HERE,), {"files": float(len(wanted.carried))}, seconds=time.monotonic() - began)

    def _proved(self, series: Series) -> Case:
        """Prove a series; runs with the same inputs are not repeated."""
        case = Case(f"serve/series/{series.name}/proved", Outcome.PASSED, needs=(_HERE,))
        if not self._plan.prove:
            return replace(case, outcome=Outcome.NOT_RUN, why="left out by --no-prove: see `stack prove`")
        if not any(path.endswith(".py") for path in series.proves):
            return replace(case, outcome=Outcome.NOT_RUN, why="the series names no proof")
        self._job.step(f"proving {series.name}", 0, None)
        began = time.monotonic()
        wanted = series_proofs.Asked((series.name,))
        with Runner(self._stores) as runner:
            proved = list(series_proofs.verdicts(runner, wanted))
            kept = list(series_proofs.kept(runner, wanted))
        case = replace(case, seconds=time.monotonic() - began)
        unsound = [f"{one.ref.path}: {one.with_patch.reason or one.without.reason}" for one in proved if not one.sound]
        unsound += [f"{one.address}: {one.here.reason or one.before.reason}" for one in kept if not one.sound]
        if unsound:
            return replace(case, outcome=Outcome.FAILED, why="\n".join(unsound))
        return replace(case, measured={"patches": float(len(proved)), "merged upstream": float(len(kept))})

    def _missed(self, series: Series) -> Case:
        """Serve without the series: its effect has to be missed."""
        case = Case(f"serve/series/{series.name}/missed", Outcome.PASSED, needs=(_HERE,))
        recipe = next((one for one in self._plan.recipes if one.name == EFFECT_BY[series.name]), None)
        if recipe is None:
            return replace(case, outcome=Outcome.NOT_RUN, why=f"recipe {EFFECT_BY[series.name]} was not asked for")
        missing = sorted({*recipe.flags} - self._flags)
        if missing:
            why = f"the CPU has no {' and no '.join(missing)}"
            return replace(case, outcome=Outcome.NOT_RUN, why=why, needs=_needs(recipe))
        began = time.monotonic()
        try:
            found = self._seen_without(series, recipe)
        except StackError as failed:
            return replace(case, outcome=Outcome.FAILED, why=f"what is missed cannot be seen: {failed}")
        case = replace(case, seconds=time.monotonic() - began)
        still = [name for name, how in found.items() if not how]
        if still:
            return replace(case, outcome=Outcome.FAILED, why=f"without the series this still holds: {', '.join(still)}")
        return replace(case, measured=found)

    def _seen_without(self, series: Series, recipe: Recipe) -> dict[str, float | str]:
        """How each effect of a series is missed without it; empty where it is not."""
        effects = checks.EFFECTS.get(series.name, {})
        try:
            with self._running(recipe, patches.without(self._stores.stack, series.name)) as running:
                asked = Asked(
                    Talk(running.url, running.model), recipe, running.log, self._tokens, digest.of(self._stores.stack)
                )
                return {name: _failure(effect, asked) for name, effect in effects.items()} or {"starts": ""}
        except NotServing as failed:
            expected = REFUSED.get(series.name)
            if expected is None or expected not in str(failed):
                raise StackError(f"the server without {series.name} does not start: {failed}") from failed
            return {"starts": expected}

    @contextmanager
    def _running(self, recipe: Recipe, stack: Stack) -> Iterator[Running]:
        """A server with a stack's patches; or the one that was named."""
        if self._plan.url is not None:
            yield _named(self._plan.url)
            return
        installed, model = self._installed(stack), self._material.model(recipe.model)
        with tempfile.TemporaryDirectory(prefix="stack-serve-") as work:

            def tell(step: str) -> None:
                self._job.step(f"{recipe.name}: {step}", 0, None)

            with server.serving(installed, model, recipe.arguments, recipe.environment, Path(work), LONGEST, tell) as running:
                yield running

    def _installed(self, stack: Stack) -> Packages:
        if self._plan.inside is not None:
            return self._plan.inside
        known = digest.of(stack)
        if known not in self._packages:
            self._packages[known] = self._material.installed(self._wheel(stack))
        return self._packages[known]

    @functools.cached_property
    def _material(self) -> Material:
        return fixture_cache.prepare(self._stores.place.cache, lambda step: self._job.step(step, 0, None))

    @functools.cached_property
    def _tokens(self) -> Mapping[str, Sequence[int]]:
        return self._material.tokens()

    @functools.cached_property
    def _reference(self) -> Mapping[str, Any]:
        return self._material.reference(self._tokens)


def _named(url: str) -> Running:
    """A server that is not ours, by the name of the first model that it lists."""
    try:
        page = Talk(url, "").get("/v1/models")
    except Wrong as failed:
        raise StackError(f"no server of an OpenAI API answers at {url}: {failed.problem}", "check --url") from failed
    try:
        return Running(url, str(page["data"][0]["id"]), lambda: "")
    except (KeyError, IndexError, TypeError) as odd:
        raise StackError(f"the server at {url} lists no model", "check --url") from odd


def _taken(check: Callable[[Asked], Measured | Judged], asked: Asked) -> Measured | Judged:
    """What a check finds.

    Raises:
        Wrong: an answer is not what it has to be, or not even of its form.

    """
    with asked.talk.taken():
        return check(asked)


def _failure(effect: Callable[[Asked], Measured], asked: Asked) -> str:
    try:
        _taken(effect, asked)
    except Wrong as wrong:
        return wrong.problem
    return ""


def _why(problem: str, running: Running) -> str:
    last = running.last()
    return f"{problem}\nlast lines of the log:\n{last}" if last else problem


def _name(recipe: Recipe, name: str) -> str:
    return f"serve/{recipe.name}/{name}"


def effect_name(series: str, name: str) -> str:
    """Name the case in which an effect of a series is seen."""
    return f"serve/series/{series}/effect/{name}"


def _needs(recipe: Recipe) -> tuple[str, ...]:
    return () if not recipe.is_ours else (_HERE, *recipe.flags)


def _not_run(name: str, why: str, recipe: Recipe) -> Case:
    return Case(name, Outcome.NOT_RUN, why, _needs(recipe))


def _no_effect(series: Series) -> str:
    needs = [one for one in series.acts_on if one != _HERE]
    if needs:
        return f"effect not run here: needs {' or '.join(needs)}"
    return "effect not run here: a CPU's server does not load what its patches change"
