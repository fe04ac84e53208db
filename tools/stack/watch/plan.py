# SPDX-License-Identifier: Apache-2.0
"""Plan the writes of a night from what the forge has: pure functions.

Any first part of a plan may be carried out, as when the run is killed: the next plan holds the rest. If a plan was carried out
completely, the next one for the same findings is empty.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from stack.forge.repositories import PullState
from stack.forge.threads import Comment, PullThread, Thread, ThreadState
from stack.watch import issue_text, marks, pull_text
from stack.watch.marks import IssueMark, PullMark
from stack.watch.night import CarriedRelease, Night
from stack.watch.writes import AddComment, EditIssue, EditPull, OpenIssue, OpenPull, PushBranch, RemoveLabel, Write

HOLD = "hold"
"""The label with which a person keeps an issue or a pull request from being changed."""
RETRY = "retry"
"""The label with which a person asks for everything once more, also what they had closed."""
LABEL = "stack-watch"
"""The label of the issues, by which they are found at once."""
RENEWED = 7
"""Days after which the date in an issue is written again although nothing has changed, if the forge shows no runs."""


@dataclass(frozen=True, slots=True)
class BranchTip:
    """The commit of our branch at the forge; `ours`: nobody else has added to it or changed it."""

    commit: str
    ours: bool


def find_issue(issues: Sequence[Thread], upstream: str, trusts: Callable[[str], bool]) -> Thread | None:
    """Return an upstream's issue: the oldest one with its mark, by an author who is trusted."""
    own = [thread for thread in issues if marks.issue(thread.body, upstream) is not None and trusts(thread.author)]
    return min(own, key=lambda thread: thread.number, default=None)


def for_issue(
    night: Night, issue: Thread | None, comments: Sequence[Comment], today: date, pull: str = "", page: str = ""
) -> tuple[Write, ...]:
    """Plan the writes to an upstream's issue.

    Args:
        night: the findings.
        issue: the upstream's issue as the forge has it, None if there is none.
        comments: the comments on it by accounts that are trusted.
        today: the day of the run, in UTC.
        pull: a sentence on each pull request.
        page: the address where the forge shows when the workflow ran; empty if it does not.

    """
    title = issue_text.title(night)
    if issue is None:
        # An issue cannot be opened as closed. Without an outcome in its mark, the next plan closes it.
        outcome = night.outcome if night.needs_person else ""
        mark = IssueMark(night.outcome, outcome, _content(night, pull, page), today.isoformat())
        return (OpenIssue(title, issue_text.body(night, mark, pull, page)),)
    if HOLD in issue.labels:
        return ()
    mark = marks.issue(issue.body, night.upstream) or IssueMark("", "", "", "")
    retry = RETRY in issue.labels
    state = _state(night, issue, changed=retry or mark.outcome != night.outcome)
    writes: list[Write] = []
    if (
        retry
        or state is not issue.state
        or title != issue.title
        or _is_outdated(mark, night, _content(night, pull, page), None if page else today)
    ):
        new = IssueMark(mark.opened, night.outcome, _content(night, pull, page), today.isoformat())
        writes.append(EditIssue(issue.number, title, issue_text.body(night, new, pull, page), state))
    if _announced(mark, comments) != night.outcome:
        writes.append(AddComment(issue.number, f"{marks.of_comment(night.outcome)}\n{issue_text.comment(night)}"))
    if retry:
        writes.append(RemoveLabel(issue.number, RETRY))
    return tuple(writes)


