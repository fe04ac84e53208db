# SPDX-License-Identifier: Apache-2.0
"""Read a quilt series: the file `series` lists the patches in the same folder."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.importing import files
from stack.carry.importing.candidate import Candidate, LeftOut
from stack.carry.importing.files import Read
from stack.model import document, patch
from stack.model.patch import Author

_PLACES = ("series", "patches/series", "debian/patches/series")
_LARGEST = 4 * 2**20
_LONGEST = 4096
"""Characters of the longest line."""
_MOST = 20_000
"""Upper bound of the patches in a series."""


def find(folder: Path) -> Path | None:
    """Return the series file that belongs to a folder, if there is one."""
    return next((folder / place for place in _PLACES if (folder / place).is_file()), None)


def read(series: Path, who: Author) -> Read:
    """Read the patches of a series file in its order.

    Raises:
        StackError: The series file cannot be read, or names a path outside of its folder.

    """
    text = document.read_bytes(series, missing="check the path", largest=_LARGEST).decode("utf-8", "surrogateescape")
    lines = [words for line in text.splitlines() if (words := _words(series, line))]
    if len(lines) > _MOST:
        raise StackError(f"{series} names {len(lines)} patches", f"import at most {_MOST} at once")
    return [candidate for words in lines for candidate in _read(series, words, who)]


def _read(series: Path, words: list[str], who: Author) -> Iterator[Candidate | LeftOut]:
    name, *options = words
    folder = series.parent
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        there = path.is_file()
    except (OSError, RuntimeError, ValueError) as bad:  # too long, a link to itself, or a NUL in it
        raise StackError(f"{series} names {name[:60]!r}, which cannot be read as a path", "correct the series file") from bad
    if not inside:
        raise StackError(f"{series} names {name!r}, which is outside of its folder", "correct the series file")
    if not there:
        yield LeftOut(
            Candidate(name, name, b"", who, f"{name}\n", b"", path.name), "the series names it, and there is no such file"
        )
        return
    raw = document.read_bytes(path, missing="correct the series file", largest=patch.LARGEST)
    found = files.one(raw, name, path, who)
    if isinstance(found, LeftOut):
        yield replace(found, reason="it has no diff, and changes nothing")
        return
    # Quilt ignores blob ids: what counts is the order of the series. The ids of a patch that a stack exported are right.
    folder_name = Path(name).parent.as_posix().removeprefix(".")
    yield replace(found, strip=_level(options), reverse="-R" in options, by_lines=not found.series, folder=folder_name)


def _words(series: Path, line: str) -> list[str]:
    if len(line) > _LONGEST:  # the time of shlex is quadratic in the length
        raise StackError(f"{series} has a line of {len(line)} characters", "correct it")
    try:
        return shlex.split(re.sub(r"(^|\s)#.*$", "", line))
    except ValueError as bad:
        raise StackError(f"{series} has the line {line[:60]!r}, which cannot be read ({bad})", "correct it") from bad


def _level(options: list[str]) -> int:
    """Return the number of path components to remove; quilt's default is 1."""
    for place, option in enumerate(options):
        value = option[2:] or (options[place + 1] if place + 1 < len(options) else "")
        if option.startswith("-p"):
            return int(value) if re.fullmatch(r"\d{1,2}", value) else 0 if value == "ab" else 1
    return 1
