# SPDX-License-Identifier: Apache-2.0
"""What differs between two verdicts: what they are of, and how their cases ended."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from stack.model.verdict import Case, Machine, Outcome, Verdict


class Way(StrEnum):
    """What became of a case: a loss needs a person."""

    LOST = "lost"
    WON = "won"
    OTHER = "other"
    NUMBERS = "numbers"


@dataclass(frozen=True, slots=True)
class Change:
    """A case that differs; None where a verdict does not have it."""

    name: str
    way: Way
    before: Case | None
    after: Case | None

    def numbers(self) -> Iterator[tuple[str, float | str | None, float | str | None]]:
        """What was measured otherwise: name, before, after."""
        if self.before is None or self.after is None:
            return
        for name in sorted({*self.before.measured, *self.after.measured}):
            values = self.before.measured.get(name), self.after.measured.get(name)
            if values[0] != values[1]:
                yield name, *values


@dataclass(frozen=True, slots=True)
class Difference:
    """`subject`: what the verdicts are of, where that differs (name: before, after); `cases`: losses first."""

    subject: Mapping[str, tuple[str, str]]
    cases: tuple[Change, ...]

    @property
    def lost(self) -> bool:
        """Whether something that passed passes no more."""
        return any(one.way is Way.LOST for one in self.cases)


def between(before: Verdict, after: Verdict) -> Difference:
    """What differs from one verdict to another."""
    was, now = _subject(before), _subject(after)
    subject = {name: (was.get(name, "-"), now.get(name, "-")) for name in {**was, **now} if was.get(name) != now.get(name)}
    old = {case.name: case for case in before.cases}
    new = {case.name: case for case in after.cases}
    changes = [one for name in {**old, **new} if (one := _change(name, old.get(name), new.get(name))) is not None]
    return Difference(subject, tuple(sorted(changes, key=lambda one: list(Way).index(one.way))))


def _change(name: str, before: Case | None, after: Case | None) -> Change | None:
    passed = [case is not None and case.outcome is Outcome.PASSED for case in (before, after)]
    outcomes = [case.outcome if case is not None else None for case in (before, after)]
    if passed[0] != passed[1]:
        return Change(name, Way.LOST if passed[0] else Way.WON, before, after)
    if outcomes[0] != outcomes[1]:
        return Change(name, Way.OTHER, before, after)
    change = Change(name, Way.NUMBERS, before, after)
    return change if any(change.numbers()) else None


def _subject(one: Verdict) -> dict[str, str]:
    return {
        "stack": one.stack,
        "image": one.image or "-",
        **{f"pin {name}": f"{pin.tag or ''} {pin.commit}".strip() for name, pin in one.pins.items()},
        **_machine(one.machine),
        **one.versions,
        "recipe": one.recipe or "-",
        "weights": one.weights or "-",
        "whole": "yes" if one.whole else "no",
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
