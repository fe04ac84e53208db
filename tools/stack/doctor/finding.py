# SPDX-License-Identifier: Apache-2.0
"""Results of checks: severity, place, and what to do; and how checks are run."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")
KEPT = "\0"
"""Begins the new text of an edit that adds to the old one."""
_PLAIN = re.compile(r"[\w./:=,@%+-]*")
"""Values that mean the same in every file, with quotes and without."""
_FLAG = re.compile(r"-(?![0-9.])")
_JSON = re.compile(r"\{[\w./:=,@%+\"{}\[\] -]*\}")


class Severity(StrEnum):
    """Severity of a finding. Only WRONG makes the doctor exit with 1."""

    WRONG = "wrong"
    NOTE = "worth knowing"
    FINE = "fine"
    UNKNOWN = "could not tell"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a file that mends a finding: a flag or variable `old` becomes `new`; an empty `new` takes it out.

    An empty `old` takes the whole line out; a `new` that begins with `KEPT` is added behind `old`.
    """

    line: int
    old: str
    new: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it writes a name with a plain value: anything else would have to be quoted as the file has it."""
        words = self.new.removeprefix(KEPT).strip()
        name, _, value = words.partition(" ") if words.startswith("-") else words.partition("=")
        if _FLAG.match(value) or _FLAG.match(name.partition("=")[2]):
            return False  # a value that is a flag of its own would be one that nobody asked for
        return _PLAIN.fullmatch(name) is not None and (_PLAIN.fullmatch(value) or _JSON.fullmatch(value)) is not None


@dataclass(frozen=True, slots=True)
class Found:
    """A check's result: one sentence, the fix (empty if none is needed), and the line that it is about.

    `rule`: the id of the rule behind it; `sure`: how sure that rule is; `because`: the lines that speak for it; `evidence`: public
    reports; `edits`: what mends it in the file. `title`, `quote` and `means`: the same as `what` in parts, for a line of a log: what is
    wrong, the quoted line, and what it means. `within`: the check whose first fault tells this fault, too, where it has one.
    """

    severity: Severity
    what: str
    fix: str = ""
    line: int | None = None
    rule: str = ""
    sure: str = ""
    because: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    title: str = ""
    quote: str = ""
    means: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A check's result, and where it applies: the machine, a file, or a server's address."""

    check: str
    where: str
    found: Found

    @property
    def severity(self) -> Severity:
        """Severity of the result."""
        return self.found.severity

    @property
    def place(self) -> str:
        """The place in the form that editors read."""
        return f"{self.where}:{self.found.line}" if self.found.line else self.where


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """A check with its name. `fine` is the sentence for a check that found nothing."""

    name: str
    fine: str
    look: Callable[[T], Iterable[Found]]


def run(checks: Iterable[Check[T]], subject: T, where: str) -> Iterator[Finding]:
    """Run checks on a subject; each yields at least one finding."""
    for check in checks:
        results = tuple(check.look(subject)) or (Found(Severity.FINE, check.fine),)
        yield from (Finding(check.name, where, result) for result in results)


def wrong(what: str, fix: str, line: int | None = None, edits: tuple[Edit, ...] = ()) -> Found:
    """Report a fault: it does not work, or not as it should."""
    return Found(Severity.WRONG, what, fix, line, edits=edits)


def note(what: str, fix: str = "", line: int | None = None, edits: tuple[Edit, ...] = ()) -> Found:
    """Report a surprise: it works, but a user should know."""
    return Found(Severity.NOTE, what, fix, line, edits=edits)


def fine(what: str, line: int | None = None) -> Found:
    """Report that something is in order."""
    return Found(Severity.FINE, what, "", line)


def unknown(what: str, fix: str = "", line: int | None = None) -> Found:
    """Report that something could not be checked."""
    return Found(Severity.UNKNOWN, what, fix, line)
