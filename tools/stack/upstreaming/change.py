# SPDX-License-Identifier: Apache-2.0
"""What a pull request changes in its upstream's tree: the trees before and after it, and the lines between them."""

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
    """The tree that a pull request stands on (with what it needs), the one that it makes, and its files."""

    objects: Objects
    before: TreeId
    after: TreeId
    files: tuple[FileDiff, ...]

    @cached_property
    def added(self) -> Mapping[str, Mapping[int, str]]:
        """The added lines of each file that is there afterwards, by their numbers in it."""
        files = [file for file in self.files if not file.binary]
        return {file.new: dict(pair for hunk in file.hunks for pair in added(hunk)) for file in files if file.new is not None}

    @property
    def new(self) -> tuple[str, ...]:
        """The files that were not there before."""
        return tuple(file.new for file in self.files if file.old is None and file.new is not None)

    def lines(self, uncounted: Globs) -> int:
        """Added and removed lines outside of some files."""
        return sum(counts(file for file in self.files if not uncounted.has(file.path)))

    def read(self, path: str, *, before: bool = False) -> bytes | None:
        """A file of the tree afterwards, or before; None where it is none."""
        entry = self.objects.entry(self.before if before else self.after, path)
        return self.objects.read(entry.id) if entry is not None and entry.mode in FILES else None


def added(hunk: Hunk) -> Iterator[tuple[int, str]]:
    """The lines that a hunk adds as text, each with its number in the file afterwards."""
    return ((number, line.decode("utf-8", "replace")) for number, line in hunk.added())


def change(objects: Objects, proposal: Proposal, planned: Iterable[Proposal]) -> Change:
    """What a pull request changes, on what it needs of the others that were planned.

    Raises:
        StackError: it, or one that was planned, needs one that was not, or a patch does not apply.

    """
    before, after = _Standing(objects, {one.name: one for one in planned}).trees(proposal)
    return Change(objects, before, after, parse(difference(objects, before, after)))


@dataclass(frozen=True)
class _Standing:
    """Where each pull request stands: on its base with all that it needs."""

    objects: Objects
    planned: Mapping[str, Proposal]
    known: dict[str, tuple[TreeId, TreeId]] = field(default_factory=dict)

    def trees(self, proposal: Proposal) -> tuple[TreeId, TreeId]:
        """The trees before and after a pull request."""
        if proposal.name not in self.known:
            before = self.objects.tree_of(proposal.base)
            for one in needed(proposal, self.planned):
                # Its patches are for its own needs: what else is there may have moved their lines.
                was, now = self.trees(one)
                merged = merge(self.objects, {}, was, before, now)
                if merged.conflicts:
                    conflict = merged.conflicts[0]
                    raise StackError(
                        f"{one.name} is in conflict in {conflict.path} with what else {proposal.name} needs", "plan anew"
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
