# SPDX-License-Identifier: Apache-2.0
"""Cut a change by file, by hunk, or at the boundaries of definitions; whether a part works alone is decided elsewhere."""

import ast
import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from stack.carry.drift.tree import ASIDE
from stack.carry.unmerged_remainder import difference, split
from stack.model.diff import FileDiff, parse, smaller
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects


class By(StrEnum):
    """The places where a change is cut."""

    FILE = "file"
    HUNK = "hunk"
    DEFINITION = "definition"


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a change: its name, whether it has only tests or documentation, and the tree with it and all earlier parts."""

    name: str
    aside: bool
    tree: TreeId


@dataclass(frozen=True, slots=True)
class _Edit:
    """Replacement of a file's lines `first` to `last` (from 0, `last` excluded) by lines `new_first` to `new_last` of the new file."""

    first: int
    last: int
    new_first: int
    new_last: int


def cut(objects: Objects, before: TreeId, after: TreeId, by: By) -> tuple[Cut, ...]:
    """Return the parts of a change in the order of its diff; a single part if it cannot be cut.

    Raises:
        StackError: the repository cannot be read.

    """
    parts: list[Cut] = []
    tree = before
    files = parse(difference(objects, before, after))
    if any(file.new is None for file in files):  # a deleted file may be a renamed one: keep deleted and new files together
        moved = [file for file in files if file.old is None or file.new is None]
        for file in moved:
            tree = objects.replaced(tree, _changes(objects, before, after, file, None))
        parts.append(Cut(moved[0].path, all(is_aside(file.path) for file in moved), tree))
        files = tuple(file for file in files if file not in moved)
    for file in files:
        done: list[_Edit] = []
        for name, edits in _parts(objects, after, file, by):
            done += edits
            tree = objects.replaced(tree, _changes(objects, before, after, file, done if edits else None))
            parts.append(Cut(name, is_aside(file.path), tree))
    assert tree == after
    return tuple(parts)


def is_aside(path: str) -> bool:
    """Return whether a file is a test or documentation, which belongs to other code."""
    folders = path.split("/")[:-1]
    return (bool(folders) and folders[0] in ASIDE) or "tests" in folders or path.endswith((".md", ".rst"))


def _parts(objects: Objects, after: TreeId, file: FileDiff, by: By) -> Iterator[tuple[str, Sequence[_Edit]]]:
    """Yield the parts of a file's change by name, each with its edits; without edits if the file is taken as a whole."""
    whole = (
        file.binary or not file.hunks or file.old != file.new or file.old_mode != file.new_mode or file.new_mode not in FILES
    )
    if by is By.FILE or whole:
        yield file.path, ()
    elif by is By.HUNK:
        for hunk in file.hunks:
            yield f"{file.path}:{hunk.new_start}", [_edit(*run) for run in _runs(replace(file, hunks=(hunk,)))]
    else:
        entry = objects.entry(after, file.path)
        assert entry is not None
        definition_of = _definitions(file.path, objects.read(entry.id))
        named: dict[str, list[_Edit]] = {}
        for run in _runs(file):
            for edit in _at_boundaries(_edit(*run), definition_of):
                named.setdefault(definition_of(edit.new_first), []).append(edit)
        for name, edits in named.items():
            yield f"{file.path}:{name}" if name else file.path, edits


def _runs(file: FileDiff) -> Iterator[tuple[int, int, int, int]]:
    """Yield (first, count) before and after of each run of changed lines, counted from 0."""
    for hunk in smaller(file.hunks):
        lines = [line[:1] for line in hunk.lines if line[:1] != b"\\"]
        above = next(place for place, kind in enumerate(lines) if kind in b"+-")
        old, new = lines.count(b"-"), lines.count(b"+")
        yield hunk.old_start - bool(hunk.old_count) + above, old, hunk.new_start - bool(hunk.new_count) + above, new


def _edit(old: int, old_count: int, new: int, new_count: int) -> _Edit:
    return _Edit(old, old + old_count, new, new + new_count)


def _at_boundaries(edit: _Edit, definition_of: Callable[[int], str]) -> Iterator[_Edit]:
    """Split an edit into pieces that each add to one definition; removed lines go with the first piece."""
    starts = [
        line
        for line in range(edit.new_first, edit.new_last)
        if line == edit.new_first or definition_of(line) != definition_of(line - 1)
    ] or [edit.new_first]
    for place, start in enumerate(starts):
        end = starts[place + 1] if place + 1 < len(starts) else edit.new_last
        yield _Edit(edit.first if place == 0 else edit.last, edit.last, start, end)


def _definitions(path: str, data: bytes) -> Callable[[int], str]:
    """Return a function that maps a line (from 0) to the name of its definition, empty outside of definitions.

    Blank lines above a definition belong to it.
    """
    if not path.endswith((".py", ".pyi")):
        return lambda _: ""
    try:
        spans = sorted(_spans(ast.parse(data), ""))
    except (SyntaxError, ValueError, RecursionError):
        return lambda _: ""
    lines = data.split(b"\n")
    firsts = []
    for first, _, _ in spans:
        while first and not lines[first - 1].strip():
            first -= 1  # noqa: PLW2901 (moves the loop variable)
        firsts.append(first)

    def of(line: int) -> str:
        place = bisect.bisect_right(firsts, line) - 1
        return spans[place][2] if place >= 0 and line < spans[place][1] else ""

    return of


def _spans(scope: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[int, int, str]]:
    """Yield (first, end, name) of definitions, lines from 0: functions, methods, and a class's part before its methods."""
    for node in scope.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        assert node.end_lineno is not None
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        name = f"{prefix}{node.name}"
        inner = list(_spans(node, f"{name}.")) if isinstance(node, ast.ClassDef) else []
        yield first, min([start for start, _, _ in inner], default=node.end_lineno), name
        yield from inner


def _changes(
    objects: Objects, before: TreeId, after: TreeId, file: FileDiff, edits: Sequence[_Edit] | None
) -> dict[str, Entry | None]:
    """Return the new entries of a file after some edits, or after its whole change if `edits` is None."""
    new = objects.entry(after, file.new) if file.new is not None else None
    if edits is None:
        return {path: new if path == file.new else None for path in (file.old, file.new) if path is not None}
    old = objects.entry(before, file.path)
    assert old is not None
    assert new is not None
    was, now = split(objects.read(old.id)), split(objects.read(new.id))
    result: list[bytes] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: (edit.first, edit.new_first)):
        result += [*was[done : edit.first], *now[edit.new_first : edit.new_last]]
        done = edit.last
    return {file.path: Entry(new.mode, objects.write_blob(b"".join(result + was[done:])))}
