# SPDX-License-Identifier: Apache-2.0
"""What became of a patch: the words that every table, JSON and file uses."""

from dataclasses import dataclass
from enum import StrEnum

from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch


class Outcome(StrEnum):
    """What became of one patch on the new base."""

    CLEAN = "clean"
    """Carried, at the same lines."""
    MOVED = "moved"
    """Carried, at other lines or in another file."""
    LANDED = "landed"
    """Upstream has all of it by now, whatever commit brought it."""
    PARTLY_LANDED = "partly-landed"
    """The new base has a part of it; what is left is carried where it fits, and needs a person where it does not."""
    DROPPED_UPSTREAM = "dropped-upstream"
    """Upstream had it, or some of it, and dropped it again: carried where it fits, and a person decides."""
    RESOLVED = "resolved"
    """Git's conflict is none: both sides only add to one list, or a person has resolved this very conflict before."""
    RELOCATED = "relocated"
    """Carried to where the code that it changes has gone: look at it."""
    DRIFTED = "drifted"
    """Carried, but what it relies on has changed: needs a person."""
    CONFLICT = "conflict"
    """Needs a person."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The commit (or, without history, the release) that is behind a conflict or a drift."""

    commit: CommitId
    subject: str
    release: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict in one file. `lines` are (first, last) in the new base's file, None where the file as a whole is at odds."""

    path: str
    lines: tuple[int, int] | None
    reason: str
    upstream: tuple[Upstream, ...] = ()


@dataclass(frozen=True, slots=True)
class Drifted:
    """A place where a carried patch is wrong, what is wrong there, and since which commits."""

    path: str
    line: int | None
    problem: str
    upstream: tuple[Upstream, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """What brought a patch upstream: a commit, or a release where there is no history (then `commit` is the release's tree).

    `score` is the share of the patch that is there, from 0 to 1; `rung` the release on the way that has it first. `behaviour`: its
    text is not there, but what it is for is; `subject` says how that is known.
    """

    commit: CommitId
    subject: str
    score: float
    rung: str
    behaviour: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """One patch on the new base.

    `source` is its commit on the base before, `tip` what it goes onto, `commit` what it is there (None where it is left out),
    `tree` the tree after it. Where a person is needed, `rung` names the release on the way at which it stopped. `by_hand`: a
    person has given the tree.
    """

    patch: Patch
    outcome: Outcome
    source: CommitId
    tip: CommitId
    commit: CommitId | None
    tree: TreeId
    rung: str = ""
    conflicts: tuple[Conflict, ...] = ()
    drifts: tuple[Drifted, ...] = ()
    evidence: tuple[str, ...] = ()
    landed: Landed | None = None
    residue: bytes = b""
    """The diff of what a partly landed patch still changes."""
    left: TreeId | None = None
    """The tree before it with that change."""
    by_hand: bool = False

    @property
    def needs_person(self) -> bool:
        """Whether nothing goes on without a person."""
        left_over = self.outcome is Outcome.PARTLY_LANDED and self.commit is None
        return self.outcome in (Outcome.CONFLICT, Outcome.DRIFTED, Outcome.DROPPED_UPSTREAM) or left_over
