# SPDX-License-Identifier: Apache-2.0
"""The suite `serve`: servers by recipe, their checks, and the effects of the series."""

import datetime
import functools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
from stack.validation.serve import checks, dates, fixture_cache, numbers, patches, prompts, server
from stack.validation.serve.checks import Measured, ServerUnderTest
from stack.validation.serve.client import Talk, Wrong
from stack.validation.serve.fixture_cache import Material
from stack.validation.serve.numbers import Judged
from stack.validation.serve.server import NotServing, Running
from stack.validation.suite import Job

LONGEST = 900.0
"""Seconds to wait for a server: more than ten times what a tiny model takes on an idle machine."""
EFFECT_BY = {"harmony": "cpu-fp32", "cpu-mxfp4": "cpu-mxfp4"}
"""The recipe whose server shows a series' effect on a CPU."""
REFUSED = {"cpu-mxfp4": "No MXFP4 MoE backend supports the deployment configuration"}
"""If a server does not start without a series, the log must have this line: another reason proves nothing."""
NUMBERS = {"log-probabilities": numbers.scores, "greedy": numbers.answers}
_HERE = "cpu"

Wheel = Callable[[Stack], Path]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the suite.

    `url`: a running server to check, in place of one that the suite starts; `key`: its API key. `inside`: an environment with the
    stack's packages (an image), in place of the validation's own environment with a wheel of the stack; cannot be combined with
    `ablate`. `ablate`: leave out each series that acts on this machine, and check that its effect is missing. `prove`: run the proofs
    of all series.
    """

    recipes: tuple[Recipe, ...]
    url: str | None = None
    key: str | None = field(default=None, repr=False, kw_only=True)
    inside: Packages | None = None
    ablate: bool = False
    prove: bool = True


def cases(job: Job, stores: Stores, wheel: Wheel, plan: ServeOptions) -> Iterator[Case]:
    """Run all cases of the suite, one after the other.

    Args:
        job: selects the cases.
        stores: of the stack under test.
        wheel: builds vLLM's wheel for the CPU with a stack's patches.
        plan: options of the suite.

    Raises:
        StackError: an input of servers or checks is not available.

    """
    suite = _Suite(job, stores, wheel, plan)
    for recipe in plan.recipes:
        yield from suite.recipe(recipe)
    if plan.url is None:
        for series in stores.stack.series:
            yield from suite.series(series)


def versions(stack: Stack, plan: ServeOptions) -> dict[str, str]:
    """Return the versions in our servers, by package; for a user's own server the case `version` reports it."""
    archives = {pin.upstream: pin.archive for pin in stack.pins if pin.archive is not None}
    if plan.url is not None or patches.SERVED not in archives:
        return {}
    if plan.inside is not None:
        return python_env.versions(plan.inside, "torch", patches.SERVED)
    return {"torch": fixture_cache.torch(), patches.SERVED: archives[patches.SERVED].version}


