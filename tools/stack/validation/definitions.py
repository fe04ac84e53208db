# SPDX-License-Identifier: Apache-2.0
"""The cases that this validation defines for a stack, and the checks of a recorded case that passed.

A verdict claims that a case passed. These checks compare the claim with the case's own numbers: with the bar by which the case is
defined, and with the measured values. So a forged verdict must be consistent, and one that contradicts itself is refused.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy import recipes, server_version_check
from stack.deploy.recipes import Bar
from stack.model import digest
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case
from stack.validation import decode_goals
from stack.validation.bench import start
from stack.validation.bench.suite import AGAINST, measured, numbers
from stack.validation.kernels import Kernels
from stack.validation.pack import case_names
from stack.validation.pack.recipes import COMPARISONS, RECIPES
from stack.validation.quality.choices import CHOICES
from stack.validation.serve import checks
from stack.validation.serve.suite import NUMBERS, effect_name

Check = Callable[[Case], Iterator[str]]
"""Yields a sentence for each fault of a case that passed."""

_EXACT = 1e-6
"""Relative tolerance between numbers that are computed from each other."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One case: the needs that it may state, and the check of its record."""

    check: Check
    needs: frozenset[str] | None = None
    """None if any need is allowed, because it depends on the server's machine."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """All cases of a validation: by name, and by the beginning of names that depend on the measurement."""

    named: Mapping[str, Definition]
    beginning: Mapping[str, Definition]

    def has(self, name: str) -> bool:
        """Return whether the validation defines a case of this name."""
        return name in self.named or any(name.startswith(start) for start in self.beginning)

    def problems(self, case: Case) -> Iterator[str]:
        """Report the faults of a case that passed."""
        definition = self.named.get(case.name) or next(
            (one for start, one in self.beginning.items() if case.name.startswith(start)), None
        )
        if definition is None:
            yield "this validation defines no such case"
            return
        if definition.needs is not None and not (
            set(case.needs) <= definition.needs and bool(case.needs) == bool(definition.needs)
        ):
            yield f"it states the needs {_listed(case.needs)}, defined are {_listed(definition.needs)}"
        yield from definition.check(case)


def of(carried: Stack) -> Definitions:
    """List the cases for a stack.

    Raises:
        StackError: numpy is missing, without which the numerics cannot list their cases.

    """
    stack = digest.of(carried)
    named = {
        **_numerics(),
        **_compiled(carried),
        **_ours(carried, stack),
        **_packed(stack),
        **_benches(stack),
        **_qualities(stack),
    }
    against = Definition(_against)
    sizes = Definition(_speeds)
    return Definitions(MappingProxyType(named), MappingProxyType({AGAINST: against, "bench/pp": sizes}))


def _numerics() -> dict[str, Definition]:
    try:
        from stack.validation.numerics import cases  # noqa: PLC0415
        from stack.validation.numerics.sanitizing import Sanitized  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise StackError(
            f"{missing.name} is missing, which lists the cases of the kernels", f"install {missing.name}"
        ) from missing
    definitions: dict[str, Definition] = {}
    for case in cases.everything():
        if isinstance(case, Sanitized):
            check = _none("errors", "errors of the planted fault")
        elif isinstance(case, cases.Same):
            check = _none("differing", "differing in the nearest wrong output")
        elif isinstance(case, cases.BesideIdeal):
            check = _distance(case.bar, "rel_l2 of an ideal kernel", cases.BFLOAT16_BAR)
        else:
            check = _distance(case.bar)
        needs = ("sm90",) if isinstance(case, Sanitized) and not case.needs else case.needs
        definitions[case.name] = Definition(check, frozenset(needs))
    return definitions


def _distance(bar: float, ideal: str = "", most: float = math.inf) -> Check:
    """Check an output's distance from a reference; `ideal` names the distance of an ideal kernel, whose multiple the bar is."""

    def check(case: Case) -> Iterator[str]:
        unit = _number(case, ideal) if ideal else 1.0
        if not 0 < unit <= most:
            yield f"{ideal} is {unit:g}; it must be above 0 and at most {most:g}"
        yield from _bar(case, bar * unit)
        yield from _at_most(case, "rel_l2", bar * unit)
        yield from _at_most(case, "lean", _LEAN)
        excess = max(_number(case, "rel_l2") / (bar * unit) if unit else math.nan, _number(case, "lean") / _LEAN)
        if excess and not _alike(case.margins.get("good", math.nan), 1 / excess):
            yield f"its margin good is {case.margins.get('good')}, its measurements give {1 / excess:g}"
        yield from _at_least(case.margins, "nearest wrong output", 1)

    return check


