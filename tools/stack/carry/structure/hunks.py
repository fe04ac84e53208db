# SPDX-License-Identifier: Apache-2.0
"""Merge one file three-way into cells: cleanly merged lines, and conflict regions with their three versions."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from stack.store import git

_MARKER = 200
_LARGEST = 1 << 19
"""In bytes; a larger file is data, and its syntax tree would take hundreds of megabytes."""


class Doubt(Exception):
    """Raised when a resolution is not certain: the conflict stays."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cleanly merged line (then all three are the same object), or the three versions of a conflict region."""

    base: bytes
    ours: bytes
    theirs: bytes
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class Insertion:
    """Bytes to insert before the byte `at` of our side."""

    at: int
    data: bytes


def cells(base: bytes, ours: bytes, theirs: bytes) -> list[Cell]:
    """Merge with git, line by line.

    Raises:
        Doubt: a version is not text of whole lines, or git finds no conflict or cannot merge.

    """
    for data in (base, ours, theirs):
        if len(data) > _LARGEST or b"\0" in data or (data and not data.endswith(b"\n")):
            raise Doubt
        if any(sign * _MARKER in data for sign in (b"<", b"|", b"=", b">")):
            raise Doubt
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        names = [str(Path(folder, name)) for name in ("ours", "base", "theirs")]
        for name, data in zip(names, (ours, base, theirs), strict=True):
            Path(name).write_bytes(data)
        # With --diff3, git keeps the whole conflict. Without it, git moves lines with which both sides begin or end out of the
        # conflict, and the region's base no longer belongs to it.
        command = [
            "merge-file",
            "-p",
            "--quiet",
            "--diff3",
            f"--marker-size={_MARKER}",
            "-L",
            "o",
            "-L",
            "b",
            "-L",
            "t",
            *names,
        ]
        done = git.run(command, accept=range(128))
    merged = _read(done.stdout)
    if not any(cell.conflict for cell in merged):
        raise Doubt
    # If our side changes only blank lines, upstream may have taken the change and dropped it again.
    if any(cell.conflict and _ink(cell.ours) == _ink(cell.base) for cell in merged):
        raise Doubt
    return merged


def _ink(data: bytes) -> list[bytes]:
    return [line for line in lines(data) if line.strip()]


def _read(data: bytes) -> list[Cell]:
    marks = [sign * _MARKER for sign in (b"<", b"|", b"=", b">")]
    found: list[Cell] = []
    region: list[list[bytes]] = [[], [], []]
    side = -1
    for line in lines(data):
        mark = next((number for number, sign in enumerate(marks) if line.startswith(sign)), None)
        if mark == 3:
            ours, base, theirs = (b"".join(part) for part in region)
            found.append(Cell(base, ours, theirs, conflict=True))
            region, side = [[], [], []], -1
        elif mark is not None:
            side = mark
        elif side >= 0:
            region[side].append(line)
        else:
            found.append(Cell(line, line, line))
    return found


def lines(data: bytes) -> list[bytes]:
    """Split text whose last line has a line end into lines with their line ends; only a line feed ends a line."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]
