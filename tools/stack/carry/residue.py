# SPDX-License-Identifier: Apache-2.0
"""What is left of a patch of which a part has landed: its change without the lines that upstream has by now."""

from collections.abc import Collection, Sequence

from stack.carry import history
from stack.carry.history import Line
from stack.model.diff import FileDiff, Hunk, parse
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import FILES, Entry, Objects


def residue(objects: Objects, before: TreeId, after: TreeId, missing: Collection[tuple[str, Line]]) -> TreeId:
    """The tree `before` with only those lines changed as in `after` that are missing upstream.

    What has no lines (a binary file, a mode) stays in the change.

    Raises:
        GitError: git cannot compare the trees.

    """
    changes: dict[str, Entry | None] = {}
    for file in parse(difference(objects, before, after, context=0)):
        old, new = objects.entry(before, file.path), objects.entry(after, file.path)
        telling = any(True for _ in history.lines(file))
        if not telling or not file.hunks or any(one is not None and one.mode not in FILES for one in (old, new)):
            changes[file.path] = new
            continue
        data = objects.read(old.id) if old is not None else b""
        left = _left(data, file, missing)
        if left != data:
            mode = new.mode if new is not None else old.mode if old is not None else FILES[0]
            changes[file.path] = Entry(mode, objects.write_blob(left))
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


def _left(data: bytes, file: FileDiff, missing: Collection[tuple[str, Line]]) -> bytes:
    """A file with only the missing lines changed."""
    lines = _split(data)
    result: list[bytes] = []
    done = 0
    for hunk in file.hunks:
        start = hunk.old_start - (1 if hunk.old_count else 0)
        result += lines[done:start]
        done = start + hunk.old_count
        result += _hunk(hunk, lines[start:done], [_kept(file, line, missing) for line in hunk.lines])
    return b"".join(result + lines[done:])


def _split(data: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _kept(file: FileDiff, line: bytes, missing: Collection[tuple[str, Line]]) -> bool | None:
    """Whether a changed line stays in the change; None where it tells nothing."""
    told = history.telling(line)
    return None if told is None else (file.path, told) in missing


def _hunk(hunk: Hunk, old: Sequence[bytes], kept: Sequence[bool | None]) -> list[bytes]:
    """A hunk without context, with only the kept lines changed; what tells nothing goes with the line before it."""
    decided: list[bool] = []
    for place, choice in enumerate(kept):
        following = next((later for later in kept[place:] if later is not None), False)
        decided.append(choice if choice is not None else decided[-1] if decided else following)
    removed = [stays for line, stays in zip(hunk.lines, decided, strict=True) if line[:1] == b"-"]
    # `\ No newline at end of file` follows the line that it is about.
    ends = [b"" if after[:1] == b"\\" else b"\n" for after in (*hunk.lines[1:], b"")]
    added = [line[1:] + end for line, end, stays in zip(hunk.lines, ends, decided, strict=True) if line[:1] == b"+" and stays]
    return [line for line, goes in zip(old, removed, strict=True) if not goes] + added
