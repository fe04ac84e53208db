# SPDX-License-Identifier: Apache-2.0
"""The judgement of a guard in one tree, and a guard with its judgement and its cause."""

from dataclasses import dataclass
from enum import StrEnum

from stack.model.guards import Guard
from stack.model.ids import CommitId


class State(StrEnum):
    """The state of a guard's target in a tree."""

    HELD = "held"
    """It is as it was."""
    MOVED = "moved"
    """It is as it was, in another file."""
    BROKEN = "broken"
    """It has changed, or is gone; needs a person."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of a guard in one tree.

    `path` and `line`: where the target is, or where it was looked for. `problem`: one sentence, empty if it held. `renewed`: the
    guard as this tree has it, None if the tree has no such target. `share`: how much of a copied text has changed since, from 0 to 1.
    `diff`: that change.
    """

    state: State
    path: str
    line: int | None = None
    problem: str = ""
    renewed: Guard | None = None
    share: float | None = None
    diff: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """The upstream commit with which a guard's target changed; `date` is the author's day. Without history, the release."""

    commit: CommitId
    subject: str
    date: str = ""
    release: bool = False


@dataclass(frozen=True, slots=True)
class Guarded:
    """A guard, its judgement at a revision, and the cause of the change if it is known."""

    guard: Guard
    judgement: Judgement
    revision: str
    cause: Cause | None = None

    @property
    def state(self) -> State:
        """Return what became of the target."""
        return self.judgement.state

    @property
    def needs_person(self) -> bool:
        """Return whether the guard needs a person."""
        return self.state is State.BROKEN

    @property
    def place(self) -> str:
        """Return `path:line`, as editors read it."""
        line = self.judgement.line
        return f"{self.judgement.path}:{line}" if line else self.judgement.path

    @property
    def sentence(self) -> str:
        """Return the finding in one sentence, with its cause."""
        text = f"guard {self.guard.name} {self.state.value}: {self.judgement.problem or self.place}"
        return f"{text}, since {self.since}" if self.cause is not None else text

    @property
    def since(self) -> str:
        """Return the cause in words; empty if it is unknown."""
        if self.cause is None:
            return ""
        return self.cause.subject if self.cause.release else f"{self.cause.commit[:12]} {self.cause.date} {self.cause.subject}"
