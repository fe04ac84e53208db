# SPDX-License-Identifier: Apache-2.0
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.store.tar import ArchiveError, GzipReader, Limits, Member, members

from .factories import TIME, header, member, padded, pax

END = b"\0" * 1024


def read(data: bytes, limits: Limits | None = None) -> list[tuple[Member, bytes]]:
    source = GzipReader(io.BytesIO(data), limits or Limits())
    return [(entry, b"".join(content)) for entry, content in members(source)]


def read_plain(*parts: bytes, limits: Limits | None = None) -> list[tuple[Member, bytes]]:
    return read(gzip.compress(b"".join(parts), 1), limits)


def refused(*parts: bytes, limits: Limits | None = None) -> str:
    with pytest.raises(ArchiveError) as caught:
        read_plain(*parts, limits=limits)
    return str(caught.value)


def test_a_file_a_folder_and_links() -> None:
    found = read_plain(
        member(b"p/", b"", b"5"),
        member(b"p/a", b"content", mode=b"0000755\0"),
        member(b"p/l", b"", b"2", b"a"),
        member(b"p/h", b"", b"1", b"p/a"),
        END,
    )
    assert [(entry.name, entry.kind, entry.executable, entry.target, content) for entry, content in found] == [
        (b"p/", "folder", False, b"", b""),
        (b"p/a", "file", True, b"", b"content"),
        (b"p/l", "symlink", False, b"a", b""),
        (b"p/h", "hardlink", False, b"p/a", b""),
    ]
    assert {entry.mtime for entry, _ in found} == {TIME}


def test_a_folder_as_tar_wrote_it_before_it_had_types() -> None:
    assert read_plain(member(b"p/", b"", b"\0", magic=b"\0" * 8), END)[0][0].kind == "folder"


def test_content_that_nobody_reads_is_skipped() -> None:
    source = GzipReader(io.BytesIO(gzip.compress(member(b"a", b"1" * 5000) + member(b"b", b"2") + END)))
    assert [entry.name for entry, _ in members(source)] == [b"a", b"b"]


def test_names_of_pax_and_gnu_and_ustar() -> None:
    long = b"p/" + b"n" * 300
    prefix = bytearray(header(b"name"))
    prefix[345:351] = b"p/deep"
    prefix[148:156] = b" " * 8
    prefix[148:156] = b"%06o\0 " % sum(prefix)
    found = read_plain(
        pax({b"path": long, b"mtime": b"12.75", b"uid": b"1"}) + member(b"short"),
        member(b"././@LongLink", long + b"\0", b"L") + member(b"short"),
        member(b"././@LongLink", long + b"\0", b"K") + member(b"p/l", b"", b"2", b"short"),
        bytes(prefix),
        member(b"plain"),
        END,
    )
    assert [entry.name for entry, _ in found] == [long, long, b"p/l", b"p/deep/name", b"plain"]
    assert found[0][0].mtime == 12
    assert found[2][0].target == long


def test_a_size_that_octal_digits_cannot_hold() -> None:
    content = b"y" * 600
    block = header(b"a", size_field=b"\x80" + (600).to_bytes(11, "big"))
    assert read_plain(block + padded(content), END)[0][1] == content


def test_the_global_header_of_git_archive() -> None:
    assert read_plain(pax({b"comment": b"0" * 40}, b"g"), member(b"a"), END)[0][0].name == b"a"


def test_gzip_streams_in_a_row_and_padding() -> None:
    plain = member(b"a", b"z" * 3000) + END
    data = gzip.compress(plain[:1000]) + gzip.compress(plain[1000:]) + b"\0" * 100
    assert read(data)[0][1] == b"z" * 3000


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (b"3", "device"),
        (b"4", "device"),
        (b"6", "pipe"),
        (b"7", "contiguous"),
        (b"S", "sparse"),
        (b"V", "label"),
        (b"M", "piece"),
        (b"Z", "unknown"),
    ],
)
def test_members_that_are_no_files(kind: bytes, what: str) -> None:
    assert what in refused(member(b"p/x", b"", kind), END)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ([member(b"a")], "ends in the middle"),
        ([member(b"a"), b"\0" * 512], "ends in the middle"),
        ([b""], "ends in the middle"),
        ([header(b"a", size=1000)], "ends in the middle"),
        ([pax({b"path": b"x"}), END], "ends in the middle"),
        ([member(b"a"), b"\0" * 512, member(b"b"), END], "after the archive's end"),
        ([member(b"a"), END, b"\0" * 9000, b"x"], "after the archive's end"),
        ([member(b"a")[:-512].replace(b"ustar", b"uSTAR"), END], "checksum"),
        ([b"\1" * 512, END], "damaged"),
        ([header(b"a", size_field=b"9".ljust(12, b"\0")), END], "damaged number"),
        ([header(b"a", size_field=b"-1".ljust(12, b"\0")), END], "damaged number"),
        ([header(b"a", size_field=b"\xff" * 12), END], "damaged number"),
        ([header(b"a", mtime=b"\x01" * 12), END], "damaged number"),
        ([member(b"p/", b"content", b"5"), END], "has content"),
        ([member(b"p/l", b"content", b"2", b"x"), END], "has content"),
        ([member(b"x", b"12 path=a", b"x"), member(b"a"), END], "damaged pax"),
        ([member(b"x", b"0 path=a\n", b"x"), member(b"a"), END], "damaged pax"),
        ([member(b"x", b"5 path=a\n", b"x"), member(b"a"), END], "damaged pax"),
        ([member(b"x", b"99 path=a\n", b"x"), member(b"a"), END], "damaged pax"),
        ([member(b"x", b"nonsense", b"x"), member(b"a"), END], "damaged pax"),
        ([pax({b"size": b"-1"}), member(b"a"), END], "damaged number"),
        ([pax({b"mtime": b"yesterday"}), member(b"a"), END], "damaged number"),
        ([pax({b"path": b"q"}, b"g"), member(b"a"), END], "global header"),
        ([pax({b"GNU.sparse.major": b"1"}, b"g"), member(b"a"), END], "global header"),
        ([pax({b"GNU.sparse.major": b"1", b"GNU.sparse.name": b"q"}), member(b"a"), END], "sparse"),
    ],
)
def test_damaged_and_odd_archives(parts: list[bytes], what: str) -> None:
    assert what in refused(*parts)


