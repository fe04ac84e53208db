# SPDX-License-Identifier: Apache-2.0
"""A remark about the owner's machine: what is wrong, what shows it, and the commands that mend it."""

from collections.abc import Iterable
from dataclasses import dataclass

from stack.doctor.finding import Severity

__all__ = ["Remark", "Severity", "fine", "note", "to_mend", "unknown", "wrong"]


@dataclass(frozen=True, slots=True)
class Remark:
    """The result of one check.

    `shown_by`: the values that were read; `commands`: what mends it, in order, to be copied; `advice`: what to do where no command helps,
    or when to use them; `sources`: the public reports behind the claim, as REPOSITORY#NUMBER or an address.
    """

    check: str
    severity: Severity
    what: str
    shown_by: str = ""
    commands: tuple[str, ...] = ()
    advice: str = ""
    sources: tuple[str, ...] = ()


def wrong(check: str, what: str, *commands: str, shown_by: str = "", advice: str = "", sources: tuple[str, ...] = ()) -> Remark:
    """Report something that has to be mended before the server can run."""
    return Remark(check, Severity.WRONG, what, shown_by, commands, advice, sources)


def note(check: str, what: str, *commands: str, shown_by: str = "", advice: str = "", sources: tuple[str, ...] = ()) -> Remark:
    """Report something that costs speed or may fail later."""
    return Remark(check, Severity.NOTE, what, shown_by, commands, advice, sources)


def fine(check: str, what: str) -> Remark:
    """Report that something is in order."""
    return Remark(check, Severity.FINE, what)


def unknown(check: str, what: str, *commands: str, advice: str = "") -> Remark:
    """Report that something could not be read."""
    return Remark(check, Severity.UNKNOWN, what, "", commands, advice)


def to_mend(remarks: Iterable[Remark]) -> int:
    """Count the remarks that have to be mended first."""
    return sum(remark.severity is Severity.WRONG for remark in remarks)
