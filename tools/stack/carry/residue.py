# SPDX-License-Identifier: Apache-2.0
"""What is left of a patch of which a part has landed: its change without the lines that upstream has by now."""

from collections import Counter
from collections.abc import Mapping, Sequence

from stack.carry import landing
from stack.carry.landing import Place
from stack.model.diff import FileDiff, Hunk, parse
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import FILES, Entry, Objects


def residue(objects: Objects, before: TreeId, after: TreeId, brought: Mapping[Place, int]) -> TreeId:
    """The tree `before` with only what upstream has not brought of the change to `after`.

    Lines that stand together stay together: a group of changed lines is left out if upstream has brought all of it, each line as
    often as it is there, and is kept whole otherwise. Half of a group would be code that nobody wrote. What has no lines (a
    binary file, a mode) stays in the change.

    Raises:
        GitError: git cannot compare the trees.

    """
    changes: dict[str, Entry | None] = {}
    left = Counter(brought)
    for file in parse(difference(objects, before, after, context=0)):
        old, new = objects.entry(before, file.path), objects.entry(after, file.path)
        kept = [hunk for hunk in file.hunks if not _is_brought(file, hunk, left)]
        plain = all(one is None or one.mode in FILES for one in (old, new))
        if not plain or not file.hunks or (old and new and old.mode != new.mode) or len(kept) == len(file.hunks):
            changes[file.path] = new
        elif kept:
            mode = new.mode if new is not None else FILES[0]
            changes[file.path] = Entry(mode, objects.write_blob(_with(objects.read(old.id) if old else b"", kept)))
    return objects.replaced(before, changes) if changes else before


def difference(objects: Objects, before: TreeId, after: TreeId, *, context: int = 3) -> bytes:
    """The diff of two trees as git shows it.

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


def _is_brought(file: FileDiff, hunk: Hunk, left: Counter[Place]) -> bool:
    """Whether upstream has all lines of a hunk; those are then no longer there for another one."""
    told = Counter(place for line in hunk.lines if (place := landing.place_of(file, line)) is not None)
    if not told or any(left[place] < count for place, count in told.items()):
        return False
    left -= told
    return True


def _with(data: bytes, hunks: Sequence[Hunk]) -> bytes:
    """A file with some hunks without context applied."""
    lines = split(data)
    result: list[bytes] = []
    done = 0
    for hunk in hunks:
        start = hunk.old_start - (1 if hunk.old_count else 0)
        result += lines[done:start]
        done = start + hunk.old_count
        # `\ No newline at end of file` follows the line that it is about.
        ends = [b"" if after[:1] == b"\\" else b"\n" for after in (*hunk.lines[1:], b"")]
        result += [line[1:] + end for line, end in zip(hunk.lines, ends, strict=True) if line[:1] == b"+"]
    return b"".join(result + lines[done:])


def split(data: bytes) -> list[bytes]:
    """The lines of a file with their ends; only a line feed ends one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
