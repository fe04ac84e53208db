# SPDX-License-Identifier: Apache-2.0
"""The outcomes of a carried patch, as tables, JSON and files name them."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch


class Outcome(StrEnum):
    """The outcome of one patch on the new base."""

    CLEAN = "clean"
    """Carried, at the same lines."""
    MOVED = "moved"
    """Carried, at other lines or in another file."""
    LANDED = "landed"
    """Upstream has the whole patch by now, under whatever commit."""
    LEFT_OUT = "left-out"
    """A person left it out of a rebase (`--skip`)."""
    PARTLY_LANDED = "partly-landed"
    """The new base has a part of it. The remainder is carried if it applies; otherwise it needs a person."""
    DROPPED_UPSTREAM = "dropped-upstream"
    """Upstream had it, or some of it, and dropped it again. It is carried if it applies, and a person decides."""
    RESOLVED = "resolved"
    """Git's conflict was resolved: both sides only add to one list, or a person has resolved this very conflict before."""
    RELOCATED = "relocated"
    """Carried to the new place of the code that it changes; to be reviewed."""
    DRIFTED = "drifted"
    """Carried, but code that it relies on has changed; needs a person."""
    CONFLICT = "conflict"
    """In conflict with the new base; needs a person."""


def tally(found: Iterable[Outcome]) -> dict[Outcome, int]:
    """Count outcomes, in the order in which they are defined; those that do not occur are left out."""
    counts = Counter(found)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


@dataclass(frozen=True, slots=True)
class Upstream:
    """The upstream commit (or, without history, the release) that caused a conflict or a drift."""

    commit: CommitId
    subject: str
    release: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict in one file. `lines` are (first, last) in the new base's file, or None if the whole file is in conflict."""

    path: str
    lines: tuple[int, int] | None
    reason: str
    upstream: tuple[Upstream, ...] = ()


@dataclass(frozen=True, slots=True)
class Drifted:
    """A place where a carried patch is wrong, the problem, and the upstream commits that caused it."""

    path: str
    line: int | None
    problem: str
    upstream: tuple[Upstream, ...] = ()


@dataclass(frozen=True, slots=True)
class Landed:
    """The upstream commit that brought a patch, or, without history, the release (then `commit` is the release's commit).

    `score` is the share of the patch that upstream has, from 0 to 1; `rung` is the first release that has it. `behaviour`:
    upstream has the patch's effect but not its text; then `subject` says how that is known.
    """

    commit: CommitId
    subject: str
    score: float
    rung: str
    behaviour: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a patch at one rung. `open`: it could not be carried there, and a person would have to help."""

    rung: str
    outcome: Outcome
    open: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """One patch on the new base.

    `source`: its commit on the previous base. `tip`: the commit below it on the new base. `commit`: its new commit (None if it
    is left out). `tree`: the tree after it. If it needs a person, `rung` names the release at which it stopped. `by_hand`:
    a person made the tree.
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
    """The diff of a partly landed patch's remainder."""
    left: TreeId | None = None
    """The tree before the patch with only the remainder applied."""
    by_hand: bool = False
    steps: tuple[Step, ...] = ()
    """The outcome at each rung on which it was tried. Whether it moved or drifted is judged at the last rung only."""

    @property
    def needs_person(self) -> bool:
        """Return whether the patch needs a person."""
        left_over = self.outcome is Outcome.PARTLY_LANDED and self.commit is None
        return self.outcome in (Outcome.CONFLICT, Outcome.DRIFTED, Outcome.DROPPED_UPSTREAM) or left_over


def fingerprint(row: Carried) -> str:
    """Return a hash of the outcome and its evidence; another hash means that there is something new to show."""
    shown = (row.outcome.value, row.evidence, row.conflicts, row.drifts, row.landed)
    return hashlib.sha256(repr(shown).encode("utf-8", "backslashreplace")).hexdigest()[:16]
