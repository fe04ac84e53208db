# SPDX-License-Identifier: Apache-2.0
"""The cases that this validation defines for a stack, and what a case that passed must have recorded.

A verdict says "passed" by itself. Here that is compared with its own numbers: with the bar that the case is defined with, and with what
was measured against it. So a forged verdict needs more than the right form, and one that contradicts itself is refused.
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
from stack.validation.bench import start
from stack.validation.bench.suite import AGAINST, measured, numbers
from stack.validation.decoding import figures
from stack.validation.kernels import Kernels
from stack.validation.pack import target_runner
from stack.validation.pack.recipes import COMPARISONS, RECIPES
from stack.validation.quality.choices import CHOICES
from stack.validation.serve import checks
from stack.validation.serve.suite import NUMBERS, effect_name

Check = Callable[[Case], Iterator[str]]
"""Says, a sentence each, what is wrong with a case that passed."""

_EXACT = 1e-6
"""Relative difference of numbers that are computed from each other."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One case: what it may need, and how what it has recorded is checked."""

    check: Check
    needs: frozenset[str] | None = None
    """None: any, since it depends on the server's machine."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """All cases of a validation: by name, and by how the names of those begin that depend on what is measured."""

    named: Mapping[str, Definition]
    beginning: Mapping[str, Definition]

    def has(self, name: str) -> bool:
        """Whether the validation defines a case of this name."""
        return name in self.named or any(name.startswith(start) for start in self.beginning)

    def problems(self, case: Case) -> Iterator[str]:
        """Say what is wrong with a case that passed."""
        definition = self.named.get(case.name) or next(
            (one for start, one in self.beginning.items() if case.name.startswith(start)), None
        )
        if definition is None:
            yield "this validation defines no such case"
            return
        if definition.needs is not None and not (
            set(case.needs) <= definition.needs and bool(case.needs) == bool(definition.needs)
        ):
            yield f"it needs {_listed(definition.needs)}, and says {_listed(case.needs)}"
        yield from definition.check(case)


def of(carried: Stack) -> Definitions:
    """Define the cases for a stack.

    Raises:
        StackError: numpy is missing, without which the numerics cannot say what they are.

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
            f"{missing.name} is missing, which names the cases of the kernels", f"install {missing.name}"
        ) from missing
    checked: dict[str, Definition] = {}
    for one in cases.everything():
        if isinstance(one, Sanitized):
            check = _none("errors", "errors of the planted fault")
        elif isinstance(one, cases.Same):
            check = _none("differing", "differing in the nearest wrong output")
        elif isinstance(one, cases.BesideIdeal):
            check = _distance(one.bar, "rel_l2 of an ideal kernel", cases.BFLOAT16_BAR)
        else:
            check = _distance(one.bar)
        needs = ("sm90",) if isinstance(one, Sanitized) and not one.needs else one.needs
        checked[one.name] = Definition(check, frozenset(needs))
    return checked


def _distance(bar: float, ideal: str = "", most: float = math.inf) -> Check:
    """An output's distance from a reference; `ideal` names the distance of an ideal kernel, which the bar is a multiple of."""

    def check(case: Case) -> Iterator[str]:
        unit = _number(case, ideal) if ideal else 1.0
        if not 0 < unit <= most:
            yield f"{ideal} is {unit:g}, and has to be above 0 and at most {most:g}"
        yield from _bar(case, bar * unit)
        yield from _at_most(case, "rel_l2", bar * unit)
        yield from _at_most(case, "lean", _LEAN)
        excess = max(_number(case, "rel_l2") / (bar * unit) if unit else math.nan, _number(case, "lean") / _LEAN)
        if excess and not _alike(case.margins.get("good", math.nan), 1 / excess):
            yield f"its margin good is {case.margins.get('good')}, what it has measured gives {1 / excess:g}"
        yield from _at_least(case.margins, "nearest wrong output", 1)

    return check


_LEAN = 0.5
"""`numerics.judging.LEAN_BAR`, which takes numpy to import; a test compares them."""


def _none(what: str, wrong: str) -> Check:
    """Nothing of `what` may be there, and something in what is known to be wrong."""

    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, 0)
        yield from _at_most(case, what, 0)
        yield from _at_least(case.margins, wrong, 1)

    return check


def _compiled(carried: Stack) -> dict[str, Definition]:
    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, None)
        yield from (f"it does not say its {what}" for what in ("compiler", "unit") if not case.measured.get(what))

    kernels = Kernels(carried, Path())
    return {name: Definition(check, frozenset({"cpu"})) for name in kernels.compiled_names()}