_LEAN = 0.5
"""Equals `numerics.judging.LEAN_BAR`, which is not imported because it needs numpy. A test compares them."""


def _none(what: str, wrong: str) -> Check:
    """Check that no `what` was counted, and that the known wrong output has some."""

    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, 0)
        yield from _at_most(case, what, 0)
        yield from _at_least(case.margins, wrong, 1)

    return check


def _compiled(carried: Stack) -> dict[str, Definition]:
    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, None)
        yield from (f"it does not name its {what}" for what in ("compiler", "unit") if not case.measured.get(what))

    kernels = Kernels(carried, Path())
    return {name: Definition(check, frozenset({"cpu"})) for name in kernels.compiled_names()}


def _ours(carried: Stack, stack: Sha256) -> dict[str, Definition]:
    """Define the cases of the servers by recipe, and of the effects of each series."""
    cases: dict[str, Definition] = {}
    for recipe in map(recipes.load, recipes.known()):
        needs = frozenset({"cpu", *recipe.flags}) if recipe.is_ours else frozenset()
        names = ["starts", *checks.CHECKS] if recipe.is_ours else [*checks.GENERAL]
        cases |= {f"serve/{recipe.name}/{name}": Definition(_without_bar, needs) for name in names}
        cases[f"serve/{recipe.name}/version"] = Definition(_version(stack), needs)
        if recipe.bar is not None:
            cases |= {f"serve/{recipe.name}/{name}": Definition(_likely(recipe.bar), needs) for name in NUMBERS}
    for series in carried.series:
        names = [f"serve/series/{series.name}/{name}" for name in ("delivered", "proved", "missed")]
        names += [effect_name(series.name, name) for name in checks.EFFECTS.get(series.name, ())]
        cases |= dict.fromkeys(names, Definition(_without_bar))
    return cases


def _likely(bar: Bar) -> Check:
    """Check how far log-probabilities differ, and that the bar would notice each fault."""

    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, bar.at)
        yield from _at_most(case, f"{bar.measure} difference", bar.at)
        yield from (f"its margin {name} is {value:g}, below 1" for name, value in case.margins.items() if not value >= 1)

    return check


def _packed(stack: Sha256) -> dict[str, Definition]:
    """Define the cases of a GPU machine's archive: servers, their speeds, and goals of speed."""
    cases = {name: Definition(_without_bar, _GPU) for recipe in RECIPES for name in case_names.of_recipe(recipe)}
    cases |= {f"serve/{recipe.name}/version": Definition(_version(stack), _GPU) for recipe in RECIPES}
    cases[f"{case_names.KERNELS}/all"] = Definition(_without_bar, _GPU)
    cases[case_names.BANDWIDTH] = Definition(_without_bar, _GPU)
    cases |= {case_names.of_goal(goal.name): Definition(_least("found", goal.least), _GPU) for goal in decode_goals.GOALS}
    for comparison in COMPARISONS:
        for kind, least in comparison.least.items():
            names = case_names.of_comparison(comparison, kind)
            cases |= dict.fromkeys(names, Definition(_least("ratio", least), _GPU))
    return cases


def _least(what: str, least: float) -> Check:
    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, least)
        yield from _at_least(case.measured, what, least)

    return check


