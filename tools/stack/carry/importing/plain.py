# SPDX-License-Identifier: Apache-2.0
"""Read diffs of every kind (`diff -u`, quilt, svn, git with any prefix) as the changes of files."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stack.model.diff import DiffError, Hunk, hunk, unquoted

_GIT = re.compile(rb'^diff --git ("?)(?P<old>.+?)\1 ("?)(?P<new>[^ ].*?)\3$')
_STAMP = re.compile(r"(?<![ \t])[ \t]+(?:\(.*\)|\d{4}-\d\d-\d\d.*|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d .*)$")
_LONGEST = 20_000
"""Bytes of a file's name; a path has at most 4096, and each may be written as four in quotes."""
_EPOCH = re.compile(r"19(?:70-01-01|69-12-31)|Jan  ?1 .*1970|Dec 31 .*1969")
_EXTENDED = (
    *(b"index ", b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ", b"similarity index ", b"dissimilarity "),
    *(b"rename from ", b"rename to ", b"copy from ", b"copy to "),
)


class Unreadable(Exception):
    """Raised when a diff cannot be read."""


@dataclass(frozen=True, slots=True)
class Section:
    """The change of one file, with the names as the diff has them; None stands for /dev/null.

    `created` and `deleted`: the header says so. `binary`: its content is in git's binary form.
    """

    old: str | None
    new: str | None
    hunks: tuple[Hunk, ...]
    created: bool = False
    deleted: bool = False
    old_mode: int | None = None
    new_mode: int | None = None
    renamed: bool = False
    copied: bool = False
    binary: bool = False
    index: str | None = None


class _Name(NamedTuple):
    path: str | None
    epoch: bool


def start(raw: bytes) -> int:
    """Return where the diff begins in a file, or -1 if it has none."""
    found = re.search(
        rb"^(?:diff --git .+$|Index: .+\n=+$|diff (?:-\S+ )*\S+ \S+\n(?:--- )|--- \S.*\n\+\+\+ \S.*\n@@ -)", raw, re.MULTILINE
    )
    return found.start() if found else -1


def sections(diff: bytes) -> tuple[Section, ...]:
    """Read the changes of a diff; text between them is skipped.

    Raises:
        Unreadable: A hunk is cut short, or a header is malformed.

    """
    if re.search(rb"^\+\+\+ [^\n]*\r$", diff, re.MULTILINE):
        diff = diff.replace(b"\r\n", b"\n")
    return tuple(_sections(diff.split(b"\n")))


def _sections(lines: list[bytes]) -> Iterator[Section]:
    place, index = 0, None
    while place < len(lines):
        line = lines[place]
        if line.startswith(b"Index: "):
            index = line[len(b"Index: ") :].strip().decode("utf-8", "surrogateescape")
        if line.startswith(b"diff --git "):
            section, place = _git_section(lines, place)
            yield section
        elif _begins(lines, place):
            section, place = _plain_section(lines, place, index)
            yield section
        elif line.startswith(b"@@ -"):
            raise Unreadable(f"line {place + 1} of its diff begins a hunk where a file's header is expected")
        else:
            place += 1


def _begins(lines: Sequence[bytes], place: int) -> bool:
    return (
        lines[place].startswith(b"--- ")
        and place + 2 < len(lines)
        and lines[place + 1].startswith(b"+++ ")
        and lines[place + 2].startswith(b"@@ -")
    )


def _plain_section(lines: list[bytes], place: int, index: str | None) -> tuple[Section, int]:
    old, new = _name(lines[place][4:]), _name(lines[place + 1][4:])
    hunks, place = _hunks(lines, place + 2)
    created = old.path is None or (old.epoch and hunks[0].old_start == 0 == hunks[0].old_count)
    deleted = new.path is None or (hunks[-1].new_start == 0 == hunks[-1].new_count)
    return Section(old.path, new.path, hunks, created, deleted, index=index), place


def _git_section(lines: list[bytes], place: int) -> tuple[Section, int]:
    named = _GIT.match(lines[place])
    if named is None:
        raise Unreadable(f"line {place + 1} of its diff names no files")
    first = lines[place]
    place += 1
    header: dict[bytes, bytes] = {}
    while place < len(lines) and (key := next((key for key in _EXTENDED if lines[place].startswith(key)), None)):
        header[key] = lines[place][len(key) :]
        place += 1
    old: str | None
    new: str | None
    old, new = _git_names(first, header)
    hunks: tuple[Hunk, ...] = ()
    binary = place < len(lines) and lines[place].startswith((b"GIT binary patch", b"Binary files "))
    if _begins(lines, place):
        (old_name, _), (new_name, _) = _name(lines[place][4:]), _name(lines[place + 1][4:])
        if b"rename to " not in header and b"copy to " not in header:
            old, new = old_name, new_name
        hunks, place = _hunks(lines, place + 2)
    modes = {key: _mode(value) for key, value in header.items() if b"mode" in key}
    return (
        Section(
            old=old,
            new=new,
            hunks=hunks,
            created=b"new file mode " in header,
            deleted=b"deleted file mode " in header,
            old_mode=modes.get(b"old mode ", modes.get(b"deleted file mode ")),
            new_mode=modes.get(b"new mode ", modes.get(b"new file mode ")),
            renamed=b"rename to " in header,
            copied=b"copy to " in header,
            binary=binary,
        ),
        place,
    )


def _git_names(line: bytes, header: dict[bytes, bytes]) -> tuple[str, str]:
    """Return both names of a git header, with their prefix; a rename's lines have none, so one is put in front."""
    for kind in (b"rename", b"copy"):
        if kind + b" from " in header and kind + b" to " in header:
            return f"a/{unquoted(header[kind + b' from '])}", f"b/{unquoted(header[kind + b' to '])}"
    text = line[len(b"diff --git ") :]
    half = len(text) // 2
    if text[half : half + 1] == b" " and text[:half].partition(b"/")[2] == text[half + 1 :].partition(b"/")[2]:
        return unquoted(text[:half]), unquoted(text[half + 1 :])
    named = _GIT.match(line)
    assert named is not None
    return unquoted(named["old"]), unquoted(named["new"])


def _hunks(lines: list[bytes], place: int) -> tuple[tuple[Hunk, ...], int]:
    hunks = []
    while place < len(lines) and lines[place].startswith(b"@@ -"):
        try:
            found, place = hunk(lines, place)
        except DiffError as bad:
            raise Unreadable(str(bad)) from bad
        hunks.append(found)
    return tuple(hunks), place


def _name(text: bytes) -> _Name:
    if len(text) > _LONGEST:
        raise Unreadable(f"its diff has a file name of {len(text)} bytes")
    if text.startswith(b'"'):
        return _Name(unquoted(text.partition(b"\t")[0].rstrip()), False)
    name, _, stamp = text.decode("utf-8", "surrogateescape").rstrip("\r").partition("\t")
    if not stamp and (found := _STAMP.search(name)):
        name, stamp = name[: found.start()], found[0]
    name = name.rstrip()
    return _Name(None if name == "/dev/null" else name, _EPOCH.search(stamp) is not None)


def _mode(text: bytes) -> int:
    try:
        return int(text, 8)
    except ValueError as bad:
        raise Unreadable(f"{text.decode('utf-8', 'replace')!r} is not a file mode") from bad


def reverse(section: Section) -> Section:
    """Return the change that takes this one back."""
    swap = {b"+": b"-", b"-": b"+"}
    hunks = []
    for each in section.hunks:
        lines = tuple(swap.get(line[:1], line[:1]) + line[1:] for line in each.lines)
        hunks.append(Hunk(each.new_start, each.new_count, each.old_start, each.old_count, lines))
    return Section(
        old=section.new,
        new=section.old,
        hunks=tuple(hunks),
        created=section.deleted,
        deleted=section.created,
        old_mode=section.new_mode,
        new_mode=section.old_mode,
        renamed=section.renamed,
        copied=section.copied,
        binary=section.binary,
        index=section.index,
    )