def _ours(carried: Stack, stack: Sha256) -> dict[str, Definition]:
    """Servers by recipe, and what is seen of each series."""
    found: dict[str, Definition] = {}
    for recipe in map(recipes.load, recipes.known()):
        needs = frozenset({"cpu", *recipe.flags}) if recipe.is_ours else frozenset()
        names = ["starts", *checks.CHECKS] if recipe.is_ours else [*checks.GENERAL]
        found |= {f"serve/{recipe.name}/{name}": Definition(_without_bar, needs) for name in names}
        found[f"serve/{recipe.name}/version"] = Definition(_version(stack), needs)
        if recipe.bar is not None:
            found |= {f"serve/{recipe.name}/{name}": Definition(_likely(recipe.bar), needs) for name in NUMBERS}
    for series in carried.series:
        names = [f"serve/series/{series.name}/{name}" for name in ("delivered", "proved", "missed")]
        names += [effect_name(series.name, name) for name in checks.EFFECTS.get(series.name, ())]
        found |= dict.fromkeys(names, Definition(_without_bar))
    return found


def _likely(bar: Bar) -> Check:
    """How far log-probabilities may be off, and that the bar would notice each fault."""

    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, bar.at)
        yield from _at_most(case, f"{bar.measure} difference", bar.at)
        yield from (f"its margin {name} is {value:g}, below 1" for name, value in case.margins.items() if not value >= 1)

    return check


def _packed(stack: Sha256) -> dict[str, Definition]:
    """Cases of a GPU machine's archive: servers, their speeds, and goals of speed."""
    found = {name: Definition(_without_bar, _GPU) for recipe in RECIPES for name in target_runner.case_names(recipe)}
    found |= {f"serve/{recipe.name}/version": Definition(_version(stack), _GPU) for recipe in RECIPES}
    found[f"{target_runner.KERNELS}/all"] = Definition(_without_bar, _GPU)
    found |= {
        target_runner.goal_name(goal.name): Definition(_least("found", goal.least), _GPU) for goal in figures.goals((), 1.0)
    }
    for comparison in COMPARISONS:
        for kind, least in comparison.least.items():
            names = target_runner.comparison_names(comparison, kind)
            found |= dict.fromkeys(names, Definition(_least("ratio", least), _GPU))
    return found


def _least(what: str, least: float) -> Check:
    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, least)
        yield from _at_least(case.measured, what, least)

    return check


def _benches(stack: Sha256) -> dict[str, Definition]:
    return {start.OF_STACK: Definition(_version(stack))}


def _speeds(case: Case) -> Iterator[str]:
    """The means are those of the runs, and no run took no time."""
    yield from _bar(case, None)
    try:
        one = measured(case)
        again = numbers(one) if one is not None else {}
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
        yield f"its ratio is {_number(case, 'ratio'):g}, {ours:g} and {theirs:g} tokens a second give another"
    if not _number(case, "high") >= 1:
        yield f"it is at most {_number(case, 'high'):g} times as fast, which is worse"


def _qualities(stack: Sha256) -> dict[str, Definition]:
    def differs(case: Case) -> Iterator[str]:
        if case.bar is None or not _number(case, "KL") < case.bar:
            yield f"KL is {_number(case, 'KL'):g}, and has to be below {case.bar}"
        if not _number(case, "top-1 agreement") > _number(case, "top-1 agreement of a wrong server"):
            yield "its top-1 agreement is no higher than that of a wrong server"

    found: dict[str, Definition] = {"quality/recorded/bf16": Definition(_version(stack, required=False))}
    for choice in CHOICES:
        found[f"quality/{choice.name}"] = Definition(differs)
        found[f"quality/recorded/{choice.name}"] = Definition(_version(stack, required=False))
    return found


def _version(stack: Sha256, *, required: bool = True) -> Check:
    """A server that names the stack in its version; one that cannot say it, where that is not `required`."""

    def check(case: Case) -> Iterator[str]:
        yield from _bar(case, None)
        said = case.measured.get("version")
        if said is None and not required:
            return
        found = server_version_check.label(str(said))
        if found is None or not stack.startswith(found):
            yield f"its server was {said!r}, and not of this stack ({stack[:8]})"

    return check


def _without_bar(case: Case) -> Iterator[str]:
    yield from _bar(case, None)


def _bar(case: Case, bar: float | None) -> Iterator[str]:
    same = case.bar is None if bar is None else case.bar is not None and _alike(case.bar, bar)
    if not same:
        yield f"its bar is {_shown(case.bar)}, this validation's is {_shown(bar)}"


def _at_most(case: Case, name: str, most: float) -> Iterator[str]:
    # Written so that NaN, which is what is missing, fails.
    if not 0 <= _number(case, name) <= most:
        yield f"{name} is {_number(case, name):g}, and has to be from 0 to {most:g}"


def _at_least(values: Mapping[str, float | str], name: str, least: float) -> Iterator[str]:
    value = values.get(name, math.nan)
    if not (isinstance(value, int | float) and value >= least):
        yield f"{name} is {value}, and has to be at least {least:g}"


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
