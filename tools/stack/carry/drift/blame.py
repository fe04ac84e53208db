# SPDX-License-Identifier: Apache-2.0
"""Find carried patches that have drifted, and the upstream commits that caused it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from stack.carry.blame import first_where
from stack.carry.drift import Drift, check, is_readable
from stack.carry.drift.finding import after
from stack.carry.drift.outline import Known
from stack.carry.engine import Carry
from stack.carry.history import Index
from stack.carry.merge import FileMerges, Triple, merge_files
from stack.carry.outcome import Carried, Drifted, Outcome, Upstream
from stack.model.diff import FileDiff, parse
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.store.objects import Entry, Objects

_NO_MODULE = "there is no module"
"""The beginning of a problem that is reported even if the old base has it, too: code that imports this cannot run."""

Added = Mapping[str, frozenset[int]]
"""The numbers of added lines, by path."""


def judged(objects: Objects, carried: Carry, index: Index | None = None) -> Carry:
    """Mark each drifted patch of a carry as `drifted`, with the lines and the commits that caused it.

    Patches that a person resolved by hand are not checked.

    Raises:
        StackError: the repository cannot be read.

    """
    living = [row for row in carried.rows if row.commit is not None and row.patch.ref.path in carried.exported]
    added = _added([_files(row.patch, carried.exported[row.patch.ref.path]) for row in living])
    before = objects.tree_of(carried.source_tip)
    known = Known()
    tip = objects.tree_of(carried.tip)
    own = objects.tree_of(carried.onto)
    base = objects.tree_of(carried.base)
    drifts = check(objects, tip, _union(added), before=before, upstream=own, base=base, known=known) if any(added) else ()
    if not drifts:
        return carried
    old = _at_base(objects, carried, drifts, known)
    causes = _Causes(objects, carried, index, known)
    readable = {path for path in {drift.path for drift in drifts} if is_readable(objects, own, path)}
    found: dict[str, list[Drifted]] = {}
    for drift in drifts:
        owner = _owner(drift, living, added)
        if owner is None or owner.by_hand:
            continue
        if drift.path in readable:
            before_too = _kind(drift) in old
            if before_too and not drift.problem.startswith(_NO_MODULE):
                continue  # The patch's own mistake, which `stack check` reports.
            problem = f"{drift.problem} (on the old base, too)" if before_too else drift.problem
            drifted = Drifted(drift.path, drift.line, problem, () if before_too else causes.of(drift))
            found.setdefault(owner.patch.ref.path, []).append(drifted)
    rows = tuple(
        replace(row, outcome=Outcome.DRIFTED, drifts=tuple(found[row.patch.ref.path])) if row.patch.ref.path in found else row
        for row in carried.rows
    )
    return replace(carried, rows=rows)


def standing(objects: Objects, base: CommitId, tip: CommitId, patches: Sequence[Patch]) -> Iterator[tuple[Patch, Drift]]:
    """Find the drift of a chain of patches on its own base, each with the patch that causes it.

    Raises:
        StackError: the repository cannot be read.

    """
    added = _added([_files(patch, patch.raw) for patch in patches])
    for drift in check(objects, objects.tree_of(tip), _union(added)) if any(added) else ():
        owner = _owner(drift, patches, added)
        if owner is not None and is_readable(objects, objects.tree_of(base), drift.path):
            yield owner, drift


def _at_base(objects: Objects, carried: Carry, drifts: Sequence[Drift], known: Known) -> frozenset[str]:
    """Return the problems that the same patches have on the old base, for those that change files with drift on the new one."""
    paths = {drift.path for drift in drifts}
    environment = any(drift.variable for drift in drifts)
    involved = [row for row in carried.rows if paths & {file.path for file in _carried_files(carried, row)}]
    added = _added([_files(row.patch, row.patch.raw) for row in carried.rows])
    union = _union(lines for row, lines in zip(carried.rows, added, strict=True) if row in involved)
    tree = objects.tree_of(carried.source_tip)
    return frozenset(map(_kind, check(objects, tree, union, known=known, hints=False, environment=environment)))


def _carried_files(carried: Carry, row: Carried) -> tuple[FileDiff, ...]:
    data = carried.exported.get(row.patch.ref.path)
    return _files(row.patch, data) if data is not None else ()


def _union(added: Iterable[Added]) -> dict[str, frozenset[int]]:
    union: dict[str, frozenset[int]] = {}
    for each in added:
        for path, lines in each.items():
            union[path] = union.get(path, frozenset()) | lines
    return union


def _files(patch: Patch, data: bytes) -> tuple[FileDiff, ...]:
    return parse(patch.diff_of(data))


def _added(chain: Sequence[Sequence[FileDiff]]) -> list[dict[str, frozenset[int]]]:
    """Return the lines that each patch of a chain adds, by path, numbered as after the last patch."""
    known: list[dict[str, frozenset[int]]] = []
    for files in chain:
        own: dict[str, frozenset[int]] = {}
        for file in files:
            for earlier in known:
                lines = earlier.pop(file.taken, frozenset()) if file.taken is not None else frozenset()
                if lines and file.new is not None:
                    earlier[file.new] = after(lines, file.hunks, adding=False)
            if file.new is not None:
                own[file.new] = after(frozenset(), file.hunks)
        known.append(own)
    return known


_T = TypeVar("_T")


def _owner(drift: Drift, patches: Sequence[_T], added: Sequence[Added]) -> _T | None:
    """Return the patch that added the line with drift; without a line, the last patch that adds to the file."""
    pairs = list(zip(patches, added, strict=True))[::-1]
    exact = [patch for patch, lines in pairs if drift.line is not None and drift.line in lines.get(drift.path, ())]
    near = [patch for patch, lines in pairs if drift.path in lines]
    return next(iter([*exact, *near]), None)


class _Causes:
    """Finds the first upstream commit, or release, with which a drift appears."""

    def __init__(self, objects: Objects, carried: Carry, index: Index | None, known: Known) -> None:
        self._objects = objects
        self._carried = carried
        self._index = index
        self._read = known
        self._known: dict[tuple[CommitId, str, bool], frozenset[str]] = {}
        self._merges: FileMerges = {}

    def of(self, drift: Drift) -> tuple[Upstream, ...]:
        if self._index is None or self._index.releases:
            rungs = self._carried.rungs
            place = first_where(rungs, lambda rung: self._has(drift, rung.commit))
            named = rungs[place] if place is not None else rungs[-1]
            return (Upstream(named.commit, named.name, release=True),)
        step = self._index.step
        place = first_where(range(self._index.steps), lambda number: self._has(drift, step(number).commit))
        return (Upstream(step(place).commit, step(place).subject),) if place is not None else ()

    def _has(self, drift: Drift, commit: CommitId) -> bool:
        return _kind(drift) in self._wrong(commit, drift.path, environment=drift.variable is not None)

    def _wrong(self, commit: CommitId, path: str, *, environment: bool) -> frozenset[str]:
        """Return the problems in a file if all its patches are merged onto a commit at once."""
        key = commit, path, environment
        if key not in self._known:
            objects = self._objects
            tree = objects.tree_of(commit)
            before = objects.tree_of(self._carried.source_tip)
            merged = self._merged(tree, before, path)
            own = objects.entry(tree, path)
            lines = _new_lines(objects.read(own.id) if own is not None else b"", objects.read(merged.id)) if merged else ()
            whole = objects.replaced(tree, {path: merged}) if merged else tree
            added = {path: frozenset(lines)} if lines else {}
            drifts = check(
                objects,
                whole,
                added,
                before=before,
                upstream=tree,
                base=objects.tree_of(self._carried.base),
                known=self._read,
                hints=False,
                hasty=True,
                environment=environment,
            )
            self._known[key] = frozenset(map(_kind, drifts))
        return self._known[key]

    def _merged(self, tree: TreeId, before: TreeId, path: str) -> Entry | None:
        """Merge a file's patches onto another tree. If that tree lacks the file, return it as on the new base; None in conflict."""
        objects = self._objects
        base = objects.entry(objects.tree_of(self._carried.base), path)
        ours, theirs = objects.entry(tree, path), objects.entry(before, path)
        if base is None or ours is None or theirs is None:
            return objects.entry(objects.tree_of(self._carried.tip), path)
        triple = Triple(base, ours, theirs)
        if ours == base:
            return theirs
        merge_files(objects, self._merges, [triple])
        return None if self._merges[triple].conflicts else self._merges[triple].entry


def _new_lines(old: bytes, new: bytes) -> frozenset[int]:
    """Return the numbers of the lines of `new` that `old` does not have anywhere."""
    known = set(old.split(b"\n"))
    return frozenset(number for number, line in enumerate(new.split(b"\n"), 1) if line not in known)


def _kind(drift: Drift) -> str:
    """Return the problem without its hint, which differs from tree to tree."""
    return drift.problem.partition(": ")[0]
