# SPDX-License-Identifier: Apache-2.0
"""Resolve conflicts in C++ and CUDA files, in blocks of includes and one-line definitions.

This needs no parser: `#include`, a one-line `#define` and a one-line `using` are each complete. So they can be inserted between
any two lines of their kind, if that place is code and the line before it is not continued.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from stack.carry.structure.hunks import Cell, Doubt, lines

_INCLUDE = re.compile(rb"[ \t]*#[ \t]*include[ \t]*([<\"][^<>\"\n]+[>\"])[ \t]*(//[^\n]*)?\n")
_DEFINE = re.compile(rb"[ \t]*#[ \t]*define[ \t]+(\w+)(?:[ \t(][^\n]*)?\n")
_VALUE = re.compile(rb"[ \t]*#[ \t]*define[ \t]+\w+[ \t]+([^\n]+?)[ \t]*(?://[^\n]*)?\n")
_NUMBER = re.compile(rb"(0[xX][0-9a-fA-F]+|0[bB][01]+|0|[1-9][0-9]*)[uUlL]*")
_SHIFT = re.compile(rb"(\w+)<<(\w+)")
_USING = re.compile(rb"[ \t]*using[ \t]+(?:namespace[ \t]+)?([\w:]+)(?:[ \t]*=[^;{}\n]*)?;[ \t]*(//[^\n]*)?\n")
_HEADER = re.compile(rb"(^|/)[^./]+$|\.(h|hh|hpp|hxx|cuh)$")
_COMMENT = re.compile(rb"[ \t]*//[^\n]*\n")
_LITERAL = re.compile(
    rb'R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"|(?<![0-9a-fA-F])\'(?:[^\'\\\n]|\\.)*\'|//[^\n]*|/\*.*?\*/', re.DOTALL
)
_WORD = re.compile(rb"\w+")
_FEW = 2


@dataclass(frozen=True, slots=True)
class _Line:
    """A complete one-line construct, with the comment lines above it."""

    kind: str
    name: bytes
    text: bytes

    @property
    def value(self) -> Hashable:
        """Return the value of a constant; None if the line does not define one."""
        found = _VALUE.fullmatch(lines(self.text)[-1]) if self.kind == "define" else None
        text = b"".join(found[1].split()) if found is not None else b""
        while text.startswith(b"(") and text.endswith(b")"):
            text = text[1:-1]
        shift = _SHIFT.fullmatch(text)
        numbers = [_number(part) for part in (shift.groups() if shift is not None else (text,))]
        if None in numbers:
            return text or None
        return numbers[0] if shift is None else (numbers[0] or 0) << min(numbers[1] or 0, 64)

    @property
    def token(self) -> Hashable:
        return (self.kind, b" ".join(lines(self.text)[-1].split(b"//")[0].split()))


def _number(text: bytes) -> int | None:
    found = _NUMBER.fullmatch(text)
    return int(found[1], 0) if found is not None else None


def resolve(cells: Sequence[Cell], ours: bytes, theirs: bytes) -> tuple[bytes, str]:
    """Return the merged file and the evidence.

    Raises:
        Doubt: a conflict cannot be resolved with certainty.

    """
    elsewhere = b"".join(cell.ours for cell in cells) != ours
    pieces: list[bytes] = []
    evidence: list[str] = []
    brought: list[_Line] = []
    for place, cell in enumerate(cells):
        if not cell.conflict:
            pieces.append(cell.ours)
            continue
        before = b"".join(pieces)
        if not _is_code(before) or (place and before.endswith(b"\\\n")):
            raise Doubt
        three = [_read(data) for data in (cell.base, cell.ours, cell.theirs)]
        members = _union(three[0], three[1], three[2], _near(cells, place, -1), _near(cells, place, 1))
        new = [line for line, added in members if added]
        brought += new
        if elsewhere and _shares(three[0], three[1], three[2]):
            raise Doubt  # Upstream took a part of this change, and may have changed the rest on purpose.
        line = before.count(b"\n") + 1
        merged = b"".join(line.text for line, _ in members) + _tail(cell.ours)
        if not prove(cell.base, cell.ours, cell.theirs, merged):
            raise Doubt
        evidence.append(_say(three, new, line))
        pieces.append(merged)
    data = b"".join(pieces)
    _nothing_twice(ours, theirs, data, brought)
    return data, "; ".join(evidence)


def _shares(base: Sequence[_Line], ours: Sequence[_Line], theirs: Sequence[_Line]) -> bool:
    """Return whether both sides added the same line, other than an include."""
    old, new = {line.token for line in base}, {line.token for line in theirs}
    return any(line.kind != "include" and line.token in new - old for line in ours)


def prove(base: bytes, ours: bytes, theirs: bytes, result: bytes) -> bool:
    """Return whether a region's result is the union: all lines of each side in its order, each once, and no others."""
    try:
        old, mine, new, have = (_read(data) for data in (base, ours, theirs, result))
    except Doubt:
        return False
    tokens = [[line.token for line in each] for each in (old, mine, new, have)]
    counts = [Counter(each) for each in tokens]
    in_order = [(tokens[0], tokens[1]), (tokens[0], tokens[2]), (tokens[1], tokens[3]), (tokens[2], tokens[3])]
    names = Counter((line.kind, line.name) for line in have)
    values = [{line.value for line in side if line.token not in counts[0]} - {None} for side in (mine, new)]
    common = {line.value for line in mine if line.token in counts[2]}
    comments = [Counter(row.strip() for row in lines(data) if b"//" in row) for data in (base, ours, theirs, result)]
    return (
        all(_is_in_order(part, whole) for part, whole in in_order)
        and counts[3] == counts[1] | counts[2]
        and all(count == 1 for count in names.values())
        and values[0] & values[1] <= common
        and comments[1] <= comments[3]
        and comments[2] <= comments[3]
        and comments[3] <= comments[1] + comments[2]
    )


