# SPDX-License-Identifier: Apache-2.0
"""What a check found: how bad it is, where, and what to do; and how checks are run."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Severity(StrEnum):
    """How bad it is. Only what is wrong makes the doctor exit with 1."""

    WRONG = "wrong"
    NOTE = "worth knowing"
    FINE = "fine"
    UNKNOWN = "could not tell"


@dataclass(frozen=True, slots=True)
class Found:
    """What a check says: one sentence, the fix (empty where nothing is to be done), and the line that it is about."""

    severity: Severity
    what: str
    fix: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and where: in the machine, a file, or a server by its address."""

    check: str
    where: str
    found: Found

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.found.severity

    @property
    def place(self) -> str:
        """Where, as editors read it."""
        return f"{self.where}:{self.found.line}" if self.found.line else self.where


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """A check by its name. `fine`: what holds where it finds nothing."""

    name: str
    fine: str
    look: Callable[[T], Iterable[Found]]


def run(checks: Iterable[Check[T]], subject: T, where: str) -> Iterator[Finding]:
    """What checks say of a subject; each says something."""
    for check in checks:
        said = tuple(check.look(subject)) or (Found(Severity.FINE, check.fine),)
        yield from (Finding(check.name, where, one) for one in said)


def wrong(what: str, fix: str, line: int | None = None) -> Found:
    """It does not work, or not as it should."""
    return Found(Severity.WRONG, what, fix, line)


def note(what: str, fix: str = "", line: int | None = None) -> Found:
    """It works, and may surprise."""
    return Found(Severity.NOTE, what, fix, line)


def fine(what: str, line: int | None = None) -> Found:
    """It is as it should be."""
    return Found(Severity.FINE, what, "", line)


def unknown(what: str, fix: str = "", line: int | None = None) -> Found:
    """It could not be looked at."""
    return Found(Severity.UNKNOWN, what, fix, line)
