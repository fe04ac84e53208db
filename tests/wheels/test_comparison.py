# SPDX-License-Identifier: Apache-2.0
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.wheels import comparison
from stack.wheels.comparison import DifferenceKind

from ..cli.conftest import Stack
from .factories import wheel

FILES = {"gamma/__init__.py": b"one = 1\ntwo = 2\n", "gamma/core.so": bytes(range(256)) * 8000}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return wheel(tmp_path / "one", FILES)


def packed(path: Path, target: Path, change: Callable[[list[zipfile.ZipInfo]], None]) -> Path:
    """A wheel with the same contents, its members changed in how they are packed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        contents = {info.filename: old.read(info) for info in old.infolist()}
        infos = old.infolist()
        change(infos)
        for info in infos:
            new.writestr(info, contents[info.filename])
    return target


def found(first: Path, second: Path) -> list[tuple[DifferenceKind, str, tuple[str, ...]]]:
    return [(one.kind, one.name, one.lines) for one in comparison.compare(first, second)]


def test_the_same_bytes(first: Path, tmp_path: Path) -> None:
    assert found(first, wheel(tmp_path / "two", FILES)) == []


def test_contents_come_before_the_record_that_follows_from_them(first: Path, tmp_path: Path) -> None:
    other = {"gamma/__init__.py": b"one = 1\ntwo = 3\n", "gamma/core.so": FILES["gamma/core.so"] + b"\xff", "gamma/new.py": b""}
    only, text, binary, record = found(first, wheel(tmp_path / "two", other))
    assert only == (DifferenceKind.ONLY_SECOND, "gamma/new.py", ())
    assert text == (DifferenceKind.CONTENT, "gamma/__init__.py", ("@@ -1,2 +1,2 @@", " one = 1", "-two = 2", "+two = 3"))
    assert binary == (DifferenceKind.CONTENT, "gamma/core.so", ("from byte 2048000 on; 2048000 and 2048001 bytes",))
    assert record[:2] == (DifferenceKind.CONTENT, "gamma_pkg-2.0.dist-info/RECORD")
    assert next(one[0] for one in found(wheel(tmp_path / "two", other), first)) is DifferenceKind.ONLY_FIRST


def test_ends_of_lines_count(first: Path, tmp_path: Path) -> None:
    text = found(first, wheel(tmp_path / "two", FILES | {"gamma/__init__.py": b"one = 1\r\ntwo = 2\n"}))[0]
    assert text[2] == ("from byte 7 on; 16 and 17 bytes",)


def test_a_long_difference_is_cut(tmp_path: Path) -> None:
    one, two = (wheel(tmp_path / name, {"a.txt": "".join(f"{name}{at}\n" for at in range(99)).encode()}) for name in ("x", "y"))
    assert len(found(one, two)[0][2]) == 21
    assert found(one, two)[0][2][-1] == "…"


def dated(infos: list[zipfile.ZipInfo]) -> None:
    infos[0].date_time = (2026, 1, 2, 3, 4, 6)
    infos[1].external_attr = 0o100644 << 16


def turned(infos: list[zipfile.ZipInfo]) -> None:
    infos.reverse()


def stored(infos: list[zipfile.ZipInfo]) -> None:
    infos[1].compress_type = zipfile.ZIP_STORED


def test_how_the_same_files_are_packed(first: Path, tmp_path: Path) -> None:
    date, rights = found(first, packed(first, tmp_path / "dated.whl", dated))
    assert date == (
        DifferenceKind.PACKED,
        "gamma/__init__.py",
        ("date: (2026, 10, 17, 21, 45, 46) and (2026, 1, 2, 3, 4, 6)",),
    )
    assert rights == (DifferenceKind.PACKED, "gamma/core.so", ("rights: 100755 and 100644",))
    [order] = found(first, packed(first, tmp_path / "turned.whl", turned))
    assert order[0] is DifferenceKind.ORDER and order[2][0].startswith("gamma/__init__.py is where the second has ")
    [kept] = found(first, packed(first, tmp_path / "stored.whl", stored))
    assert [line.split(":")[0] for line in kept[2]] == ["compression", "compressed size"]


def test_bytes_that_belong_to_no_file(first: Path, tmp_path: Path) -> None:
    other = tmp_path / "comment.whl"
    other.write_bytes(first.read_bytes())
    with zipfile.ZipFile(other, "a") as archive:
        archive.comment = b"hello"
    [rest] = found(first, other)
    assert rest[0] is DifferenceKind.REST


def test_what_is_no_wheel(first: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    other.write_bytes(b"PK")
    with pytest.raises(StackError, match="is not a readable wheel"):
        comparison.compare(first, other)
    data = bytearray(first.read_bytes())
    data[60] ^= 0xFF
    other.write_bytes(data)
    with pytest.raises(StackError, match=r"gamma/__init__\.py cannot be read"):
        comparison.compare(first, other)


def test_the_verb(stack: Stack, first: Path, tmp_path: Path) -> None:
    other = wheel(tmp_path / "two", FILES | {"gamma/__init__.py": b"one = 2\n"})
    assert (stack("wheel", "diff", first, first).code, stack("wheel", "diff", first, first).out) == (0, "the same bytes\n")
    ran = stack("wheel", "diff", first, other)
    assert ran.code == 1
    assert "gamma/__init__.py: content\n" in ran.out and "    -one = 1\n" in ran.out
    said = json.loads(stack("wheel", "diff", first, other, "--json").out)
    assert said["same"] is False
    assert {" ".join(one) for one in said["differences"]} == {"kind name lines"}