def _benches(stack: Sha256) -> dict[str, Definition]:
    return {start.OF_STACK: Definition(_version(stack))}


def _speeds(case: Case) -> Iterator[str]:
    """Check that the means are those of the recorded runs, and that all speeds are above 0."""
    yield from _bar(case, None)
    try:
        runs = measured(case)
        again = numbers(runs) if runs is not None else {}
    except (KeyError, ValueError):
        again = {}
    if not again:
        yield "it does not have the runs of each number"
    for name, value in again.items():
        # Means are kept to three decimals, runs to six digits.
        if isinstance(value, float) and not math.isclose(_number(case, name), value, rel_tol=1e-3, abs_tol=1e-3):
            yield f"{name} is {_number(case, name):g}, its runs give {value:g}"
    yield from (f"{name} is not above 0" for name in ("prefill t/s", "decode t/s") if not _number(case, name) > 0)


def _against(case: Case) -> Iterator[str]:
    ours, theirs = _number(case, "ours t/s"), _number(case, "theirs t/s")
    yield from _bar(case, theirs)
    if not (theirs > 0 and _alike(_number(case, "ratio"), ours / theirs)):
        yield f"its ratio is {_number(case, 'ratio'):g}, but {ours:g} and {theirs:g} tokens a second give another"
    if not _number(case, "high") >= 1:
        yield f"it is at most {_number(case, 'high'):g} times as fast, which is worse"


def _qualities(stack: Sha256) -> dict[str, Definition]:
    def differs(case: Case) -> Iterator[str]:
        if case.bar is None or not _number(case, "KL") < case.bar:
            yield f"KL is {_number(case, 'KL'):g}; it must be below {case.bar}"
        if not _number(case, "top-1 agreement") > _number(case, "top-1 agreement of a wrong server"):
            yield "its top-1 agreement is no higher than that of a wrong server"

    cases: dict[str, Definition] = {"quality/recorded/bf16": Definition(_version(stack, required=False))}
    for choice in CHOICES:
        cases[f"quality/{choice.name}"] = Definition(differs)
        cases[f"quality/recorded/{choice.name}"] = Definition(_version(stack, required=False))
    return cases


def _version(stack: Sha256, *, required: bool = True) -> Check:
    """Check that the server's version names the stack; the version may be missing unless it is `required`."""

    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, None)
        version = case.measured.get("version")
        if version is None and not required:
            return
        label = server_version_check.label(str(version))
        if label is None or not stack.startswith(label):
            yield f"its server was {version!r}, which is not of this stack ({stack[:8]})"

    return check


def _without_bar(case: Case) -> Iterator[str]:
    yield from _bar(case, None)


def _bar(case: Case, bar: float | None) -> Iterator[str]:
    same = case.bar is None if bar is None else case.bar is not None and _alike(case.bar, bar)
    if not same:
        yield f"its bar is {_shown(case.bar)}, this validation's is {_shown(bar)}"


def _at_most(case: Case, name: str, most: float) -> Iterator[str]:
    # Written so that NaN, which stands for a missing number, fails.
    if not 0 <= _number(case, name) <= most:
        yield f"{name} is {_number(case, name):g}; it must be from 0 to {most:g}"


def _at_least(values: Mapping[str, float | str], name: str, least: float) -> Iterator[str]:
    value = values.get(name, math.nan)
    if not (isinstance(value, int | float) and value >= least):
        yield f"{name} is {value}; it must be at least {least:g}"


def _number(case: Case, name: str) -> float:
    value = case.measured.get(name, math.nan)
    return float(value) if isinstance(value, int | float) else math.nan


def _alike(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_EXACT)


def _shown(bar: float | None) -> str:
    return "none" if bar is None else f"{bar:g}"


def _listed(names: "frozenset[str] | tuple[str, ...]") -> str:
    return ", ".join(sorted(names)) or "nothing"


_GPU = frozenset({"sm80", "sm90", "sm100", "sm120", "sm121"})