def _read(data: bytes) -> list[_Line]:
    """Parse a region.

    Raises:
        Doubt: it has other lines than complete one-line constructs.

    """
    found: list[_Line] = []
    above = b""
    for row in lines(data):
        if row.endswith(b"\\\n") or b"/*" in row or b"*/" in row:
            raise Doubt
        if not row.strip() or _COMMENT.fullmatch(row):
            above += row
            continue
        forms = (("include", _INCLUDE), ("define", _DEFINE), ("using", _USING))
        kind, match = next(((kind, match) for kind, form in forms if (match := form.fullmatch(row))), ("", None))
        if match is None:
            raise Doubt
        name = match[1].strip(b'<>"') if kind == "include" else match[1]
        if kind == "include" and not _HEADER.search(name):
            raise Doubt  # A part of code or of a table, whose position matters.
        found.append(_Line(kind, name, above + row))
        above = b""
    if above.strip():
        raise Doubt  # A comment that belongs to the next line, or to nothing.
    return found


def _tail(data: bytes) -> bytes:
    """Return the blank lines at the end of a region."""
    rows = lines(data)
    count = 0
    while count < len(rows) and not rows[-1 - count].strip():
        count += 1
    return b"".join(rows[len(rows) - count :])


def _is_code(data: bytes) -> bool:
    """Return whether the text after `data` is neither in a comment nor in a string."""
    rest = _LITERAL.sub(b"", data)
    return b"/*" not in rest and b'"' not in rest


def _union(
    base: list[_Line], ours: list[_Line], theirs: list[_Line], before: list[_Line], behind: list[_Line]
) -> list[tuple[_Line, bool]]:
    """Merge their additions into our lines, place by place; sorted if the lines around are sorted."""
    places: list[list[list[_Line]]] = []
    for side in (ours, theirs):
        gaps: list[list[_Line]] = [[]]
        rest = [line.token for line in base]
        for line in side:
            if rest and line.token == rest[0]:
                rest.pop(0)
                gaps.append([])
            else:
                gaps[-1].append(line)
        if rest:
            raise Doubt  # A side removed a line.
        places.append(gaps)
    anchors = [line for line in ours if line.token in {old.token for old in base}]
    if len(anchors) != len(base):
        raise Doubt
    sides = [[*before, *side, *behind] for side in (ours, theirs)]
    keep = all(len(side) > _FEW and _key(side) for side in sides)
    members: list[tuple[_Line, bool]] = []
    for number, (mine, new) in enumerate(zip(*places, strict=True)):
        members += _place(mine, new, keep)
        members += [(anchor, False) for anchor in anchors[number : number + 1]]
    return members


