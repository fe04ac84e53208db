# SPDX-License-Identifier: Apache-2.0
"""What the linter says."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether a pull request may be opened with it."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a pull request does not keep: where (`title`, `description`, a commit's subject, `path:line`), what, and what to do."""

    rule: str
    severity: Severity
    place: str
    problem: str
    remedy: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it has to be mended before the pull request is opened."""
        return self.severity is Severity.ERROR


def error(rule: str, place: str, problem: str, remedy: str = "") -> Finding:
    """A finding that blocks."""
    return Finding(rule, Severity.ERROR, place, problem, remedy)


def warning(rule: str, place: str, problem: str, remedy: str = "") -> Finding:
    """A finding that shows."""
    return Finding(rule, Severity.WARNING, place, problem, remedy)
