# SPDX-License-Identifier: Apache-2.0
"""Carry out the plans of one upstream at the forge: its pull request first, then its issue."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from stack.base.errors import StackError
from stack.forge.threads import Comment, PullThread, Thread, Threads
from stack.model.ids import CommitId
from stack.watch import marks, own_repository, plan
from stack.watch.night import CarriedRelease, Night
from stack.watch.own_repository import Copy
from stack.watch.plan import LABEL, BranchTip
from stack.watch.writes import (
    AddComment,
    EditIssue,
    EditPull,
    OpenIssue,
    OpenPull,
    PushBranch,
    RemoveLabel,
    Write,
    sentence,
)

_ROUNDS = 3
"""Maximal number of plans for one thing: the first one opens it, the second one may close it, the third one is empty."""


@dataclass(slots=True)
class Keeper:
    """Keeps the pull requests and the issue of one upstream. With `dry_run` it lists what it would do first, and writes nothing.

    What the forge has is read once. After that, the answers to the writes count: a list may be older than a write.
    """

    forge: Threads
    copy: Copy
    upstream: str
    dry_run: bool = False
    tell: Callable[[str], None] = lambda _: None
    done: list[str] = field(default_factory=list)
    pulls: dict[str, int | None] = field(default_factory=dict)
    _tip: BranchTip | None = None
    _pulls: list[PullThread] = field(default_factory=list)
    _issue: Thread | None = None
    _comments: list[Comment] = field(default_factory=list)

    @property
    def issue_number(self) -> int | None:
        """Return the number of the issue."""
        return self._issue.number if self._issue is not None else None

    def keep_pull(self, carried: CarriedRelease | None, lane: str) -> str:
        """Bring a lane's branch and its pull request up to date; return a sentence about them for the issue.

        The number of the open pull request is in `pulls` then.

        Raises:
            StackError: the forge cannot be asked, or the branch was changed meanwhile.

        """
        branch, name = own_repository.branch(self.upstream, lane), marks.key(self.upstream, lane)
        self._tip = own_repository.tip(self.copy, branch)
        if carried is not None and self._tip is not None and self._tip.commit == carried.commit:
            self._tip = BranchTip(carried.commit, True)
        self._pulls = list(self.forge.pulls(branch))
        self._carry_out(lambda: plan.for_pull(name, carried, self._tip, self._pulls))
        self.pulls[lane] = next((pull.number for pull in self._pulls if pull.state.lives), None)
        return plan.pull_note(name, carried, self._tip, self._pulls)

    def keep_issue(self, night: Night, today: date, pull: str, page: str = "") -> None:
        """Bring the issue up to date. `page` shows when the workflow ran; it is empty if nothing does.

        Raises:
            StackError: the forge cannot be asked.

        """
        # An issue whose label was taken away still has its mark.
        self._issue = self._found(LABEL) or self._found(None)
        self._comments = self._told(self._issue.number) if self._issue is not None else []
        self._carry_out(lambda: plan.for_issue(night, self._issue, self._comments, today, pull, page))

    def _found(self, label: str | None) -> Thread | None:
        return plan.find_issue(self.forge.issues(label), self.upstream, self.forge.trusts)

    def _told(self, number: int) -> list[Comment]:
        """Return the comments of ours."""
        marked = (comment for comment in self.forge.comments(number) if marks.comment(comment.body) is not None)
        return [comment for comment in marked if self.forge.trusts(comment.author)]

    def _carry_out(self, planned: Callable[[], Sequence[Write]]) -> None:
        for _ in range(_ROUNDS):
            writes = planned()
            for write in writes:
                self.done.append(sentence(write))
                self.tell(self.done[-1])
                if not self.dry_run:
                    self._write(write)
            if not writes or self.dry_run:
                return

    def _write(self, write: Write) -> None:
        match write:
            case PushBranch():
                self._push(write)
            case OpenPull():
                self._pulls.insert(0, self.forge.open_pull(write.branch, write.onto, write.title, write.body))
            case EditPull():
                self._replace(self.forge.edit_pull(write.pull, write.title, write.body, closed=write.closed))
            case OpenIssue():
                self._issue = self.forge.open_issue(write.title, write.body, (LABEL,))
            case EditIssue():
                self._issue = self.forge.edit_issue(write.number, write.title, write.body, write.state)
            case AddComment():
                self._comments.append(self.forge.add_comment(write.number, write.body))
            case RemoveLabel():
                self.forge.remove_label(write.number, write.label, pull=write.pull)
                self._unlabel(write)

    def _push(self, write: PushBranch) -> None:
        expected = CommitId(write.expected) if write.expected is not None else None
        if reason := own_repository.push(self.copy, write.branch, CommitId(write.commit), expected):
            problem, _, remedy = reason.partition(": ")
            raise StackError(f"{write.branch} was not pushed ({problem})", remedy or "look at its rules, and run it again")
        self._tip = BranchTip(write.commit, True)

    def _replace(self, pull: PullThread) -> None:
        self._pulls = [pull if each.number == pull.number else each for each in self._pulls]

    def _unlabel(self, write: RemoveLabel) -> None:
        if not write.pull:
            if self._issue is not None and self._issue.number == write.number:
                self._issue = replace(self._issue, labels=_without(self._issue.labels, write.label))
            return
        self._pulls = [
            replace(pull, labels=_without(pull.labels, write.label)) if pull.number == write.number else pull
            for pull in self._pulls
        ]


def _without(labels: tuple[str, ...], gone: str) -> tuple[str, ...]:
    return tuple(label for label in labels if label != gone)
