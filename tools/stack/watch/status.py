# SPDX-License-Identifier: Apache-2.0
"""Say when the nightly run last ran, from its runs at the forge and from the dates in its issues."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from stack.forge.threads import Thread, ThreadState, WorkflowRun
from stack.watch import marks
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
    """The issue of an upstream, None if there is none yet, and the days since it was last written.

    `renewed`: its date is renewed every week, since the forge does not show when the run last ran.
    """

    upstream: str
    number: int | None = None
    state: ThreadState | None = None
    written: str | None = None
    days: int | None = None
    renewed: bool = True

    @property
    def late(self) -> bool:
        """Return whether there is none, or its date is too old."""
        return self.days is None or (self.renewed and self.days >= LATE)


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


def standing(
    runs: Sequence[WorkflowRun] | None,
    found: Callable[[str], Thread | None],
    upstreams: Sequence[str],
    now: datetime,
) -> Standing:
    """Judge the last runs, the newest first, and the issues of some upstreams. `found` returns an upstream's issue."""
    judged = None if runs is None else _runs(runs, now)
    renewed = judged is None or judged.overdue
    return Standing(judged, tuple(_issue(found(upstream), upstream, now, renewed=renewed) for upstream in upstreams))


def _runs(runs: Sequence[WorkflowRun], now: datetime) -> Runs:
    ended = [run.conclusion for run in runs if run.conclusion]
    failures = next((number for number, how in enumerate(ended) if how not in _FAILED), len(ended))
    last = runs[0] if runs else None
    return Runs(
        last.began if last is not None else None,
        hours(last.began, now) if last is not None else None,
        last.conclusion if last is not None else "",
        failures,
    )


def hours(began: str, now: datetime) -> int | None:
    """Return the hours since a run began; None if its time cannot be read."""
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        return None
    return int((now - (moment if moment.tzinfo else moment.replace(tzinfo=UTC))).total_seconds() // 3600)


def _issue(issue: Thread | None, upstream: str, now: datetime, *, renewed: bool) -> IssueAge:
    mark = marks.issue(issue.body, upstream) if issue is not None else None
    if issue is None or mark is None:
        return IssueAge(upstream)
    days = marks.days_since(mark, now.date())
    return IssueAge(upstream, issue.number, issue.state, mark.day if days is not None else None, days, renewed)
