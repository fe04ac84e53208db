# SPDX-License-Identifier: Apache-2.0
"""The linter's findings."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Whether a finding prevents the pull request from being opened."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A violated rule: the rule, the place (`title`, `description`, a commit's subject, `path:line`), the problem and its remedy."""

    rule: str
    severity: Severity
    place: str
    problem: str
    remedy: str = ""

    @property
    def blocks(self) -> bool:
        """Return whether it has to be fixed before the pull request is opened."""
        return self.severity is Severity.ERROR


def error(rule: str, place: str, problem: str, remedy: str = "") -> LintFinding:
    """Create a finding that blocks the pull request."""
    return LintFinding(rule, Severity.ERROR, place, problem, remedy)


def warning(rule: str, place: str, problem: str, remedy: str = "") -> LintFinding:
    """Create a finding that is shown only."""
    return LintFinding(rule, Severity.WARNING, place, problem, remedy)
