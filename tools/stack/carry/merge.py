# SPDX-License-Identifier: Apache-2.0
"""Three-way merge of one patch's change into another tree, without a working tree.

Most files of a patch are the same on both bases, so their merge is known without merging: the result is taken over by id.
What is left goes to `git merge-tree --write-tree`, as two small trees of just those files; only where a file is gone on the
new base (renamed, perhaps) git gets the whole trees and looks for it. The merge base is told to git through the commits'
common parent, which works from git 2.38 on (`--merge-base` needs 2.40).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from stack.carry.outcome import Conflict
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import EMPTY_TREE, Entry, Identity, Objects

_FOLDER = 0o040000
_NOBODY = Identity("stack", "stack@localhost", "0 +0000")
_MARKER = re.compile(rb"^(<{7}|\|{7}|={7}|>{7})(?: .*)?\r?$")


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged tree; where there are conflicts it is of no use but to look at them."""

    tree: TreeId
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()


def merge(objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId) -> Merged:
    """Bring the change from `base` to `theirs` into `ours`."""
    changes = {path: (old, new) for path, old, new in objects.difference(base, theirs)}
    taken: dict[str, Entry | None] = {}
    open_paths: list[str] = []
    gone = False
    for path, (old, new) in changes.items():
        have = objects.entry(ours, path)
        if have == new:
            continue
        if have == old and _fits(objects, base, ours, path, old):
            taken[path] = new
        else:
            open_paths.append(path)
            gone = gone or have is None or have.mode == _FOLDER or old is None
    if not open_paths:
        return Merged(objects.replaced(ours, taken) if taken else ours)
    if gone:
        return _merge_trees(objects, base, ours, theirs)
    parts = [_part(objects, tree, open_paths) for tree in (base, ours, theirs)]
    merged = _merge_trees(objects, *parts)
    changed: dict[str, Entry | None] = {path: new for path, _, new in objects.difference(parts[1], merged.tree)}
    return Merged(objects.replaced(ours, taken | changed), merged.conflicts, merged.notes)


def _fits(objects: Objects, base: TreeId, ours: TreeId, path: str, old: Entry | None) -> bool:
    """Whether a file that is the same on both sides can be replaced by id.

    A new file is only that simple where its folder is still there: where the whole folder has gone, git looks whether it was
    renamed, and the file may belong elsewhere.
    """
    if old is not None:
        return True
    parts = path.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        was, now = objects.entry(base, folder), objects.entry(ours, folder)
        if was is not None and (now is None or now.mode != _FOLDER):
            return False
        if now is not None and now.mode != _FOLDER:
            return False
    return True


def _part(objects: Objects, tree: TreeId, paths: list[str]) -> TreeId:
    """The tree of just those files."""
    entries = {path: objects.entry(tree, path) for path in paths}
    return objects.replaced(EMPTY_TREE, {path: entry for path, entry in entries.items() if entry is not None})


def _merge_trees(objects: Objects, base: TreeId, ours: TreeId, theirs: TreeId) -> Merged:
    root = objects.write_commit(base, (), "base\n", _NOBODY)
    sides = [objects.write_commit(tree, (root,), f"{name}\n", _NOBODY) for name, tree in (("onto", ours), ("patch", theirs))]
    done = git.run(
        ["-c", "merge.conflictStyle=merge", "merge-tree", "--write-tree", "-z", "--messages", *sides],
        env={"GIT_DIR": str(objects.repository)},
        accept=(0, 1),
    )
    fields = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    tree = TreeId(fields[0])
    end = fields.index("", 1) if "" in fields[1:] else len(fields)
    stages = _stages(fields[1:end])
    messages = _messages(fields[end + 1 :])
    if done.returncode == 0:
        return Merged(tree, notes=tuple(text for _, kind, text in messages if kind != "Auto-merging"))
    conflicts: list[Conflict] = []
    for path in sorted(stages):
        reasons = [text for paths, kind, text in messages if path in paths and kind.startswith("CONFLICT")]
        conflicts += _conflicts(objects, tree, path, " ".join(reasons) or "conflict")
    unnamed = [text for paths, kind, text in messages if kind.startswith("CONFLICT") and not stages.keys() & set(paths)]
    conflicts += [Conflict(paths[0] if paths else "", None, text) for paths, _, text in messages if text in unnamed]
    return Merged(tree, tuple(conflicts))


def _stages(fields: list[str]) -> Mapping[str, list[str]]:
    stages: dict[str, list[str]] = {}
    for field in fields:
        head, _, path = field.partition("\t")
        stages.setdefault(path, []).append(head.split(" ")[2])
    return stages


def _messages(fields: list[str]) -> list[tuple[list[str], str, str]]:
    """(paths, kind, text) of each message: `-z` writes a count, that many paths, the kind, the text."""
    found = []
    place = 0
    while place < len(fields) and fields[place].isdigit():
        count = int(fields[place])
        paths = fields[place + 1 : place + 1 + count]
        kind, text = fields[place + 1 + count : place + 3 + count]
        found.append((paths, kind, " ".join(text.split())))
        place += 3 + count
    return found


def _conflicts(objects: Objects, tree: TreeId, path: str, reason: str) -> list[Conflict]:
    entry = objects.entry(tree, path)
    spans = conflict_lines(objects.read(entry.id)) if entry is not None and entry.mode != _FOLDER else []
    return [Conflict(path, span, reason) for span in spans] or [Conflict(path, None, reason)]


def conflict_lines(data: bytes) -> list[tuple[int, int]]:
    """The conflicts of a file with markers, as (first, last) lines of our side, that is of the file before the merge.

    Where our side of a conflict is empty, both numbers are the line after which the other side wanted to insert.
    """
    found: list[tuple[int, int]] = []
    line = 0
    side = ""
    first = 0
    for text in data.split(b"\n"):
        marker = _MARKER.match(text)
        kind = marker[1][:1] if marker else b""
        if kind == b"<" and side == "":
            side, first = "ours", line + 1
        elif kind in (b"|", b"=") and side == "ours":
            found.append((min(first, max(line, 1)), max(line, 1)))
            side = "base" if kind == b"|" else "theirs"
        elif kind == b"=" and side == "base":
            side = "theirs"
        elif kind == b">" and side == "theirs":
            side = ""
        elif side in ("", "ours"):
            line += 1
    return found