class _Suite:
    """One run of the suite; inputs that several cases share are built once."""

    def __init__(self, job: Job, stores: Stores, wheel: Wheel, plan: ServeOptions) -> None:
        self._job, self._stores, self._wheel, self._plan = job, stores, wheel, plan
        self._flags = frozenset(machine.here().flags)
        self._packages: dict[str, Packages] = {}
        self._encoded: dict[str, Mapping[str, Sequence[int]]] = {}
        self._references: dict[str, Mapping[str, Any]] = {}

    def recipe(self, recipe: Recipe) -> Iterator[Case]:
        """Run the cases of one recipe, with a server if one of them is wanted."""
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
                yield from self._checked(
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
        """List the cases of a recipe. If the server is not ours, its start and its log cannot be checked."""
        if not recipe.is_ours:
            return list(checks.GENERAL)
        if self._plan.url is not None:
            return [*(name for name in checks.CHECKS if name != "backends"), *NUMBERS]
        return ["starts", *checks.CHECKS, *NUMBERS]

    def _checked(
        self, recipe: Recipe, running: Running, names: Sequence[str], effects: Sequence[tuple[str, str]]
    ) -> Iterator[Case]:
        for place, name in enumerate(names):
            self._job.tell(f"{recipe.name}: {name}", place, len(names))
            tested = self._tested(recipe, running, self._stores.stack)
            yield self._case(_name(recipe, name), recipe, running, functools.partial(self._measured, name, tested))
        for series, name in effects:
            effect = checks.EFFECTS[series][name]
            tested = self._tested(recipe, running, self._stores.stack)
            yield self._case(effect_name(series, name), recipe, running, functools.partial(_taken, effect, tested))

    def _tested(self, recipe: Recipe, running: Running, stack: Stack) -> ServerUnderTest:
        """Return a server with the tokens of its prompts. A given server's date is read each time: it changes at midnight."""
        talk = Talk(running.url, running.model, key=self._plan.key)
        date = prompts.DATE
        if self._plan.url is not None:
            date = dates.used(talk, prompts.DATE if recipe.is_ours else datetime.date.today().isoformat())
        return ServerUnderTest(talk, recipe, running.log, self._tokens(date), digest.of(stack), date)

    def _measured(self, name: str, tested: ServerUnderTest) -> Measured | Judged:
        if name in NUMBERS:
            return _taken(functools.partial(NUMBERS[name], reference=self._reference(tested.date)), tested)
        return _taken((checks.GENERAL if not tested.recipe.is_ours else checks.CHECKS)[name], tested)

    def _case(self, name: str, recipe: Recipe, running: Running, run: Callable[[], Measured | Judged]) -> Case:
        began = time.monotonic()
        case = Case(name, Outcome.PASSED, needs=_needs(recipe))
        try:
            result = run()
        except Wrong as wrong:
            return replace(case, outcome=Outcome.FAILED, why=_why(str(wrong), running), seconds=time.monotonic() - began)
        case = replace(case, seconds=time.monotonic() - began)
        if not isinstance(result, Judged):
            return replace(case, measured=result)
        case = replace(case, measured=result.measured, margins=result.margins, bar=recipe.bar.at if recipe.bar else None)
        return replace(case, outcome=Outcome.FAILED, why=result.why) if result.why else case

    def series(self, series: Series) -> Iterator[Case]:
        """Check a series on this machine: it is delivered, its proofs hold, and its effect is missing without it."""
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
            return Case(name, Outcome.NOT_RUN, "a CPU's server does not load the files that its patches change", ("sm121",))
        began = time.monotonic()
        try:
            patches.check(self._installed(self._stores.stack), wanted)
        except Wrong as wrong:
            return Case(name, Outcome.FAILED, str(wrong), (_HERE,), seconds=time.monotonic() - began)
        return Case(name, Outcome.PASSED, "", (_HERE,), {"files": float(len(wanted.carried))}, seconds=time.monotonic() - began)

    def _proved(self, series: Series) -> Case:
        """Run the proofs of a series; kept results of unchanged inputs count."""
        case = Case(f"serve/series/{series.name}/proved", Outcome.PASSED, needs=(_HERE,))
        if not self._plan.prove:
            return replace(case, outcome=Outcome.NOT_RUN, why="left out by --no-prove: see `stack prove`")
        if not any(path.endswith(".py") for path in series.proves):
            return replace(case, outcome=Outcome.NOT_RUN, why="the series names no proof")
        self._job.tell(f"proving {series.name}")
        began = time.monotonic()
        wanted = series_proofs.ProofRequest((series.name,))
        with Runner(self._stores) as runner:
            proved = list(series_proofs.verdicts(runner, wanted))
            kept = list(series_proofs.kept(runner, wanted))
        case = replace(case, seconds=time.monotonic() - began)
        unsound = [
            f"{proof.ref.path}: {proof.with_patch.reason or proof.without.reason}" for proof in proved if not proof.sound
        ]
        unsound += [f"{proof.address}: {proof.here.reason or proof.before.reason}" for proof in kept if not proof.sound]
        if unsound:
            return replace(case, outcome=Outcome.FAILED, why="\n".join(unsound))
        return replace(case, measured={"patches": float(len(proved)), "merged upstream": float(len(kept))})

    def _missed(self, series: Series) -> Case:
        """Serve without the series, and check that its effect is missing."""
        case = Case(f"serve/series/{series.name}/missed", Outcome.PASSED, needs=(_HERE,))
        recipe = next((each for each in self._plan.recipes if each.name == EFFECT_BY[series.name]), None)
        if recipe is None:
            return replace(case, outcome=Outcome.NOT_RUN, why=f"recipe {EFFECT_BY[series.name]} was not selected")
        missing = sorted({*recipe.flags} - self._flags)
        if missing:
            why = f"the CPU has no {' and no '.join(missing)}"
            return replace(case, outcome=Outcome.NOT_RUN, why=why, needs=_needs(recipe))
        began = time.monotonic()
        try:
            missed = self._seen_without(series, recipe)
        except StackError as failed:
            return replace(case, outcome=Outcome.FAILED, why=f"it cannot be tested without the series: {failed}")
        case = replace(case, seconds=time.monotonic() - began)
        still = [name for name, how in missed.items() if not how]
        if still:
            return replace(case, outcome=Outcome.FAILED, why=f"without the series this still holds: {', '.join(still)}")
        return replace(case, measured=missed)

    def _seen_without(self, series: Series, recipe: Recipe) -> dict[str, float | str]:
        """Say for each effect of a series how it is missing without the series; empty if it is not missing."""
        effects = checks.EFFECTS.get(series.name, {})
        try:
            with self._running(recipe, patches.without(self._stores.stack, series.name)) as running:
                tested = self._tested(recipe, running, self._stores.stack)
                return {name: _failure(effect, tested) for name, effect in effects.items()} or {"starts": ""}
        except NotServing as failed:
            expected = REFUSED.get(series.name)
            if expected is None or expected not in str(failed):
                raise StackError(f"the server without {series.name} does not start: {failed}") from failed
            return {"starts": expected}

    @contextmanager
    def _running(self, recipe: Recipe, stack: Stack) -> Iterator[Running]:
        """Run a server with a stack's patches, or use the given one."""
        if self._plan.url is not None:
            yield _named(self._plan.url, self._plan.key)
            return
        installed, model = self._installed(stack), self._material.model(recipe.model)
        with tempfile.TemporaryDirectory(prefix="stack-serve-") as work:

            def tell(step: str, done: int = 0, total: int | None = None, /) -> None:
                self._job.tell(f"{recipe.name}: {step}", done, total)

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
        return fixture_cache.prepare(self._stores.place.cache, self._job.tell)

    def _tokens(self, date: str) -> Mapping[str, Sequence[int]]:
        if date not in self._encoded:
            self._encoded[date] = self._material.tokens(date)
        return self._encoded[date]

    def _reference(self, date: str) -> Mapping[str, Any]:
        if date not in self._references:
            self._references[date] = self._material.reference(self._tokens(date))
        return self._references[date]


def _named(url: str, key: str | None) -> Running:
    """Return a given server, with the name of the first model that it lists."""
    try:
        page = Talk(url, "", key=key).get("/v1/models")
    except Wrong as failed:
        raise StackError(f"no server of an OpenAI API answers at {url}: {failed.problem}", "check --url") from failed
    try:
        return Running(url, str(page["data"][0]["id"]), lambda: "")
    except (KeyError, IndexError, TypeError) as odd:
        raise StackError(f"the server at {url} lists no model", "check --url") from odd


def _taken(check: Callable[[ServerUnderTest], Measured | Judged], tested: ServerUnderTest) -> Measured | Judged:
    """Run a check; report an answer of a wrong form as Wrong.

    Raises:
        Wrong: an answer is not as it must be, or has a wrong form.

    """
    with tested.talk.taken():
        return check(tested)


def _failure(effect: Callable[[ServerUnderTest], Measured], tested: ServerUnderTest) -> str:
    try:
        _taken(effect, tested)
    except Wrong as wrong:
        return wrong.problem
    return ""


def _why(problem: str, running: Running) -> str:
    last = running.last()
    return f"{problem}\nlast lines of the log:\n{last}" if last else problem


def _name(recipe: Recipe, name: str) -> str:
    return f"serve/{recipe.name}/{name}"


def effect_name(series: str, name: str) -> str:
    """Name the case that shows an effect of a series."""
    return f"serve/series/{series}/effect/{name}"


def _needs(recipe: Recipe) -> tuple[str, ...]:
    return () if not recipe.is_ours else (_HERE, *recipe.flags)


def _not_run(name: str, why: str, recipe: Recipe) -> Case:
    return Case(name, Outcome.NOT_RUN, why, _needs(recipe))


def _no_effect(series: Series) -> str:
    needs = [each for each in series.acts_on if each != _HERE]
    if needs:
        return f"effect not run here: needs {' or '.join(needs)}"
    return "effect not run here: a CPU's server does not load the files that its patches change"
