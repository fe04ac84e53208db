# SPDX-License-Identifier: Apache-2.0
"""Three-way merge of one patch's change into another tree, without a working tree.

Many files of a patch are the same on both bases, so their merged blob is the patch's own. The others go to `git merge-tree` as
small trees of just these files. Only if a file is missing on the new base, git merges the whole trees to detect a rename.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Self

from stack.carry import attributes
from stack.carry.mergetree import Merging, Result, merge_trees
from stack.carry.outcome import Conflict
from stack.model.diff import Hunk, smaller, substituted
from stack.model.ids import TreeId
from stack.model.patch import Patch
from stack.model.patch import files as files_of
from stack.store.objects import EMPTY_TREE, FILES, FOLDER, Difference, Entry, Objects

APART = "upstream's .gitattributes say that its lines cannot be merged (-merge): make it anew"
"""The reason of a conflict that only a person can resolve."""
_STATED = "upstream's .gitattributes ask for it"
_KIND = re.compile(r"CONFLICT \(([^)]+)\)")
# Git's note on which version it left in the tree; users never see that tree.
_LEFT = re.compile(r"\.? +Version .* left in tree( at .*)?\.$")
# If two entries need the same name, git appends its side's commit id to one of them.
_SIDE = re.compile(r"~[0-9a-f]{40}(_\d+)?$")
_MARKER = re.compile(rb"^(<{7}|\|{7}|={7}|>{7})(?: [^\n]*)?\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged tree; with conflicts, its files have conflict markers."""

    tree: TreeId
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()


class Triple(NamedTuple):
    """One file before the change and on both sides; `way` is its merge attribute, if it has one."""

    base: Entry
    ours: Entry
    theirs: Entry
    way: str = ""


@dataclass(frozen=True, slots=True)
class FileMerge:
    """A merged file; the paths of its `conflicts` are still empty."""

    entry: Entry | None
    conflicts: tuple[Conflict, ...]


FileMerges = dict[Triple, FileMerge]
Edits = dict[tuple[str, str], tuple[Hunk, ...]]
"""The hunks that lead from one blob to another."""


def merge(objects: Objects, merges: FileMerges, base: TreeId, ours: TreeId, theirs: TreeId) -> Merged:
    """Merge the change from `base` to `theirs` into `ours`; `merges` has the known file merges, and new ones are added."""
    changes: dict[str, Entry | None] = {}
    both: dict[str, Triple] = {}
    differences = list(objects.difference(base, theirs))
    if _moves_a_folder(objects, theirs, differences):
        return _whole(objects, base, ours, theirs)
    for path, old, new in differences:
        have = objects.entry(ours, path)
        if have == new and new is not None:
            continue
        if have == old and (old is not None or _folder_stands(objects, base, ours, path)):
            changes[path] = new
        elif have is None or have.mode == FOLDER or old is None or new is None:
            return _whole(objects, base, ours, theirs)
        else:
            both[path] = Triple(old, have, new)
    ways = attributes.merging(objects, ours, both) if both else {}
    both |= {path: both[path]._replace(way=way) for path, way in ways.items()}
    merge_files(objects, merges, both.values())
    changes |= {path: merges[triple].entry for path, triple in both.items()}
    conflicts = [replace(conflict, path=path) for path, triple in both.items() for conflict in merges[triple].conflicts]
    notes = tuple(f"{path}: the lines of both are kept, as {_STATED}" for path, way in ways.items() if way == attributes.UNION)
    return Merged(objects.replaced(ours, changes) if changes else ours, tuple(conflicts), notes)


def _whole(objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId) -> Merged:
    """Merge whole trees with git's rename detection; read the merge attributes of all files that either side changed."""
    paths = {path for side in (ours, theirs) for path, _, new in objects.difference(base, side) if new is not None}
    ways = attributes.merging(objects, ours, paths)
    merged = _read(objects, merge_trees(objects, base, ours, theirs, attributes.lines(ways)))
    return replace(merged, conflicts=tuple(_stated(conflict, ways.get(conflict.path, "")) for conflict in merged.conflicts))


def _stated(conflict: Conflict, way: str) -> Conflict:
    """Return the conflict, with the merge attribute as its reason if the attribute forbids merging."""
    return replace(conflict, reason=APART) if way == attributes.APART else conflict


