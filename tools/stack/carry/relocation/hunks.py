# SPDX-License-Identifier: Apache-2.0
"""Split the hunks of files in conflict into those that merge in place, and those that have lost their place."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from stack.carry.export import NO_ATTRIBUTES
from stack.carry.merge import merge
from stack.carry.relocation.errors import Doubt
from stack.model.diff import DiffError, FileDiff, Hunk, parse
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects

_DIFF_TREE = (
    *("--literal-pathspecs", *NO_ATTRIBUTES, "-c", "core.quotePath=false", "diff-tree", "-r", "-p"),
    *("--full-index", "--no-renames", "--no-ext-diff", "--no-textconv"),
)


@dataclass(frozen=True, slots=True)
class Core:
    """The lines that a hunk changes, without context: spans in the old and the new file (from 0, end exclusive)."""

    old: tuple[int, int]
    new: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Change:
    """The patch's change to one file."""

    path: str
    old: Entry
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    cores: tuple[Core, ...]

    def only(self, cores: Iterable[Core]) -> bytes:
        """Return the old file with only some of its hunks applied."""
        lines = list(self.before)
        for core in sorted(cores, key=lambda each: each.old, reverse=True):
            lines[slice(*core.old)] = self.after[slice(*core.new)]
        return b"\n".join(lines)


@dataclass(frozen=True, slots=True)
class Left:
    """A file's change on the new base: the file with the hunks that merge in place, and the cores of the other hunks.

    `entry` is None if the file is gone. `kept` are the places of the old file's lines that the new base's file still has.
    """

    change: Change
    entry: Entry | None
    kept: frozenset[int]
    cores: tuple[Core, ...]


def read(objects: Objects, before: TreeId, theirs: TreeId, paths: Collection[str]) -> list[Change]:
    """Read the patch's hunks of some files.

    Raises:
        Doubt: the patch adds or removes a file or changes its mode, or a file is not text.

    """
    files = {file.path: file for file in _diff(objects, before, theirs, paths, "-U3")}
    if not paths or files.keys() != set(paths):
        raise Doubt
    return [_change(objects, file, (objects.entry(before, path), objects.entry(theirs, path))) for path, file in files.items()]


def _diff(objects: Objects, old: TreeId, new: TreeId, paths: Collection[str], *options: str) -> tuple[FileDiff, ...]:
    command = [*_DIFF_TREE, *options, old, new, "--", *sorted(paths)]
    try:
        return parse(git.run(command, env={"GIT_DIR": str(objects.repository)}).stdout)
    except DiffError as bad:
        raise Doubt from bad


def _change(objects: Objects, file: FileDiff, entries: tuple[Entry | None, Entry | None]) -> Change:
    old, new = entries
    if old is None or new is None or old.mode not in FILES or old.mode != new.mode:
        raise Doubt
    before, after = (tuple(objects.read(entry.id).split(b"\n")) for entry in (old, new))
    return Change(file.path, old, before, after, tuple(_core(hunk) for hunk in file.hunks))


def _core(hunk: Hunk) -> Core:
    kinds = [line[:1] for line in hunk.lines]
    if b"\\" in kinds:  # A last line without a line end differs from the same line inside a file.
        raise Doubt
    lead = next(number for number, kind in enumerate(kinds) if kind != b" ")
    trail = next(number for number, kind in enumerate(reversed(kinds)) if kind != b" ")
    old, new = (start - 1 if count else start for start, count in _sides(hunk))
    return Core(
        (old + lead, old + hunk.old_count - trail),
        (new + lead, new + hunk.new_count - trail),
    )


def _sides(hunk: Hunk) -> tuple[tuple[int, int], tuple[int, int]]:
    return (hunk.old_start, hunk.old_count), (hunk.new_start, hunk.new_count)


def leave(objects: Objects, before: TreeId, ours: TreeId, changes: Sequence[Change]) -> list[Left]:
    """Merge those hunks in place that can be; try each alone with git's merge.

    Raises:
        Doubt: all hunks of a file merge in place (a binary file has none), or the path is not a regular file.

    """
    here = {change.path: objects.entry(ours, change.path) for change in changes}
    if any(entry is not None and entry.mode not in FILES for entry in here.values()):
        raise Doubt
    stay = _staying(objects, changes, here)
    together = [(change, entry, stay[change.path]) for change in changes if (entry := here[change.path]) is not None]
    entries = merged(objects, [_triple(objects, *each) for each in together])
    if None in entries:
        raise Doubt
    stands = {change.path: entry for (change, _, _), entry in zip(together, entries, strict=True)}
    kept = _kept(objects, before, ours, [change for change, _, _ in together])
    left = []
    for change in changes:
        cores = tuple(core for core in change.cores if core not in stay[change.path])
        if not cores:
            raise Doubt
        left.append(Left(change, stands.get(change.path), kept.get(change.path, frozenset()), cores))
    return left


def _staying(objects: Objects, changes: Sequence[Change], here: dict[str, Entry | None]) -> dict[str, list[Core]]:
    alone = [(change, entry, core) for change in changes if (entry := here[change.path]) is not None for core in change.cores]
    tried = merged(objects, [_triple(objects, change, entry, [core]) for change, entry, core in alone])
    stay: dict[str, list[Core]] = {change.path: [] for change in changes}
    for (change, _, core), entry in zip(alone, tried, strict=True):
        if entry is not None:
            stay[change.path].append(core)
    return stay


Triple = tuple[Entry, Entry, Entry]
"""One file before the change, on our side, and on the other side."""


def _triple(objects: Objects, change: Change, entry: Entry, cores: Sequence[Core]) -> Triple:
    return change.old, entry, Entry(change.old.mode, objects.write_blob(change.only(cores)))


def merged(objects: Objects, triples: Sequence[Triple]) -> list[Entry | None]:
    """Merge files three-way in one call; None for each file in conflict."""
    if not triples:
        return []
    # In flat trees with numbers as file names, git finds no renames.
    base, ours, theirs = (
        objects.replaced(EMPTY_TREE, {f"{number:05}": triple[side] for number, triple in enumerate(triples)})
        for side in range(3)
    )
    result = merge(objects, {}, base, ours, theirs)
    bad = {conflict.path for conflict in result.conflicts}
    names = [f"{number:05}" for number in range(len(triples))]
    return [None if name in bad else objects.entry(result.tree, name) for name in names]


def _kept(objects: Objects, before: TreeId, ours: TreeId, changes: Sequence[Change]) -> dict[str, frozenset[int]]:
    """Return the lines (from 0) of each old file that its file in `ours` still has, by git's patience diff."""
    every = {change.path: frozenset(range(len(change.before))) for change in changes}
    files = _diff(objects, before, ours, every.keys(), "-U0", "--patience") if every else ()
    gone = {file.path: frozenset(line for hunk in file.hunks for line in _removed(hunk)) for file in files}
    return {path: lines - gone.get(path, frozenset()) for path, lines in every.items()}


def _removed(hunk: Hunk) -> range:
    return range(hunk.old_start - 1, hunk.old_start - 1 + hunk.old_count) if hunk.old_count else range(0)