def for_pull(
    name: str, carried: CarriedRelease | None, tip: BranchTip | None, pulls: Sequence[PullThread]
) -> tuple[Write, ...]:
    """Plan the writes to a branch and its pull request.

    Args:
        name: what its mark names, see `marks.key`.
        carried: the stack on a newer release; None if there is none, so that an open pull request is out of date.
        tip: what the forge has in our branch, None if it has no such branch.
        pulls: the pull requests from that branch, the newest first.

    """
    own = [(pull, mark) for pull in pulls if (mark := marks.pull(pull.body, name)) is not None]
    live = next(((pull, mark) for pull, mark in own if pull.state.lives), None)
    if live is not None and HOLD in live[0].labels:
        return ()
    if carried is None:
        return _closing(live, tip)
    ended = [pull for pull, mark in own if not pull.state.lives and mark.release == carried.release]
    retried = [pull for pull in ended if RETRY in pull.labels]
    if live is None and ended and not retried:
        return ()  # a person has closed or merged it
    if tip is not None and not tip.ours:
        return ()  # it has a person's commits
    writes: list[Write] = []
    if tip is None or tip.commit != carried.commit:
        writes.append(PushBranch(carried.branch, carried.commit, None if tip is None else tip.commit))
    new = PullMark(carried.release, carried.content)
    title, body = pull_text.title(carried), pull_text.body(carried, new)
    if live is None:
        writes.append(OpenPull(carried.branch, carried.onto, title, body))
    elif live[1] != new or live[0].title != title or RETRY in live[0].labels:
        writes.append(EditPull(live[0], title, body))
    asked = [live[0]] if live is not None and RETRY in live[0].labels else []
    writes += [RemoveLabel(pull.number, RETRY, pull=True) for pull in (*asked, *retried)]
    return tuple(writes)


def pull_note(name: str, carried: CarriedRelease | None, tip: BranchTip | None, pulls: Sequence[PullThread]) -> str:
    """Say in one sentence what a pull request is about, for the issue; empty if there is none."""
    own = [(pull, mark) for pull in pulls if (mark := marks.pull(pull.body, name)) is not None]
    live = next(((pull, mark) for pull, mark in own if pull.state.lives), None)
    if live is None:
        declined = carried is not None and any(
            pull.state is PullState.CLOSED and mark.release == carried.release for pull, mark in own
        )
        return "The pull request for this release was closed. The label `retry` on it asks for a new one." if declined else ""
    held = " It has the label `hold`, so it is left alone." if HOLD in live[0].labels else ""
    theirs = " Its branch has commits of a person, so it is left alone." if tip is not None and not tip.ours else ""
    lane = name.partition("/")[2]
    what = f"lane {pull_text.name(lane)}" if lane else "the stack"
    shown = f"{live[0].shown[:1].upper()}{live[0].shown[1:]}"
    return f"{shown} carries {what} to {pull_text.name(live[1].release)}.{held or theirs}"


def _closing(live: tuple[PullThread, PullMark] | None, tip: BranchTip | None) -> tuple[Write, ...]:
    if live is None or (tip is not None and not tip.ours):
        return ()
    return (EditPull(live[0], live[0].title, live[0].body, closed=True),)


def _state(night: Night, issue: Thread, *, changed: bool) -> ThreadState:
    """Return the state that an issue gets. If a person closes or reopens it, that holds until the outcome changes."""
    if not changed:
        return issue.state
    return ThreadState.OPEN if night.needs_person else ThreadState.CLOSED


def _is_outdated(mark: IssueMark, night: Night, content: str, today: date | None) -> bool:
    """Return whether the text has to be written again; `today` is None where the date in it is not renewed."""
    age = marks.days_since(mark, today) if today is not None else 0
    old = age is None or age >= RENEWED
    return old or (mark.outcome, mark.content) != (night.outcome, content)


def _content(night: Night, pull: str, page: str) -> str:
    return f"{night.content}{issue_text.digest(pull)}{issue_text.digest(page)}"


def _announced(mark: IssueMark, comments: Sequence[Comment]) -> str:
    """Return the outcome that readers know: of the last comment of ours, else the one that the issue was opened with."""
    told = [outcome for each in comments if (outcome := marks.comment(each.body)) is not None]
    return told[-1] if told else mark.opened