@pytest.mark.parametrize(
    ("parts", "limits", "what"),
    [
        ([member(b"a", b"x" * 3000), END], Limits(total=2000), "more than 2000 bytes"),
        ([member(b"a", b"x" * 3000), END], Limits(file=2999), "larger than 2999"),
        ([pax({b"size": b"3000"}), header(b"a"), b"x" * 3072, END], Limits(file=2999), "larger than 2999"),
        ([member(b"a"), member(b"b"), member(b"c"), END], Limits(members=2), "more than 2 members"),
        ([*[pax({b"a": b"b"})] * 3, member(b"c"), END], Limits(members=2), "more than 2 members"),
        ([member(b"a", b"x" * 600_000), END], Limits(ratio=200, ratio_from=1 << 18), "200 times"),
        ([member(b"L", b"n" * 3000, b"L"), member(b"c"), END], Limits(header=2000), "extended header of 3000"),
    ],
)
def test_limits(parts: list[bytes], limits: Limits, what: str) -> None:
    read_plain(*parts)
    assert what in refused(*parts, limits=limits)


def test_a_small_bomb_is_stopped_by_the_limits_as_they_are() -> None:
    bomb = zlib.compressobj(9, wbits=31)
    data = bomb.compress(header(b"p/a", size=400 << 20))
    data += b"".join(bomb.compress(b"\0" * (1 << 20)) for _ in range(100)) + bomb.flush()
    assert len(data) < 200_000
    with pytest.raises(ArchiveError, match="200 times"):
        read(data)


def test_every_truncation_is_noticed() -> None:
    data = gzip.compress(member(b"p/a", bytes(range(256)) * 20) + member(b"p/b") + END, 1)
    for length in range(len(data)):
        with pytest.raises(ArchiveError):
            read(data[:length])


@pytest.mark.parametrize("place", [-1, -5])
def test_gzips_own_checksum_counts(place: int) -> None:
    data = bytearray(gzip.compress(member(b"p/a") + END))
    data[place] ^= 1
    with pytest.raises(ArchiveError, match="not a valid gzip"):
        read(bytes(data))


@pytest.mark.parametrize("data", [b"PK\3\4 a zip", b"<html>", b"\0" * 5000, b"BZh9"])
def test_what_is_no_gzip(data: bytes) -> None:
    with pytest.raises(ArchiveError):
        read(data)


def test_something_after_the_gzip_stream() -> None:
    with pytest.raises(ArchiveError, match="not a valid gzip"):
        read(gzip.compress(member(b"a") + END) + b"more")


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 255)), min_size=1, max_size=6))
def test_whatever_is_damaged_nothing_but_our_error_comes_out(changes: Iterable[tuple[int, int]]) -> None:
    data = bytearray(
        pax({b"path": b"p/long", b"mtime": b"1.5"}) + member(b"p/a", b"abc") + member(b"p/l", b"", b"2", b"a") + END
    )
    for place, value in changes:
        data[place % len(data)] = value
    with suppress(ArchiveError):
        read_plain(bytes(data))


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=120)


@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=5), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_reads_what_the_standard_library_writes(files: dict[str, bytes], form: int) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"p/{name}")
            info.size, info.mtime = len(content), TIME
            tar.addfile(info, io.BytesIO(content))
    found = {entry.name.decode(): content for entry, content in read_plain(plain.getvalue())}
    assert found == {f"p/{name}": content for name, content in files.items()}
