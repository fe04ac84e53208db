# SPDX-License-Identifier: Apache-2.0
"""Write a ZIP file from another one's members, still compressed, and from new ones (APPNOTE.TXT 6.3, sections 4.3 and 4.4).

`zipfile` can only copy a member by decompressing and compressing it again. That takes a minute for a wheel of 300 MB, and its
bytes depend on the release of zlib. Here an old member is copied byte by byte, and a new one is stored uncompressed.
"""

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stack.base.errors import StackError
from stack.store import cache
from stack.wheels import metadata

LIMIT = 0xFFFFFFFF
"""Maximal bytes of a file and of any member; larger ZIP files need extensions that no wheel has needed."""
_MEMBERS = 0xFFFF
_READ = 1 << 26
"""Maximal bytes of a member that is read at once: metadata, RECORD, patched sources. Our largest RECORD has half a million."""
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_UTF8, _ENCRYPTED, _PATCHED = 0x800, 0x1 | 0x40, 0x20
_MADE_BY_UNIX = 3 << 8 | 20
_COPIED = 1 << 20
BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, NotImplementedError, ValueError)
"""The exceptions of `zipfile` for a broken file: an offset before its start, for example, is an `OSError`."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the new file: a member of the old file under a name if `data` is None, else new content.

    `info` has the date and permissions, and identifies the old member.
    """

    name: str
    info: zipfile.ZipInfo
    data: bytes | None = None


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP file to copy from.

    Raises:
        StackError: the file is not a ZIP file, is encrypted, or has a duplicate, outside or unsupported member.

    """
    if path.exists() and not path.is_file():  # opening a pipe could block forever
        raise StackError(f"{path.name} is not a file", "name a wheel")
    try:
        archive = zipfile.ZipFile(path)
    except BROKEN as bad:
        raise StackError(f"{path.name} is not a readable wheel ({bad})", "fetch it again") from bad
    with archive:
        seen: set[str] = set()
        for info in archive.infolist():
            _check(path, info, seen)
            seen.add(info.filename)
        yield archive


def _check(path: Path, info: zipfile.ZipInfo, seen: set[str]) -> None:
    name = info.filename
    parts = name.rstrip("/").split("/")
    why = None
    if name in seen:
        why = "occurs twice"
    elif name.startswith("/") or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        why = "is outside of the archive"
    elif info.flag_bits & _ENCRYPTED:
        why = "is encrypted"
    elif info.flag_bits & _PATCHED:
        why = "is a patch for another file"
    elif info.compress_type not in (_STORED, _DEFLATED):
        why = "has a compression that pip does not support"
    if why is not None:
        raise StackError(f"{path.name}: the member {name[:200]!r} {why}", "no such file is copied: fetch the wheel again")


def read(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a member's content.

    Raises:
        StackError: the member is missing, broken, or too large.

    """
    try:
        if archive.getinfo(name).file_size > _READ:
            raise StackError(
                f"{Path(str(archive.filename)).name}: {name} has more than {_READ >> 20} MB",
                "no wheel needs that: fetch it again",
            )
        return archive.read(name)
    except KeyError as missing:
        raise StackError(f"{Path(str(archive.filename)).name} has no {name}", "it is not a wheel of that package") from missing
    except BROKEN as bad:
        raise StackError(f"{Path(str(archive.filename)).name}: {name} is broken ({bad})", "fetch the wheel again") from bad


def record(archive: zipfile.ZipFile, folder: str) -> dict[str, tuple[str, str]]:
    """Read the RECORD of a wheel with a dist-info folder.

    Raises:
        StackError: it is missing, or cannot be read.

    """
    try:
        return metadata.parsed_record(read(archive, f"{folder}/RECORD"))
    except ValueError as bad:
        raise StackError(f"{Path(str(archive.filename)).name}: RECORD cannot be read ({bad})", "fetch the wheel again") from bad


def write(target: Path, source: Path | None, members: Iterable[Member]) -> None:
    """Write a ZIP file, which appears under its name when it is complete; equal members give equal bytes everywhere.

    `source` is the old file; without it, all members are new.

    Raises:
        StackError: it would be too large, or the old file is broken.
        OSError: it cannot be written.

    """
    with contextlib.ExitStack() as opened_files:
        old = opened_files.enter_context(source.open("rb")) if source is not None else None
        new = opened_files.enter_context(cache.appearing(target))
        _write(new, old, (source or target).name, members)


def _write(new: IO[bytes], old: IO[bytes] | None, name: str, members: Iterable[Member]) -> None:
    central: list[bytes] = []
    for member in members:
        start = new.tell()
        encoded = member.name.encode()
        head = _head(member)
        new.write(_LOCAL.pack(b"PK\3\4", 20, *head, len(encoded), 0) + encoded)
        if member.data is not None:
            new.write(member.data)
        else:
            assert old is not None
            _copy(new, old, name, member.info)
        rights = member.info.external_attr if member.info.create_system == _MADE_BY_UNIX >> 8 else 0o100644 << 16
        central.append(
            _CENTRAL.pack(b"PK\1\2", _MADE_BY_UNIX, 20, *head, len(encoded), 0, 0, 0, 0, rights & LIMIT, start) + encoded
        )
        if new.tell() > LIMIT or len(central) > _MEMBERS:
            raise StackError(f"{name} would become larger than 4 GB, or have more than {_MEMBERS} members", "build from source")
    start = new.tell()
    new.write(b"".join(central))
    count = len(central)
    new.write(_END.pack(b"PK\5\6", 0, 0, count, count, new.tell() - start, start, 0))


def _head(member: Member) -> tuple[int, int, int, int, int, int, int]:
    """Return flags, method, time, date, checksum, compressed size and size."""
    year, month, day, hour, minute, second = member.info.date_time
    date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
    flags = 0 if member.name.isascii() else _UTF8
    if member.data is not None:
        return flags, _STORED, time, date, zlib.crc32(member.data), len(member.data), len(member.data)
    info = member.info
    return flags, info.compress_type, time, date, info.CRC, info.compress_size, info.file_size


def _copy(new: IO[bytes], old: IO[bytes], name: str, info: zipfile.ZipInfo) -> None:
    old.seek(info.header_offset)
    head = old.read(_LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != b"PK\3\4":
        raise StackError(f"{name}: {info.filename} is broken (it has no header)", "fetch the wheel again")
    *_, name_size, extra_size = _LOCAL.unpack(head)
    old.seek(name_size + extra_size, os.SEEK_CUR)
    left = info.compress_size
    while left:
        chunk = old.read(min(left, _COPIED))
        if not chunk:
            raise StackError(f"{name} is cut short", "fetch the wheel again")
        new.write(chunk)
        left -= len(chunk)
