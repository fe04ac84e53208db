# SPDX-License-Identifier: Apache-2.0
"""ZIP files made of others: Python's own module reads back what was written."""

import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.wheels import zips
from stack.wheels.zips import Member

NAMES = st.text("abcÄ文-. ", min_size=1, max_size=6).filter(lambda name: name.strip(". "))


def packed(path: Path, content: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), data, method)
    return path


def unpacked(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    old=st.dictionaries(NAMES, st.binary(max_size=3000), max_size=5),
    new=st.dictionaries(NAMES, st.binary(max_size=100), max_size=3),
    method=st.sampled_from([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED]),
)
def test_what_is_copied_and_what_is_new_reads_back(
    tmp_path: Path, old: dict[str, bytes], new: dict[str, bytes], method: int
) -> None:
    source = packed(tmp_path / "old.whl", old, method)
    dated = zipfile.ZipInfo("", (2020, 2, 29, 23, 59, 58))
    with zips.opened(source) as archive:
        kept = [Member(info.filename, info) for info in archive.infolist() if info.filename not in new]
    members = [*kept, *(Member(name, dated, data) for name, data in new.items())]
    zips.write(tmp_path / "new.whl", source, members)
    assert unpacked(tmp_path / "new.whl") == old | new
    with zipfile.ZipFile(tmp_path / "new.whl") as archive, zipfile.ZipFile(source) as before:
        for info in archive.infolist():
            wanted = dated if info.filename in new else before.getinfo(info.filename)
            assert info.date_time == wanted.date_time
            if info.filename not in new:
                assert (info.compress_size, info.CRC) == (wanted.compress_size, wanted.CRC)


def test_a_member_that_was_streamed_is_copied(tmp_path: Path) -> None:
    """Its local header has no sizes: they stand behind it."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.data += data
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:  # type: ignore[arg-type]
        archive.writestr("a", b"x" * 1000, zipfile.ZIP_DEFLATED)
        archive.writestr("b", b"y")
    (tmp_path / "old.whl").write_bytes(pipe.data)
    with zips.opened(tmp_path / "old.whl") as opened:
        assert opened.getinfo("a").flag_bits & 8
        zips.write(tmp_path / "new.whl", tmp_path / "old.whl", [Member(info.filename, info) for info in opened.infolist()])
    assert unpacked(tmp_path / "new.whl") == {"a": b"x" * 1000, "b": b"y"}


@pytest.mark.parametrize("name", ["/etc/passwd", "a/../../b", "a//b", "a\\b", "./a"])
def test_names_that_leave_the_wheel_are_refused(tmp_path: Path, name: str) -> None:
    packed(tmp_path / "old.whl", {name: b""})
    with pytest.raises(StackError, match="is outside of the archive"), zips.opened(tmp_path / "old.whl"):
        pass


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "old.whl"
    file.write_bytes(b"no archive")
    with pytest.raises(StackError, match="not a readable wheel"), zips.opened(file):
        pass
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"")
        archive.writestr("a", b"")
    with pytest.raises(StackError, match="'a' occurs twice"), zips.opened(file):
        pass
    packed(file, {"a": b"x" * 100}, zipfile.ZIP_BZIP2)
    with pytest.raises(StackError, match="has a compression"), zips.opened(file):
        pass


def test_a_file_cut_short_leaves_nothing(tmp_path: Path) -> None:
    source = packed(tmp_path / "old.whl", {"a": bytes(range(256)) * 99}, zipfile.ZIP_STORED)
    with zips.opened(source) as archive:
        members = [Member(info.filename, info) for info in archive.infolist()]
    source.write_bytes(source.read_bytes()[:500])
    with pytest.raises(StackError, match="is cut short"):
        zips.write(tmp_path / "new.whl", source, members)
    source.write_bytes(b"P" + source.read_bytes())
    with pytest.raises(StackError, match="has no header"):
        zips.write(tmp_path / "new.whl", source, members)
    assert [path.name for path in tmp_path.iterdir()] == ["old.whl"]
