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
    """Nothing left to change: the new base has it."""
    PARTLY_LANDED = "partly-landed"
    """A commit of the new base's history has a part of it; the rest needs a person's eye."""
    CONFLICT = "conflict"
    """Needs a person."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict in one file. `lines` are (first, last) in the new base's file, None where the file as a whole is at odds."""

    path: str
    lines: tuple[int, int] | None
    reason: str


@dataclass(frozen=True, slots=True)
class Carried:
    """One patch on the new base.

    `source` is its commit on the old base, `commit` the one on the new base (None for landed and conflict), `tree` the tree
    after it.
    """

    patch: Patch
    outcome: Outcome
    source: CommitId
    commit: CommitId | None
    tree: TreeId
    conflicts: tuple[Conflict, ...] = ()
    evidence: str = ""
    resolved: bool = False
