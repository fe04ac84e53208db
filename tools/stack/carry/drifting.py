# SPDX-License-Identifier: Apache-2.0
"""Which carried patches apply and are wrong all the same, and since which upstream commit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stack.carry.blame import first_where
from stack.carry.drift import Drift, added_between, check, is_readable
from stack.carry.drift.finding import after
from stack.carry.engine import Carry
from stack.carry.history import Index
from stack.carry.merge import merge
from stack.carry.outcome import Carried, Drifted, Outcome, Upstream
from stack.model.diff import FileDiff, parse
from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.store.objects import Objects

Added = Mapping[str, frozenset[int]]
"""The numbers of added lines, by path."""


def judged(objects: Objects, carried: Carry, index: Index | None = None) -> Carry:
    """A carry in which every patch that relies on what has changed is `drifted`, with the lines and the commits behind it.

    What a person has resolved by hand is theirs to judge.

    Raises:
        StackError: the repository cannot be read.

    """
    living = [row for row in carried.rows if row.commit is not None and row.patch.ref.path in carried.exported]
    added = _added([_files(row.patch, carried.exported[row.patch.ref.path]) for row in living])
    before = objects.tree_of(carried.source_tip)
    drifts = check(objects, objects.tree_of(carried.tip), _union(added), before=before) if any(added) else ()
    # What was wrong on the old base already has not drifted: `stack check` tells it.
    old = _at_base(objects, carried) if drifts else frozenset()
    found: dict[str, list[Drifted]] = {}
    for drift in drifts:
        owner = _owner(drift, living, added)
        if owner is None or owner.by_hand or _kind(drift) in old:
            continue
        if is_readable(objects, objects.tree_of(carried.onto), drift.path):
            causes = _Cause(objects, carried, index, drift).find()
            found.setdefault(owner.patch.ref.path, []).append(Drifted(drift.path, drift.line, drift.problem, causes))
    rows = tuple(
        replace(row, outcome=Outcome.DRIFTED, drifts=tuple(found[row.patch.ref.path])) if row.patch.ref.path in found else row
        for row in carried.rows
    )
    return replace(carried, rows=rows)


def _at_base(objects: Objects, carried: Carry) -> frozenset[str]:
    """What is wrong with the patches on their old base."""
    added = _added([_files(row.patch, row.patch.raw) for row in carried.rows])
    return frozenset(map(_kind, check(objects, objects.tree_of(carried.source_tip), _union(added))))


def _union(added: Iterable[Added]) -> dict[str, frozenset[int]]:
    union: dict[str, frozenset[int]] = {}
    for each in added:
        for path, lines in each.items():
            union[path] = union.get(path, frozenset()) | lines
    return union


def _files(patch: Patch, data: bytes) -> tuple[FileDiff, ...]:
    return parse(data[len(patch.raw) - len(patch.diff) :])


def _added(chain: Sequence[Sequence[FileDiff]]) -> list[dict[str, frozenset[int]]]:
    """The lines that each patch of a chain adds, by path, as they are numbered after the last of them."""
    known: list[dict[str, frozenset[int]]] = []
    for files in chain:
        own: dict[str, frozenset[int]] = {}
        for file in files:
            for earlier in known:
                lines = earlier.pop(file.old, frozenset()) if file.old is not None else frozenset()
                if lines and file.new is not None:
                    earlier[file.new] = after(lines, file.hunks, adding=False)
            if file.new is not None:
                own[file.new] = after(frozenset(), file.hunks)
        known.append(own)
    return known


def _owner(drift: Drift, rows: Sequence[Carried], added: Sequence[Added]) -> Carried | None:
    """The patch that added a line; for a file as a whole the last one that adds to it."""
    pairs = list(zip(rows, added, strict=True))[::-1]
    exact = [row for row, lines in pairs if drift.line is not None and drift.line in lines.get(drift.path, ())]
    near = [row for row, lines in pairs if drift.path in lines]
    return next(iter([*exact, *near]), None)


@dataclass(frozen=True, slots=True)
class _Cause:
    """The search for the first commit, or release, with which a drift is there."""

    objects: Objects
    carried: Carry
    index: Index | None
    drift: Drift

    def find(self) -> tuple[Upstream, ...]:
        if self.index is None or self.index.releases:
            rung = first_where(self.carried.rungs, lambda one: self._there(one.commit))
            named = self.carried.rungs[rung] if rung is not None else self.carried.rungs[-1]
            return (Upstream(named.commit, named.name, release=True),)
        number = first_where(range(self.index.steps), self._in_step)
        if number is None:
            return ()
        step = self.index.step(number)
        return (Upstream(step.commit, step.subject),)

    def _in_step(self, number: int) -> bool:
        assert self.index is not None
        return self._there(self.index.step(number).commit)

    def _there(self, commit: CommitId) -> bool:
        """Whether all patches, merged onto a commit at once, show the same problem."""
        objects = self.objects
        tree = objects.tree_of(commit)
        trees = objects.tree_of(self.carried.base), tree, objects.tree_of(self.carried.source_tip)
        merged = merge(objects, {}, *trees)
        if any(conflict.path == self.drift.path for conflict in merged.conflicts):
            return False
        lines = added_between(objects, tree, merged.tree).get(self.drift.path)
        said = check(objects, merged.tree, {self.drift.path: lines}, before=trees[2]) if lines else ()
        return any(_kind(one) == _kind(self.drift) for one in said)


def _kind(drift: Drift) -> str:
    """What is wrong, without the hint that follows: it names what is near in that tree."""
    return drift.problem.partition(": ")[0]
