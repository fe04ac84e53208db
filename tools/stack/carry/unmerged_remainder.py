# SPDX-License-Identifier: Apache-2.0
"""Split a patch into groups of changed lines, and build the patch with only some of its groups.

A group is a hunk of a diff without context. It is carried whole or not at all: half of a group would be code that
nobody wrote.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from stack.model.diff import FileDiff, Hunk, parse
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import FILES, Entry, Objects


@dataclass(frozen=True, slots=True)
class Group:
    """Adjacent changed lines of one file; `hunk` is None if the change has no lines (a mode, a binary file)."""

    path: str
    old: Entry | None
    new: Entry | None
    hunk: Hunk | None

    @property
    def added(self) -> list[bytes]:
        """Return the lines that it adds, with their line ends."""
        return _added(self.hunk) if self.hunk is not None else []


def groups(objects: Objects, before: TreeId, after: TreeId) -> tuple[Group, ...]:
    """Return all groups of the change from one tree to another.

    Raises:
        GitError: git cannot compare the trees.

    """
    files = {file.path: file for file in parse(difference(objects, before, after, context=0))} if before != after else {}
    return tuple(
        group for path, old, new in objects.difference(before, after) for group in _of_file(path, old, new, files.get(path))
    )


def _of_file(path: str, old: Entry | None, new: Entry | None, file: FileDiff | None) -> Iterator[Group]:
    plain = new is not None and all(entry is None or entry.mode in FILES for entry in (old, new))
    if not plain or file is None or not file.hunks:
        yield Group(path, old, new, None)
        return
    assert new is not None
    if old is not None and old.mode != new.mode:
        yield Group(path, old, Entry(new.mode, old.id), None)
    for hunk in file.hunks:
        yield Group(path, old, new, hunk)


def only(objects: Objects, before: TreeId, kept: Collection[Group]) -> TreeId:
    """Return the tree `before` with only the groups in `kept` applied."""
    changes: dict[str, Entry | None] = {}
    for path in dict.fromkeys(group.path for group in kept):
        own = [group for group in kept if group.path == path]
        hunks = [group.hunk for group in own if group.hunk is not None]
        entry = next((group.new for group in own if group.hunk is None), own[0].old)
        if hunks:
            assert own[0].new is not None
            mode = entry.mode if entry is not None else own[0].new.mode
            data = patched(objects.read(entry.id) if entry is not None else b"", hunks)
            entry = Entry(mode, objects.write_blob(data))
        changes[path] = entry
    return objects.replaced(before, changes) if changes else before


def difference(objects: Objects, before: TreeId, after: TreeId, *, context: int = 3) -> bytes:
    """Return git's diff of two trees.

    Raises:
        GitError: git cannot compare them.

    """
    show = [
        "-r",
        "-p",
        f"-U{context}",
        "--full-index",
        "--binary",
        "--no-renames",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
    ]
    command = ["-c", "core.quotePath=false", "diff-tree", *show, before, after]
    return git.run(command, env={"GIT_DIR": str(objects.repository)}).stdout


def patched(data: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Apply hunks without context to a file."""
    lines = split(data)
    result: list[bytes] = []
    done = 0
    for hunk in hunks:
        start = hunk.old_start - (1 if hunk.old_count else 0)
        result += lines[done:start]
        done = start + hunk.old_count
        result += _added(hunk)
    return b"".join(result + lines[done:])


def _added(hunk: Hunk) -> list[bytes]:
    # `\ No newline at end of file` follows the line that it refers to.
    ends = [b"" if after[:1] == b"\\" else b"\n" for after in (*hunk.lines[1:], b"")]
    return [line[1:] + end for line, end in zip(hunk.lines, ends, strict=True) if line[:1] == b"+"]


def split(data: bytes) -> list[bytes]:
    """Split a file into lines with their line ends; only a line feed ends a line."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
