# SPDX-License-Identifier: Apache-2.0
"""Differences between two verdicts: in their subjects and in the outcomes of their cases."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from stack.model.verdict import Case, Machine, Outcome, Verdict


class ChangeKind(StrEnum):
    """How a case changed; a lost one needs a person."""

    LOST = "lost"
    WON = "won"
    OTHER = "other"
    NUMBERS = "numbers"


@dataclass(frozen=True, slots=True)
class Change:
    """A case that differs; `before` or `after` is None if that verdict does not have it."""

    name: str
    way: ChangeKind
    before: Case | None
    after: Case | None

    def numbers(self) -> Iterator[tuple[str, float | str | None, float | str | None]]:
        """Yield the name, old value and new value of each measurement that differs."""
        if self.before is None or self.after is None:
            return
        for name in sorted({*self.before.measured, *self.after.measured}):
            values = self.before.measured.get(name), self.after.measured.get(name)
            if values[0] != values[1]:
                yield name, *values


@dataclass(frozen=True, slots=True)
class Difference:
    """`subject`: differing properties of the verdicts (name: before, after); `cases`: changed cases, lost ones first."""

    subject: Mapping[str, tuple[str, str]]
    cases: tuple[Change, ...]

    @property
    def lost(self) -> bool:
        """Whether a case that passed no longer passes."""
        return any(case.way is ChangeKind.LOST for case in self.cases)


def between(before: Verdict, after: Verdict) -> Difference:
    """Compare two verdicts."""
    was, now = _subject(before), _subject(after)
    subject = {name: (was.get(name, "-"), now.get(name, "-")) for name in {**was, **now} if was.get(name) != now.get(name)}
    old = {case.name: case for case in before.cases}
    new = {case.name: case for case in after.cases}
    changes = [change for name in {**old, **new} if (change := _change(name, old.get(name), new.get(name))) is not None]
    return Difference(subject, tuple(sorted(changes, key=lambda change: list(ChangeKind).index(change.way))))


def _change(name: str, before: Case | None, after: Case | None) -> Change | None:
    passed = [case is not None and case.outcome is Outcome.PASSED for case in (before, after)]
    outcomes = [case.outcome if case is not None else None for case in (before, after)]
    if passed[0] != passed[1]:
        return Change(name, ChangeKind.LOST if passed[0] else ChangeKind.WON, before, after)
    if outcomes[0] != outcomes[1]:
        return Change(name, ChangeKind.OTHER, before, after)
    change = Change(name, ChangeKind.NUMBERS, before, after)
    return change if any(change.numbers()) else None


def _subject(verdict: Verdict) -> dict[str, str]:
    return {
        "stack": verdict.stack,
        "image": verdict.image or "-",
        **{f"pin {name}": f"{pin.tag or ''} {pin.commit}".strip() for name, pin in verdict.pins.items()},
        **_machine(verdict.machine),
        **verdict.versions,
        "recipe": verdict.recipe or "-",
        "weights": verdict.weights or "-",
        "whole": "yes" if verdict.whole else "no",
    }


def _machine(machine: Machine) -> dict[str, str]:
    return {
        "system": f"{machine.system} {machine.architecture}",
        "cpu": machine.cpu,
        "cores": str(machine.cores),
        "memory": f"{machine.memory / 1e9:.0f} GB",
        "cpu flags": " ".join(machine.flags),
        "gpus": ", ".join(f"{gpu.name} ({gpu.capability}), driver {gpu.driver}" for gpu in machine.gpus) or "-",
        "cuda": machine.cuda or "-",
    }