def _place(mine: list[_Line], new: list[_Line], keep: bool) -> list[tuple[_Line, bool]]:
    """Unite both sides' lines at one place; lines of both sides occur once."""
    shared = [line.token for line in mine if line.token in {other.token for other in new}]
    if shared != [line.token for line in new if line.token in shared]:
        raise Doubt  # Both sides have these lines, but in different orders.
    parts = [list(_parted(side, shared)) for side in (mine, new)]
    members = _merge(parts[0][0], parts[1][0], keep)
    for own, other in zip(parts[0][1:], parts[1][1:], strict=True):
        members.append((own[0], False))
        members += _merge(own[1:], other[1:], keep)
    return members


def _parted(side: Sequence[_Line], tokens: Sequence[Hashable]) -> Iterator[list[_Line]]:
    """Split the lines before each line that both sides have."""
    part: list[_Line] = []
    for line in side:
        if line.token in tokens:
            yield part
            part = []
        part.append(line)
    yield part


def _merge(mine: list[_Line], new: list[_Line], keep: bool) -> list[tuple[_Line, bool]]:
    both = [(line, False) for line in mine] + [(line, True) for line in new]
    if mine and new and {line.kind for line in mine} != {line.kind for line in new}:
        raise Doubt  # A macro may belong to the include after it.
    words = [{word for line in side for word in _WORD.findall(line.text)} for side in (mine, new)]
    for side, other in ((mine, words[1]), (new, words[0])):
        if any(line.kind != "include" and line.name in other for line in side):
            raise Doubt
    plain = all(line.text.count(b"\n") == 1 for line, _ in both)
    return sorted(both, key=lambda member: member[0].name) if keep and plain and mine and new else both


def _key(side: Sequence[_Line]) -> bool:
    """Return whether the lines are sorted includes of one form (quotes or angle brackets)."""
    names = [line.name for line in side]
    forms = {line.text.strip()[-1:] for line in side}
    return all(line.kind == "include" for line in side) and len(forms) == 1 and names == sorted(names)


def _near(cells: Sequence[Cell], place: int, step: int) -> list[_Line]:
    """Return the includes directly before or after a region."""
    found: list[_Line] = []
    at = place + step
    while 0 <= at < len(cells) and not cells[at].conflict and _INCLUDE.fullmatch(cells[at].ours):
        found.append(_read(cells[at].ours)[0])
        at += step
    return found[::step]


def _nothing_twice(ours: bytes, theirs: bytes, data: bytes, brought: Sequence[_Line]) -> None:
    """Refuse added lines that the file already has elsewhere."""
    counts = [Counter(_names(text)) for text in (ours, theirs, data)]
    for line in brought:
        name = (line.kind, line.name)
        if counts[2][name] > 1:
            raise Doubt
    if any(count > max(counts[0][name], counts[1][name]) for name, count in counts[2].items()):
        raise Doubt


def _names(data: bytes) -> Iterator[tuple[str, bytes]]:
    for row in lines(data):
        for kind, form in (("include", _INCLUDE), ("define", _DEFINE), ("using", _USING)):
            if match := form.fullmatch(row):
                yield kind, match[1].strip(b'<>"') if kind == "include" else match[1]


def _is_in_order(part: Sequence[Hashable], whole: Sequence[Hashable]) -> bool:
    rest = iter(whole)
    return all(any(token == other for other in rest) for token in part)


def _say(three: Sequence[Sequence[_Line]], new: Sequence[_Line], line: int) -> str:
    old = {entry.token for entry in three[0]}
    mine = [entry for entry in three[1] if entry.token not in old]
    if not new:
        return f"ours has all that theirs adds at line {line}"
    kind = "include block" if all(entry.kind == "include" for entry in [*mine, *new]) else "definitions"
    labels = [", ".join(entry.name.decode("utf-8", "replace") for entry in side) for side in (mine, new)]
    return f"both sides add to the {kind} at line {line}: " + "; ".join(label for label in labels if label)
