# SPDX-License-Identifier: Apache-2.0
"""Explain why two wheels are different bytes: the files that differ, or else how equal files are packed."""

import difflib
import itertools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from stack.base.errors import StackError
from stack.store import cache
from stack.wheels import zips

_LINES = 20
"""Maximal number of lines shown of a text's difference; the first ones explain it."""
_TEXT = 1 << 20
"""Maximal bytes of a file whose lines are compared."""
_PIECE = 1 << 20
_PACKED = {
    "date": "date_time",
    "rights": "external_attr",
    "system": "create_system",
    "version of the writer": "create_version",
    "compression": "compress_type",
    "compressed size": "compress_size",
    "flags": "flag_bits",
    "extra field": "extra",
    "comment": "comment",
}


class DifferenceKind(StrEnum):
    """The kinds of differences."""

    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    CONTENT = "content"
    PACKED = "packed otherwise"
    ORDER = "order"
    REST = "between the files"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: `name` is a file of the wheels, or empty for the whole wheel; `lines` are details."""

    kind: DifferenceKind
    name: str
    lines: tuple[str, ...] = ()


def compare(first: Path, second: Path) -> tuple[Difference, ...]:
    """Return the differences of two wheels, causes before consequences (RECORD); empty if they are the same bytes.

    Raises:
        StackError: a file is not a readable wheel.

    """
    if cache.hash_of(first) == cache.hash_of(second):
        return ()
    with zips.opened(first) as ours, zips.opened(second) as theirs:
        differences = tuple(
            sorted(_differences(ours, theirs), key=lambda difference: difference.name.endswith(".dist-info/RECORD"))
        )
    return differences or (
        Difference(DifferenceKind.REST, "", ("the same files, packed alike: bytes outside of all members differ",)),
    )


def _differences(first: zipfile.ZipFile, second: zipfile.ZipFile) -> Iterator[Difference]:
    ours, theirs = ({info.filename: info for info in archive.infolist()} for archive in (first, second))
    yield from (Difference(DifferenceKind.ONLY_FIRST, name) for name in ours if name not in theirs)
    yield from (Difference(DifferenceKind.ONLY_SECOND, name) for name in theirs if name not in ours)
    both = [name for name in ours if name in theirs]
    for name in both:
        lines = tuple(_content(first, second, name))
        if lines:
            yield Difference(DifferenceKind.CONTENT, name, lines)
        elif packed := tuple(_packed(ours[name], theirs[name])):
            yield Difference(DifferenceKind.PACKED, name, packed)
    again = [name for name in theirs if name in ours]
    if both != again:
        moved = next((left, right) for left, right in zip(both, again, strict=True) if left != right)
        yield Difference(DifferenceKind.ORDER, "", (f"{moved[0]} is where the second has {moved[1]}",))


def _content(first: zipfile.ZipFile, second: zipfile.ZipFile, name: str) -> Iterator[str]:
    """Yield how the contents of a file differ; nothing if they are equal."""
    sizes = tuple(archive.getinfo(name).file_size for archive in (first, second))
    place = _first_difference(first, second, name)
    if place is None:
        return
    if max(sizes) <= _TEXT:
        try:
            ours, theirs = (zips.read(archive, name).decode().splitlines() for archive in (first, second))
        except UnicodeDecodeError:
            pass
        else:
            compared = difflib.unified_diff(ours, theirs, "first", "second", lineterm="", n=1)
            lines = list(itertools.islice(compared, 2, 3 + _LINES))
            yield from lines[:_LINES]
            if len(lines) > _LINES:
                yield "…"
            if lines:
                return
    yield f"from byte {place} on; {sizes[0]} and {sizes[1]} bytes"


def _first_difference(first: zipfile.ZipFile, second: zipfile.ZipFile, name: str) -> int | None:
    try:
        with first.open(name) as left, second.open(name) as right:
            for start in itertools.count(0, _PIECE):
                ours, theirs = left.read(_PIECE), right.read(_PIECE)
                if ours != theirs:
                    pairs = enumerate(itertools.zip_longest(ours, theirs))
                    return start + next(place for place, (byte, its) in pairs if byte != its)
                if not ours:
                    return None
    except zips.BROKEN as bad:
        raise StackError(f"{name} cannot be read ({bad})", "find the broken wheel with `stack wheel inspect`") from bad
    raise AssertionError("a file has an end")


def _packed(first: zipfile.ZipInfo, second: zipfile.ZipInfo) -> Iterator[str]:
    for what, field in _PACKED.items():
        ours, theirs = getattr(first, field), getattr(second, field)
        if ours != theirs:
            shown = (_rights(ours), _rights(theirs)) if field == "external_attr" else (ours, theirs)
            yield f"{what}: {shown[0]} and {shown[1]}"


def _rights(attributes: int) -> str:
    return f"{attributes >> 16:o}"
