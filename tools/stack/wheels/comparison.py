# SPDX-License-Identifier: Apache-2.0
"""Why two wheels are not the same bytes: which files differ and how, else how the same files are packed."""

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
"""Lines of a text's differences that are shown; what comes first explains it."""
_TEXT = 1 << 20
"""Bytes of the largest file whose lines are compared."""
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


class Kind(StrEnum):
    """What differs."""

    ONLY_FIRST = "only in the first"
    ONLY_SECOND = "only in the second"
    CONTENT = "content"
    PACKED = "packed otherwise"
    ORDER = "order"
    REST = "between the files"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: `name` is a file of the wheels, or empty where it is of the whole; `lines` say more."""

    kind: Kind
    name: str
    lines: tuple[str, ...] = ()


def compare(first: Path, second: Path) -> tuple[Difference, ...]:
    """What makes two wheels differ, causes before what follows from them (RECORD); nothing if they are the same bytes.

    Raises:
        StackError: one is no wheel that can be read.

    """
    if cache.hash_of(first) == cache.hash_of(second):
        return ()
    with zips.opened(first) as one, zips.opened(second) as other:
        found = tuple(sorted(_differences(one, other), key=lambda difference: difference.name.endswith(".dist-info/RECORD")))
    return found or (Difference(Kind.REST, "", ("the same files, packed alike: bytes that belong to none of them differ",)),)


def _differences(one: zipfile.ZipFile, other: zipfile.ZipFile) -> Iterator[Difference]:
    ours, theirs = ({info.filename: info for info in archive.infolist()} for archive in (one, other))
    yield from (Difference(Kind.ONLY_FIRST, name) for name in ours if name not in theirs)
    yield from (Difference(Kind.ONLY_SECOND, name) for name in theirs if name not in ours)
    both = [name for name in ours if name in theirs]
    for name in both:
        lines = tuple(_content(one, other, name))
        if lines:
            yield Difference(Kind.CONTENT, name, lines)
        elif packed := tuple(_packed(ours[name], theirs[name])):
            yield Difference(Kind.PACKED, name, packed)
    again = [name for name in theirs if name in ours]
    if both != again:
        moved = next((left, right) for left, right in zip(both, again, strict=True) if left != right)
        yield Difference(Kind.ORDER, "", (f"{moved[0]} stands where the second has {moved[1]}",))


def _content(one: zipfile.ZipFile, other: zipfile.ZipFile, name: str) -> Iterator[str]:
    """How the contents of a file differ; nothing if they are the same."""
    sizes = tuple(archive.getinfo(name).file_size for archive in (one, other))
    place = _first_difference(one, other, name)
    if place is None:
        return
    if max(sizes) <= _TEXT:
        try:
            ours, theirs = (zips.read(archive, name).decode().splitlines() for archive in (one, other))
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


def _first_difference(one: zipfile.ZipFile, other: zipfile.ZipFile, name: str) -> int | None:
    try:
        with one.open(name) as left, other.open(name) as right:
            for start in itertools.count(0, _PIECE):
                ours, theirs = left.read(_PIECE), right.read(_PIECE)
                if ours != theirs:
                    pairs = enumerate(itertools.zip_longest(ours, theirs))
                    return start + next(place for place, (byte, its) in pairs if byte != its)
                if not ours:
                    return None
    except zips.BROKEN as bad:
        raise StackError(f"{name} cannot be read ({bad})", "`stack wheel inspect` says in which wheel") from bad
    raise AssertionError("a file has an end")


def _packed(one: zipfile.ZipInfo, other: zipfile.ZipInfo) -> Iterator[str]:
    for what, field in _PACKED.items():
        ours, theirs = getattr(one, field), getattr(other, field)
        if ours != theirs:
            shown = (_rights(ours), _rights(theirs)) if field == "external_attr" else (ours, theirs)
            yield f"{what}: {shown[0]} and {shown[1]}"


def _rights(attributes: int) -> str:
    return f"{attributes >> 16:o}"
