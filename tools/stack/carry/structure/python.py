# SPDX-License-Identifier: Apache-2.0
"""Resolve conflicts in Python files: find the statements around them, weave the additions in, prove the result."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from stack.carry.structure.hunks import Cell, Doubt
from stack.carry.structure.items import Source
from stack.carry.structure.proof import bound, order_read, prove
from stack.carry.structure.weave import Woven, weave


def resolve(cells: Sequence[Cell], ours: bytes, theirs: bytes) -> tuple[bytes, str]:
    """Return the merged file and the evidence.

    Raises:
        Doubt: a conflict cannot be resolved with certainty.

    """
    whole = Source(b"".join(cell.ours for cell in cells))
    # Whether their side also changes the file elsewhere, where git found no conflict.
    elsewhere = whole.data != ours
    windows = _windows(cells, whole)
    around = _around(whole, cells, windows)
    ordered = order_read(whole.tree) | order_read(Source(theirs).tree)
    pieces: list[bytes] = []
    evidence: list[str] = []
    last = 0
    for start, end in windows:
        pieces += [cell.ours for cell in cells[last:start]]
        versions = ((cell.base, cell.ours, cell.theirs) for cell in cells[start:end])
        three = [b"".join(side) for side in zip(*versions, strict=True)]
        woven = weave(*map(Source, three))
        if woven.shared and elsewhere:
            # Upstream has this change or a part of it. It may have changed the rest on purpose, which git would now add again.
            raise Doubt
        merged = woven.apply(three[1])
        if not prove(three[0], three[1], three[2], merged, around, ordered):
            raise Doubt
        line = sum(piece.count(b"\n") for piece in pieces) + 1
        evidence += _evidence(woven, three[1], line) or [_nothing_new(cells[start:end], line)]
        pieces.append(merged)
        last = end
    data = b"".join([*pieces, *(cell.ours for cell in cells[last:])])
    _no_name_twice(Source(ours) if elsewhere else whole, Source(theirs), Source(data))
    return data, "; ".join(evidence)


def _evidence(woven: Woven, ours: bytes, line: int) -> list[str]:
    texts = []
    for first, text in woven.evidence:
        before = sum(insertion.data.count(b"\n") for insertion in woven.insertions if insertion.at < first.at)
        blank = len(first.data) - len(first.data.lstrip(b"\n"))
        texts.append(text.replace("{line}", str(line + ours.count(b"\n", 0, first.at) + before + blank), 1))
    return texts


def _nothing_new(window: Iterable[Cell], line: int) -> str:
    for cell in window:
        if cell.conflict:
            break
        line += 1
    return f"ours has all that theirs adds at line {line}"


def _windows(cells: Sequence[Cell], whole: Source) -> list[tuple[int, int]]:
    """Return the spans of cells with the conflicts and the top-level statements around them; only these are parsed again.

    Every window begins and ends between statements that all versions have. So each version of a window can be parsed alone if
    its file can be parsed.
    """
    number, line = {}, 0
    for place, cell in enumerate(cells):
        if not cell.conflict:
            number[line] = place
        line += cell.ours.count(b"\n")
    cuts = _cuts(whole, number)
    found: list[tuple[int, int]] = []
    for place, cell in enumerate(cells):
        if not cell.conflict:
            continue
        before = [cut for cut in cuts if cut <= place]
        behind = [cut for cut in cuts if cut > place]
        start = before[-2] if len(before) > 1 else 0
        end = behind[1] if len(behind) > 1 else len(cells)
        if found and start <= found[-1][1]:
            start = found.pop()[0]
        found.append((start, end))
    return found


def _cuts(whole: Source, number: dict[int, int]) -> list[int]:
    """Return the cells at which a top-level statement of our side begins."""
    cuts = []
    last = -1
    for node in whole.tree.body:
        start, end = whole.span(node)
        line = whole.line(start)
        if line in number and line > last:
            cuts.append(number[line])
        last = whole.line(end)
    return cuts


def _around(whole: Source, cells: Sequence[Cell], windows: Sequence[tuple[int, int]]) -> set[str]:
    """Return the module's names that are bound outside the windows."""
    starts = [0]
    for cell in cells:
        starts.append(starts[-1] + cell.ours.count(b"\n"))
    spans = [(starts[start], starts[end]) for start, end in windows]
    names: set[str] = set()
    for node in whole.tree.body:
        line = whole.line(whole.span(node)[0])
        if not any(start <= line < end for start, end in spans):
            names |= bound(node)
    return names


def _no_name_twice(ours: Source, theirs: Source, result: Source) -> None:
    """Refuse a result that binds a name more often than both sides do, through lines that git merged cleanly elsewhere."""
    mine, new, have = (Counter(_names(source.tree)) for source in (ours, theirs, result))
    if any(count > max(mine[name], new[name], 1) for name, count in have.items()):
        raise Doubt


def _names(tree: ast.AST, scope: str = "") -> Iterator[str]:
    """Yield the names that a module and its classes bind, repeated for each binding."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler):
            if hasattr(node, "body") and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _names(node, scope)
                continue
            listed = [name.asname or name.name for name in node.names] if isinstance(node, ast.ImportFrom) else bound(node)
            for name in listed:
                yield f"{scope}.{name}"
            if isinstance(node, ast.ClassDef):
                yield from _names(node, f"{scope}.{node.name}")