def edits(patches: Iterable[Patch]) -> Edits:
    """Return the hunks of all patches, by the blob ids before and after."""
    return {
        (file.old_id, file.new_id): file.hunks
        for patch in patches
        for file in files_of(patch)
        if file.old_id and file.new_id and file.hunks
    }


def ahead(
    objects: Objects,
    onto: TreeId,
    chain: Sequence[TreeId],
    known: Edits | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> FileMerges:
    """Merge the files that carrying a chain of trees will need, in few calls of git.

    A file's merges depend only on earlier merges of the same file. So the first merges of all files go into one call. While
    git works, their results are guessed from the hunks in `known`. All later merges go into a second call, with these guesses
    as input. A guess never becomes a result: if it was wrong, the later merges are made again from git's own result.
    Merges that are not foreseen (after a patch that is left out) are made when they are needed. The patches' hunks on the new
    base are added to `known`. `meanwhile` is other work to do while git works; without merges it is not called.
    """
    known = {} if known is None else known
    steps: dict[str, list[tuple[Entry, Entry]]] = {}
    for before, after in itertools.pairwise(chain):
        for path, old, new in objects.difference(before, after):
            if old is not None and new is not None:
                steps.setdefault(path, []).append((old, new))
    entries = {path: objects.entry(onto, path) for path in steps}
    stated = attributes.merging(objects, onto, steps)
    ways = [
        _Way(entry, tuple(steps[path]), stated.get(path, ""))
        for path, entry in entries.items()
        if entry is not None and entry.mode != FOLDER
    ]
    merges: FileMerges = {}
    while waiting := [needed for way in ways if (needed := _next_merge(way, merges)) is not None]:
        with _FileMerging(objects, [triple for triple, _ in waiting]) as first:
            foreseen = [triple for needed in waiting for triple in _foreseen(objects, known, merges, *needed)]
            with _FileMerging(objects, foreseen) as later:
                if meanwhile is not None:
                    meanwhile()
                    meanwhile = None
                merges |= first.results() | later.results()
    for triple, merged in merges.items():
        if merged.entry is not None and (triple.base.id, triple.theirs.id) in known:
            known.setdefault((triple.ours.id, merged.entry.id), known[triple.base.id, triple.theirs.id])
    return merges


class _Way(NamedTuple):
    """A file that is being carried: its current entry, the changes still to merge, and its merge attribute."""

    have: Entry
    steps: tuple[tuple[Entry, Entry], ...]
    stated: str = ""


def _next_merge(way: _Way, merges: FileMerges) -> tuple[Triple, _Way] | None:
    """Return a file's next merge that is not in `merges`, and the file's state after it; None if there is none."""
    have, steps, stated = way
    for place, (old, new) in enumerate(steps, 1):
        if have in (old, new):
            have = new
            continue
        triple = Triple(old, have, new, stated)
        done = merges.get(triple)
        if done is None:
            return triple, _Way(have, steps[place:], stated)
        if done.conflicts or done.entry is None:
            return None
        have = done.entry
    return None


def _foreseen(objects: Objects, known: Edits, merges: FileMerges, triple: Triple, way: _Way) -> Iterator[Triple]:
    """Yield the merges of a file after this one, as far as their input can be guessed."""
    while way.steps and (entry := _guess(objects, known, triple)) is not None:
        needed = _next_merge(way._replace(have=entry), merges)
        if needed is None:
            return
        triple, way = needed
        yield triple


def _guess(objects: Objects, known: Edits, triple: Triple) -> Entry | None:
    """Guess the result of a merge: apply the hunks of the change to our file, wherever their lines are."""
    base, ours, theirs, stated = triple
    hunks = known.get((base.id, theirs.id))
    if hunks is None or stated or base.mode != theirs.mode or ours.mode not in FILES:
        return None
    data = objects.read(ours.id)
    merged = substituted(data, hunks) or substituted(data, smaller(hunks))
    return Entry(ours.mode, objects.write_blob(merged)) if merged is not None else None


def merge_files(objects: Objects, merges: FileMerges, triples: Iterable[Triple]) -> None:
    """Merge the files that are not in `merges` yet, in one call of git."""
    with _FileMerging(objects, (triple for triple in triples if triple not in merges)) as merging:
        merges |= merging.results()


class _FileMerging:
    """Merges many files in one call of git: as flat trees, with a number as each file's name."""

    def __init__(self, objects: Objects, triples: Iterable[Triple]) -> None:
        self._objects = objects
        self._names = {f"{number:05}": triple for number, triple in enumerate(dict.fromkeys(triples))}
        self._versions = {name: (triple.base, triple.ours, triple.theirs) for name, triple in self._names.items()}
        self._git = self._start() if self._names else None

    def _start(self) -> Merging:
        base, ours, theirs = (
            self._objects.replaced(EMPTY_TREE, {name: versions[side] for name, versions in self._versions.items()})
            for side in range(3)
        )
        ways = {name: triple.way for name, triple in self._names.items() if triple.way}
        return Merging(self._objects, base, ours, theirs, attributes.lines(ways))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._git is not None:
            self._git.__exit__(kind, value, trace)

    def results(self) -> FileMerges:
        """Wait for git and return the merged files."""
        if self._git is None:
            return {}
        merged = _read(self._objects, self._git.result())
        conflicts: dict[str, list[Conflict]] = {}
        for conflict in merged.conflicts:
            conflicts.setdefault(conflict.path, []).append(replace(conflict, path="", reason=_kind(conflict.reason)))
        return {
            triple: FileMerge(
                self._objects.entry(merged.tree, name),
                tuple(_stated(conflict, triple.way) for conflict in conflicts.get(name, ())),
            )
            for name, triple in self._names.items()
        }


def _folder_stands(objects: Objects, base: TreeId, ours: TreeId, path: str) -> bool:
    """Return whether our side still has a new file's folder.

    If not, the folder may have been renamed, and the file belongs in the renamed folder.
    """
    parts = path.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        was, now = objects.entry(base, folder), objects.entry(ours, folder)
        if (now is None and was is not None) or (now is not None and now.mode != FOLDER):
            return False
    return True


def _kind(reason: str) -> str:
    """Return the kind of conflict from git's message, without the file's name."""
    match = _KIND.search(reason)
    return "binary" if "binary files" in reason else match[1] if match else reason


def _moves_a_folder(objects: Objects, theirs: TreeId, differences: Iterable[Difference]) -> bool:
    """Return whether the change removes a folder and adds files.

    The folder may have been renamed, and files that the other side adds belong in the renamed folder.
    """
    folders = {path.rpartition("/")[0] for path, _, new in differences if new is None and "/" in path}
    return any(old is None for _, old, _ in differences) and any(
        (entry := objects.entry(theirs, folder)) is None or entry.mode != FOLDER for folder in folders
    )


def _read(objects: Objects, result: Result) -> Merged:
    if result.clean:
        return Merged(result.tree, notes=tuple(message.text for message in result.messages if message.kind != "Auto-merging"))
    conflicts: dict[Conflict, None] = {}
    messages = [message for message in result.messages if message.kind.startswith("CONFLICT")]
    for path in sorted(result.stages):
        reason = " ".join(_LEFT.sub("", message.text) for message in messages if path in message.paths) or "conflict"
        entry = objects.entry(result.tree, path)
        spans = conflict_lines(objects.read(entry.id)) if entry is not None and entry.mode in FILES else []
        name = _SIDE.sub("", path)
        conflicts |= dict.fromkeys([Conflict(name, span, reason) for span in spans] or [Conflict(name, None, reason)])
    elsewhere = [message for message in messages if not result.stages.keys() & set(message.paths)]
    conflicts |= dict.fromkeys(Conflict(message.paths[0] if message.paths else "", None, message.text) for message in elsewhere)
    return Merged(result.tree, tuple(conflicts))


def conflict_lines(data: bytes) -> list[tuple[int, int]]:
    """Return the conflicts of a file with markers, as (first, last) lines of our side, that is, of the file before the merge.

    If our side of a conflict is empty, both numbers are the line after which the other side inserts.
    """
    spans: list[tuple[int, int]] = []
    line = first = done = 0
    side = ""
    for marker in _MARKER.finditer(data):
        kind = marker[1][:1]
        if side in ("", "ours"):
            line += data.count(b"\n", done, marker.start())
        done = marker.end() + 1
        if kind == b"<" and side == "":
            side, first = "ours", line + 1
        elif kind in (b"|", b"=") and side == "ours":
            spans.append((min(first, max(line, 1)), max(line, 1)))
            side = "base" if kind == b"|" else "theirs"
        elif kind == b"=" and side == "base":
            side = "theirs"
        elif kind == b">" and side == "theirs":
            side = ""
        elif side in ("", "ours"):
            line += 1
    return spans
