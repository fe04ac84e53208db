# SPDX-License-Identifier: Apache-2.0
"""Say when the nightly run last ran, from its runs at the forge and from the dates in its issues."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stack.forge.threads import Thread, ThreadState, WorkflowRun
from stack.watch import marks, plan
from stack.watch.issue_text import LATE

OVERDUE = 50
"""Hours after which a nightly run is overdue: forges start scheduled runs late, and leave some out."""
_FAILED = frozenset({"failure", "timed_out", "startup_failure", "cancelled"})


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of the workflow. `failures` counts those that failed since the last one that did not."""

    began: str | None
    hours: int | None
    conclusion: str
    failures: int

    @property
    def overdue(self) -> bool:
        """Return whether it has not run as it should."""
        return self.hours is None or self.hours > OVERDUE


@dataclass(frozen=True, slots=True)
class IssueAge:
    """The issue of an upstream, None if there is none yet, and the age of its heartbeat in days."""

    upstream: str
    number: int | None = None
    state: ThreadState | None = None
    written: str | None = None
    days: int | None = None

    @property
    def late(self) -> bool:
        """Return whether its heartbeat is too old."""
        return self.days is None or self.days >= LATE


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of the nightly run. `runs` is None if the repository has no such workflow."""

    runs: Runs | None
    issues: tuple[IssueAge, ...]

    @property
    def needs_person(self) -> bool:
        """Return whether it does not run, fails, or has not written for too long."""
        if self.runs is None or self.runs.overdue or self.runs.failures:
            return True
        return any(issue.late for issue in self.issues)


def standing(runs: Sequence[WorkflowRun] | None, issues: Sequence[Thread], upstreams: Sequence[str], now: datetime) -> Standing:
    """Judge the last runs, the newest first, and the issues of some upstreams."""
    return Standing(None if runs is None else _runs(runs, now), tuple(_issue(issues, upstream, now) for upstream in upstreams))


def _runs(runs: Sequence[WorkflowRun], now: datetime) -> Runs:
    ended = [run.conclusion for run in runs if run.conclusion]
    failures = next((number for number, how in enumerate(ended) if how not in _FAILED), len(ended))
    last = runs[0] if runs else None
    return Runs(
        last.began if last is not None else None,
        _hours(last.began, now) if last is not None else None,
        last.conclusion if last is not None else "",
        failures,
    )


def _hours(began: str, now: datetime) -> int | None:
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        return None
    return int((now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC))).total_seconds() // 3600)


def _issue(issues: Sequence[Thread], upstream: str, now: datetime) -> IssueAge:
    issue = plan.find_issue(issues, upstream)
    mark = marks.issue(issue.body, upstream) if issue is not None else None
    if issue is None or mark is None:
        return IssueAge(upstream)
    days = marks.days_since(mark, now.date())
    return IssueAge(upstream, issue.number, issue.state, mark.day if days is not None else None, days)
