# SPDX-License-Identifier: Apache-2.0
"""Carrying a chain of patches from one base to another: every patch is tried, each gets its outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stack.carry import apply
from stack.carry.export import Diffs
from stack.carry.merge import FileMerges, Merged, ahead, merge
from stack.carry.outcome import Carried, Outcome
from stack.model.diff import places
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.store.objects import Objects


@dataclass(frozen=True, slots=True)
class Carry:
    """The patches of one upstream, carried: the chain on the old base, the outcomes, and the new patch files.

    `exported` holds the bytes of every patch that goes on living, by the patch's path below `stacks/`.
    """

    base: CommitId
    onto: CommitId
    sources: tuple[CommitId, ...]
    rows: tuple[Carried, ...]
    exported: Mapping[str, bytes]

    @property
    def complete(self) -> bool:
        """Whether no patch needs a person."""
        return all(row.outcome is not Outcome.CONFLICT for row in self.rows)

    @property
    def source_tip(self) -> CommitId:
        """The last commit on the old base."""
        return self.sources[-1] if self.sources else self.base

    @property
    def tip(self) -> CommitId:
        """The last commit on the new base."""
        commits = [row.commit for row in self.rows if row.commit is not None]
        return commits[-1] if commits else self.onto


def carry(
    objects: Objects,
    base: CommitId,
    onto: CommitId,
    patches: Sequence[Patch],
    *,
    resolved: Mapping[str, TreeId] | None = None,
) -> Carry:
    """Carry `patches`, a chain on `base`, onto `onto`.

    A patch in conflict is left out and the next ones are tried without it. `resolved` gives the tree after a patch (by its path
    below `stacks/`) where a person has resolved its conflict.

    Raises:
        DoesNotApply: a patch does not fit `base`.

    """
    sources = apply.chain(objects, base, patches)
    merges = ahead(objects, objects.tree_of(onto), [objects.tree_of(commit) for commit in (base, *sources)])
    rows: list[Carried] = []
    tip = onto
    exported: dict[str, bytes] = {}
    made: list[tuple[Patch, CommitId]] = []
    with Diffs(objects) as diffs:
        for patch, before, source in zip(patches, (base, *sources), sources, strict=False):
            row = _carry_one(objects, merges, patch, before, source, tip, (resolved or {}).get(patch.ref.path))
            if row.outcome is Outcome.CONFLICT:
                row = replace(row, evidence=_follows(row, rows))
            if row.commit is not None:
                if _same_change(objects, (before, source), (tip, row.commit)):
                    exported[patch.ref.path] = patch.raw
                else:
                    diffs.add(row.commit)
                    made.append((patch, row.commit))
                tip = row.commit
            rows.append(row)
        exported |= diffs.finish(made)
    return Carry(base, onto, sources, tuple(_placed(row, exported) for row in rows), exported)


def _carry_one(
    objects: Objects,
    merges: FileMerges,
    patch: Patch,
    before: CommitId,
    source: CommitId,
    tip: CommitId,
    resolved: TreeId | None,
) -> Carried:
    ours = objects.tree_of(tip)
    by_hand = resolved is not None
    merged = Merged(resolved) if resolved else merge(objects, merges, objects.tree_of(before), ours, objects.tree_of(source))
    if merged.conflicts:
        return Carried(patch, Outcome.CONFLICT, source, None, ours, merged.conflicts)
    if merged.tree == ours:
        return Carried(
            patch,
            Outcome.LANDED,
            source,
            None,
            ours,
            evidence="left out by hand" if by_hand else "nothing left to change",
            resolved=by_hand,
        )
    new = apply.commit(objects, merged.tree, tip, patch)
    evidence = "; ".join([*merged.notes, *(["resolved by hand"] if by_hand else [])])
    return Carried(patch, Outcome.CLEAN, source, new, merged.tree, evidence=evidence, resolved=by_hand)


def _same_change(objects: Objects, was: tuple[CommitId, CommitId], now: tuple[CommitId, CommitId]) -> bool:
    """Whether a patch replaces the same blobs by the same blobs as before: then its file is the same to the byte."""
    changes = [list(objects.difference(objects.tree_of(old), objects.tree_of(new))) for old, new in (was, now)]
    return changes[0] == changes[1]


def _follows(row: Carried, earlier: Sequence[Carried]) -> str:
    """Names the earlier conflict in the same file, if there is one: this one may only follow from it."""
    paths = {conflict.path for conflict in row.conflicts}
    for other in earlier:
        if other.outcome is Outcome.CONFLICT and paths & set(apply.touched(other.patch)):
            return f"may only follow from {other.patch.ref.path}"
    return ""


def _placed(row: Carried, exported: Mapping[str, bytes]) -> Carried:
    """Tell `moved` from `clean`: by the lines and files at which the exported patch applies."""
    data = exported.get(row.patch.ref.path)
    if data is None or data == row.patch.raw:
        return row
    was, now = places(row.patch.diff), places(data[len(row.patch.raw) - len(row.patch.diff) :])
    if was == now:
        return row
    return replace(row, outcome=Outcome.MOVED, evidence="; ".join(filter(None, (row.evidence, f"now {_shift(was, now)}"))))


def _shift(was: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]]) -> str:
    """Where a patch applies now, told by its first file or hunk that moved."""
    if [bool(line) for _, line in was] != [bool(line) for _, line in now]:
        return "in other hunks"
    pairs = [(old, new) for old, new in zip(was, now, strict=True) if old != new]
    files = [f"in {_file(new[0])}, was {_file(old[0])}" for old, new in pairs if old[0] != new[0] and not new[1]]
    hunks = [f"at {_file(new[0])}:{new[1]}, was {old[1]}" for old, new in pairs if old[0] == new[0]]
    told = files or hunks
    return told[0] + (f" and {len(told) - 1} more" if len(told) > 1 else "")


def _file(name_line: str) -> str:
    """The new path in `a/old b/new`; only for people to read."""
    return name_line.rpartition(" b/")[2] or name_line
