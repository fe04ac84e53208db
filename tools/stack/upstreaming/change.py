# SPDX-License-Identifier: Apache-2.0
"""Compute what a pull request changes in its upstream's tree: the trees before and after it, and the lines between them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from stack.base.errors import StackError
from stack.carry import apply
from stack.carry.apply import DoesNotApply, Misfit
from stack.carry.merge import merge
from stack.carry.unmerged_remainder import difference
from stack.model.diff import FileDiff, Hunk, counts, parse
from stack.model.ids import TreeId
from stack.model.patch import Patch
from stack.store.objects import FILES, Objects
from stack.upstreaming.proposal import Proposal, needed
from stack.upstreaming.rules import Globs


@dataclass(frozen=True)
class Change:
    """A pull request's change: the tree below it (with its needs), the tree with it, and the files that differ."""

    objects: Objects
    before: TreeId
    after: TreeId
    files: tuple[FileDiff, ...]

    @cached_property
    def added(self) -> Mapping[str, Mapping[int, str]]:
        """The added lines of each file in the tree after the change, by their line numbers."""
        files = [file for file in self.files if not file.binary]
        return {file.new: dict(pair for hunk in file.hunks for pair in added(hunk)) for file in files if file.new is not None}

    @property
    def new(self) -> tuple[str, ...]:
        """The added files."""
        return tuple(file.new for file in self.files if file.old is None and file.new is not None)

    def lines(self, uncounted: Globs) -> int:
        """Count added and removed lines outside of the files in `uncounted`."""
        return sum(counts(file for file in self.files if not uncounted.has(file.path)))

    def read(self, path: str, *, before: bool = False) -> bytes | None:
        """Read a file of the tree after the change, or before it; None if it is not a regular file there."""
        entry = self.objects.entry(self.before if before else self.after, path)
        return self.objects.read(entry.id) if entry is not None and entry.mode in FILES else None


def added(hunk: Hunk) -> Iterator[tuple[int, str]]:
    """Yield the lines that a hunk adds, decoded, with their numbers in the new file."""
    return ((number, line.decode("utf-8", "replace")) for number, line in hunk.added())


def change(objects: Objects, proposal: Proposal, planned: Iterable[Proposal]) -> Change:
    """Compute a pull request's change on top of the planned pull requests that it needs.

    Raises:
        StackError: a need is not planned, or a patch does not apply.

    """
    before, after = _Standing(objects, {other.name: other for other in planned}).trees(proposal)
    return Change(objects, before, after, parse(difference(objects, before, after)))


@dataclass(frozen=True)
class _Standing:
    """The trees below and with each pull request: its base with everything that it needs."""

    objects: Objects
    planned: Mapping[str, Proposal]
    known: dict[str, tuple[TreeId, TreeId]] = field(default_factory=dict)

    def trees(self, proposal: Proposal) -> tuple[TreeId, TreeId]:
        """Return the trees before and after a pull request."""
        if proposal.name not in self.known:
            before = self.objects.tree_of(proposal.base)
            for below in needed(proposal, self.planned):
                # Its patches fit a tree with its own needs only; a merge brings them onto this tree.
                was, now = self.trees(below)
                merged = merge(self.objects, {}, was, before, now)
                if merged.conflicts:
                    conflict = merged.conflicts[0]
                    raise StackError(
                        f"{below.name} is in conflict in {conflict.path} with what else {proposal.name} needs", "plan again"
                    )
                before = merged.tree
            after = before
            for part in proposal.parts:
                after = self._applied(after, part.patch)
            self.known[proposal.name] = before, after
        return self.known[proposal.name]

    def _applied(self, tree: TreeId, patch: Patch) -> TreeId:
        after = apply.apply(self.objects, tree, patch)
        if isinstance(after, Misfit):
            raise DoesNotApply(patch, after)
        return after
