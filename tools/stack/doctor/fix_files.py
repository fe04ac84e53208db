# SPDX-License-Identifier: Apache-2.0
"""Read a script to correct it, and write the copy next to it with the same permissions, byte order mark and line ends."""

import codecs
import contextlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError

LARGEST = 2**19
"""Most bytes of a script; those that people write have some thousands."""
_DEVICES = ("/dev", "/proc", "/sys")
_DIRECTIVE = re.compile(r"#[ \t]*(?:[A-Za-z][A-Za-z0-9]*[ \t]*=[ \t]*\S|.*coding[:=]|cloud-config\b)")
"""A comment that counts only at the top: Dockerfile's `# syntax=`, `# escape=` and `# check=`, an encoding, and cloud-init's."""
_ASIDE = re.compile(r"[ \t]*(?:#.*)?")
_NEAR = 200
"""Lines within which a line's original is searched in a file with both kinds of line ends."""


@dataclass(frozen=True, slots=True)
class Original:
    """A script as it is on the disk.

    Attributes:
        file: its path.
        text: its text; every line ends with a line feed only, and no byte order mark precedes it.
        mode: its permission bits.
        has_mark: whether it begins with a byte order mark.
        returns: for each line, whether a carriage return comes before its line feed.

    """

    file: Path
    text: str
    mode: int
    has_mark: bool
    returns: tuple[bool, ...]

    @property
    def target(self) -> Path:
        """The path of the corrected copy."""
        return self.file.with_name(
            f"{self.file.stem}.fixed{self.file.suffix}" if self.file.suffix else f"{self.file.name}.fixed"
        )

    def encoded(self, text: str) -> bytes:
        """Return a corrected text as the original was written."""
        ended = _with_ends(text.split("\n"), self.text.split("\n"), self.returns)
        return (codecs.BOM_UTF8 if self.has_mark else b"") + ended.encode()


def _with_ends(lines: Sequence[str], old: Sequence[str], returns: Sequence[bool]) -> str:
    """Join lines: one that the original has ends as it does there, another one as most lines do."""
    most = sum(returns) * 2 > len(returns)
    if len(set(returns)) < 2:
        return ("\r\n" if most else "\n").join(lines)
    ends, place = list[str](), 0
    for line in lines[:-1]:
        same = next((at for at in range(place, min(place + _NEAR, len(returns))) if old[at] == line), None)
        ends.append("\r\n" if (most if same is None else returns[same]) else "\n")
        place = place if same is None else same + 1
    return "".join(f"{line}{end}" for line, end in zip(lines, (*ends, ""), strict=True))


def _is_among_devices(folder: Path) -> bool:
    """Return whether a folder is one of the system's, and not a disk of its own below it, as /dev/shm is."""
    with contextlib.suppress(OSError):
        return folder.stat().st_dev in {Path(one).stat().st_dev for one in _DEVICES if Path(one).is_dir()}
    return False


def read(file: Path) -> Original:
    """Read a script that is to be corrected.

    Raises:
        StackError: it is not a regular file, is too large, is not UTF-8, or cannot be read.

    """
    if _is_among_devices(file.parent):
        raise StackError(
            f"{file} is not a file that can have a corrected copy beside it", "save the script in a file of its own"
        )
    try:
        # Opening a named pipe would wait for its other end.
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            files.check_regular(opened.fileno(), file)
            mode, data = stat.S_IMODE(os.fstat(opened.fileno()).st_mode) & 0o777, opened.read(LARGEST + 1)
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "name a script, or a compose file") from failed
    if len(data) > LARGEST:
        raise StackError(f"{file} is larger than {LARGEST // 2**10} KiB", "name a script, or a compose file")
    has_mark = data.startswith(codecs.BOM_UTF8)
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as bad:
        raise StackError(f"{file} cannot be corrected: it is not UTF-8", f"convert it: iconv -t UTF-8 -o NEW {file}") from bad
    lines = text.split("\n")
    returns = tuple(line.endswith("\r") for line in lines[:-1])
    return Original(file, text.replace("\r\n", "\n"), mode, has_mark, returns)


def check(named: Iterable[Path]) -> None:
    """Refuse scripts that cannot be corrected, before any copy is written.

    Raises:
        StackError: one cannot be read, is a device, or has a file of the copy's name beside it.

    """
    for file in named:
        original = read(file)
        if os.path.lexists(original.target):
            raise StackError(f"{original.target} is there already", "move it, then run the command again")


def distinct(named: Iterable[Path]) -> tuple[Path, ...]:
    """Leave out files that are named a second time, under whatever path."""
    found = dict[tuple[int, int] | Path, Path]()
    for file in named:
        try:
            status = file.stat()
        except OSError:
            found.setdefault(file, file)
            continue
        found.setdefault((status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else file, file)
    return tuple(found.values())


def write(original: Original, text: str) -> Path:
    """Write the corrected copy; return its path.

    Raises:
        StackError: a file of that name is there already, or cannot be written.

    """
    target = original.target
    try:
        with files.opened(target.parent) as folder:
            if folder.exists(target.name):
                raise StackError(f"{target} is there already", "move it, then run the command again")
            folder.write(target.name, original.encoded(text), original.mode)
    except OSError as failed:
        raise StackError(f"{target} cannot be written ({failed.strerror})", "check the folder's rights") from failed
    return target


def top(lines: Sequence[str]) -> int:
    """Count the lines that have to stay first: `#!`, directives of a Dockerfile, an encoding, and what begins a YAML document."""
    place = 1 if lines[0].startswith("#!") else 0
    while place < len(lines) and _DIRECTIVE.match(lines[place]):
        place += 1
    after = next((at for at in range(place, len(lines)) if not _ASIDE.fullmatch(lines[at])), len(lines))
    begun = after
    while begun < len(lines) and lines[begun].startswith("%"):
        begun += 1
    if begun < len(lines) and re.match(r"---(?:\s|$)", lines[begun]):
        return begun + 1
    return place
