# SPDX-License-Identifier: Apache-2.0
"""A forge in memory: what writes change, and what people do there."""

from dataclasses import dataclass, field, replace

from stack.carry.outcome import Outcome
from stack.forge.repositories import PullState
from stack.forge.threads import Comment, PullThread, Thread, ThreadState
from stack.watch.night import Aim, CarriedRelease, Night, PatchRow, Trial
from stack.watch.plan import BranchTip
from stack.watch.writes import AddComment, EditIssue, EditPull, OpenIssue, OpenPull, PushBranch, RemoveLabel, Write

BRANCH = "stack-watch/gamma"
US = "us"
"""The account of the token."""


def night(*outcomes: Outcome, revision: str = "v2.1", main: str = "abc", report: str = "# Report") -> Night:
    """A night with one patch for each outcome, on a release and on the main branch."""
    opens = (Outcome.CONFLICT, Outcome.DRIFTED)
    rows = tuple(PatchRow(f"one/gamma/p{number}", how, how in opens, ("why",)) for number, how in enumerate(outcomes))
    trials = (Trial("main", Aim.RELEASE, "v2.0", revision, rows), Trial("main", Aim.MAIN, "v2.0", main, rows))
    return Night("gamma", trials, report)


def carried(release: str = "v2.1", commit: str = "c1", **values: object) -> CarriedRelease:
    rows = (PatchRow("one/gamma/hook", Outcome.CLEAN, False), PatchRow("one/gamma/gone", Outcome.LANDED, False, ("1234 Fix",)))
    made = CarriedRelease("gamma", "v2.0", release, release, BRANCH, "main", commit, rows)
    return replace(made, **values)  # type: ignore[arg-type]


def trusts(author: str) -> bool:
    return author == US


@dataclass
class Model:
    """The things of one upstream at the forge."""

    issues: list[Thread] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    pulls: list[PullThread] = field(default_factory=list)
    tip: BranchTip | None = None
    writes: int = 0

    def apply(self, write: Write) -> None:
        self.writes += 1
        number = len(self.issues) + len(self.pulls) + 1
        match write:
            case OpenIssue():
                self.issues.append(Thread(number, write.title, write.body, ThreadState.OPEN, author=US))
            case EditIssue():
                self._issue(write.number, title=write.title, body=write.body, state=write.state)
            case AddComment():
                self.comments.append(Comment(write.body, US))
            case RemoveLabel():
                if write.pull:
                    self.pulls = [replace(one, labels=_without(one, write)) for one in self.pulls]
                else:
                    self.issues = [replace(one, labels=_without(one, write)) for one in self.issues]
            case PushBranch():
                assert write.expected == (self.tip.commit if self.tip else None)
                self.tip = BranchTip(write.commit, True)
            case OpenPull():
                assert self.tip is not None
                assert not any(pull.state.lives for pull in self.pulls)
                shown = f"pull request #{number}"
                self.pulls.insert(0, PullThread(number, write.title, write.body, PullState.DRAFT, (), shown))
            case EditPull():
                state = {"state": PullState.CLOSED} if write.closed else {}
                self.pulls = [
                    replace(pull, title=write.title, body=write.body, **state) if pull.number == write.pull.number else pull
                    for pull in self.pulls
                ]

    @property
    def ours(self) -> list[Comment]:
        """The comments that count."""
        return [each for each in self.comments if trusts(each.author)]

    def _issue(self, number: int, **values: object) -> None:
        self.issues = [replace(one, **values) if one.number == number else one for one in self.issues]  # type: ignore[arg-type]

    def person(self, does: str) -> None:
        """Let a person act on the issue and on the pull request."""
        for place, thread in enumerate(self.issues):
            self.issues[place] = _acted(thread, does)
        for place, pull in enumerate(self.pulls):
            if does == "close" and pull.state.lives:
                self.pulls[place] = replace(pull, state=PullState.CLOSED)
            elif does in ("hold", "retry", "release"):
                self.pulls[place] = replace(pull, labels=_labelled(pull.labels, does))
        if does == "commit" and self.tip is not None:
            self.tip = BranchTip(f"{self.tip.commit}-theirs", False)
        if does == "comment":
            self.comments.append(Comment("<!-- stack-watch outcome 0000 -->", "stranger"))


def _acted(thread: Thread, does: str) -> Thread:
    if does in ("close", "reopen"):
        return replace(thread, state=ThreadState.CLOSED if does == "close" else ThreadState.OPEN)
    return replace(thread, labels=_labelled(thread.labels, does))


def _labelled(labels: tuple[str, ...], does: str) -> tuple[str, ...]:
    if does == "release":
        return tuple(label for label in labels if label != "hold")
    return (*labels, does) if does in ("hold", "retry") else labels


def _without(thread: Thread | PullThread, write: RemoveLabel) -> tuple[str, ...]:
    return tuple(label for label in thread.labels if thread.number != write.number or label != write.label)
