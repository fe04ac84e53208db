# SPDX-License-Identifier: Apache-2.0
"""Read an untrusted `.tar.gz`: in one pass, nothing on disk, with the same result on every machine.

`tarfile` is not used. Its streaming mode accepts a truncated archive, ignores gzip's checksum, reads a header of any size into
memory, and interprets odd headers differently between Python versions. Commit ids depend on the result, so everything that
release tools do not write is refused here.
"""

import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

from stack.base.errors import StackError
from stack.model.ids import Sha256

_BLOCK = 512
_CHUNK = 1 << 20


class ArchiveError(StackError):
    """Raised when an archive is damaged or holds something that does not belong into a source tree."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on an archive. The largest known release (FlashInfer 0.7.1) has 452 MB in 11,817 members, ratio 8."""

    total: int = 4 << 30
    file: int = 512 << 20
    members: int = 200_000
    ratio: int = 200
    ratio_from: int = 64 << 20
    header: int = 1 << 20


LIMITS = Limits()

Kind = Literal["file", "folder", "symlink", "hardlink"]


@dataclass(frozen=True, slots=True)
class Member:
    """A member as the archive describes it; its name is not checked yet."""

    name: bytes
    kind: Kind
    size: int
    executable: bool
    mtime: int
    target: bytes


class GzipReader:
    """The uncompressed bytes of a gzip file, in order; enforces the limits and the checksum."""

    def __init__(self, raw: BinaryIO, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.consumed = 0
        self._raw = raw
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""
        self._held = b""
        self._position = 0
        self._produced = 0
        self._hash = hashlib.sha256()

    def sha256(self) -> Sha256:
        """Return the hash of the compressed bytes that were read so far."""
        return Sha256(self._hash.hexdigest())

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes.

        Raises:
            ArchiveError: The archive ends too early, is damaged or exceeds a limit.

        """
        if self._position + size <= len(self._held):
            start, self._position = self._position, self._position + size
            return self._held[start : self._position]
        parts = []
        while size:
            if self._position == len(self._held) and not self._fill():
                raise ArchiveError("the archive ends in the middle")
            part = self._held[self._position : self._position + size]
            self._position += len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield exactly `size` bytes in pieces of bounded size."""
        while size > 0:
            step = min(size, _CHUNK)
            yield self.read(step)
            size -= step

    def rest(self) -> Iterator[bytes]:
        """Yield all remaining bytes."""
        while self._position < len(self._held) or self._fill():
            yield self._held[self._position :]
            self._position = len(self._held)

    def _fill(self) -> bool:
        while True:
            if self._inflate.eof and not self._next_stream():
                return False
            if not self._input:
                self._input = self._read_raw()
                if not self._input:
                    raise ArchiveError("the archive ends in the middle")
            try:
                self._held = self._inflate.decompress(self._input, _CHUNK)
            except zlib.error as error:
                raise ArchiveError(f"the archive is not a valid gzip file ({error})") from error
            self._input = self._inflate.unconsumed_tail if not self._inflate.eof else self._inflate.unused_data
            self._position = 0
            if self._held:
                self._count(len(self._held))
                return True

    def _next_stream(self) -> bool:
        """Start the next of several concatenated gzip streams, skipping zero padding; False if there is none."""
        self._input = self._input or self._read_raw()
        while self._input and not self._input.strip(b"\0"):
            self._input = self._read_raw()
        if not self._input:
            return False
        self._inflate = zlib.decompressobj(wbits=31)
        return True

    def _read_raw(self) -> bytes:
        got = self._raw.read(_CHUNK // 4)
        self._hash.update(got)
        self.consumed += len(got)
        return got

    def _count(self, produced: int) -> None:
        self._produced += produced
        limits = self.limits
        if self._produced > limits.total:
            raise ArchiveError(f"the archive holds more than {limits.total} bytes")
        if self._produced > max(limits.ratio_from, limits.ratio * self.consumed):
            raise ArchiveError(f"the archive unpacks to more than {limits.ratio} times its size")


def members(source: GzipReader) -> Iterator[tuple[Member, Iterator[bytes]]]:
    """Yield each member with its content; content that the caller does not read is skipped.

    Raises:
        ArchiveError: The archive is damaged, exceeds a limit, or has a member other than a file, folder or link.

    """
    count = 0
    overrides: dict[bytes, bytes] = {}
    while any(header := source.read(_BLOCK)):
        count += 1
        if count > source.limits.members:
            raise ArchiveError(f"the archive has more than {source.limits.members} members")
        _demand_checksum(header)
        kind = header[156:157]
        if kind in b"xgLK":
            overrides = _extended(source, header, overrides)
            continue
        member = _member(header, overrides)
        overrides = {}
        if member.size > source.limits.file:
            raise ArchiveError(f"{shown(member.name)} is larger than {source.limits.file} bytes")
        content = source.chunks(member.size)
        yield member, content
        for _ in content:
            pass
        source.read(-member.size % _BLOCK)
    if overrides:
        raise ArchiveError("the archive ends in the middle")
    if any(source.read(_BLOCK)) or any(any(part) for part in source.rest()):
        raise ArchiveError("there is something after the archive's end mark")


def shown(name: bytes) -> str:
    """Return a member's name in a form that is safe in a message."""
    return repr(name.decode("utf-8", "backslashreplace"))[:200]


_REFUSED = {
    b"3": "a device",
    b"4": "a device",
    b"6": "a named pipe",
    b"7": "a contiguous file",
    b"S": "a sparse file",
    b"M": "a piece of a file",
    b"V": "a volume label",
    b"D": "a folder dump",
}
_KINDS: dict[bytes, Kind] = {b"0": "file", b"\0": "file", b"1": "hardlink", b"2": "symlink", b"5": "folder"}


def _member(header: bytes, overrides: dict[bytes, bytes]) -> Member:
    name = _text(header[0:100])
    if header[257:265] == b"ustar\x0000" and (prefix := _text(header[345:500])):
        name = prefix + b"/" + name
    name = overrides.get(b"path", name)
    letter = header[156:157]
    kind = _KINDS.get(letter)
    if kind is None:
        what = _REFUSED.get(letter, f"a member of unknown type {letter!r}")
        raise ArchiveError(f"{shown(name)} is {what}")
    if any(key.startswith(b"GNU.sparse.") for key in overrides):
        raise ArchiveError(f"{shown(name)} is a sparse file")
    if letter == b"\0" and name.endswith(b"/"):  # how tar wrote folders before 1988
        kind = "folder"
    size = _decimal(overrides[b"size"], name) if b"size" in overrides else _number(header[124:136], name)
    if size < 0:
        raise ArchiveError(f"{shown(name)} has a header with a damaged number")
    if size and kind != "file":
        raise ArchiveError(f"{shown(name)} has content, but is not a file")
    return Member(
        name=name,
        kind=kind,
        size=size,
        executable=bool(_number(header[100:108], name) & 0o100),
        mtime=_seconds(overrides[b"mtime"], name) if b"mtime" in overrides else _number(header[136:148], name),
        target=overrides.get(b"linkpath", _text(header[157:257])),
    )


def _extended(source: GzipReader, header: bytes, overrides: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the overrides from a pax (`x`, `g`) or GNU (`L`, `K`) header for the next member."""
    kind = header[156:157]
    size = _number(header[124:136], b"extended header")
    if size > source.limits.header:
        raise ArchiveError(f"the archive has an extended header of {size} bytes")
    content = source.read(size)
    source.read(-size % _BLOCK)
    if kind in b"LK":
        key = b"path" if kind == b"L" else b"linkpath"
        # A pax header takes precedence over GNU's, whatever their order.
        return {key: content.rstrip(b"\0")} | overrides
    records = _pax(content)
    if kind == b"g":
        # `git archive` writes a global header with a comment. One with names or sizes would apply to all members.
        if any(key in _HONOURED or key.startswith(b"GNU.sparse.") for key in records):
            raise ArchiveError("the archive has a global header that renames or resizes members")
        return overrides
    return overrides | records


_HONOURED = {b"path", b"linkpath", b"size", b"mtime"}
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=\n]+)=")


def _pax(content: bytes) -> dict[bytes, bytes]:
    records: dict[bytes, bytes] = {}
    position = 0
    while position < len(content):
        record = _PAX_RECORD.match(content, position)
        end = position + int(record[1]) if record else 0
        if record is None or end <= record.end() - 1 or end > len(content) or content[end - 1 : end] != b"\n":
            raise ArchiveError("the archive has a damaged pax header")
        records[record[2]] = content[record.end() : end - 1]
        position = end
    return records


def _demand_checksum(header: bytes) -> None:
    stated = _number(header[148:156], b"checksum")
    if stated != sum(header) - sum(header[148:156]) + 8 * ord(" "):
        raise ArchiveError("the archive has a damaged header (wrong checksum)")


_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")


def _number(field: bytes, name: bytes) -> int:
    """Parse a number: octal digits, or GNU's big-endian binary for larger values."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=True) if field[0] == 0xFF else int.from_bytes(field[1:], "big")
    digits = _OCTAL.fullmatch(field)
    if digits is None:
        raise ArchiveError(f"{shown(name)} has a header with a damaged number")
    return int(digits[1] or b"0", 8)


def _decimal(value: bytes, name: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,18}", value):
        raise ArchiveError(f"{shown(name)} has a header with a damaged number")
    return int(value)


def _seconds(value: bytes, name: bytes) -> int:
    match = re.fullmatch(rb"(-?[0-9]{1,18})(\.[0-9]*)?", value)
    if match is None:
        raise ArchiveError(f"{shown(name)} has a header with a damaged number")
    return int(match[1])


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]
