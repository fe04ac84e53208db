# SPDX-License-Identifier: Apache-2.0
"""A corrected copy is the kind of file that the original is, and its comment stands below what has to come first."""

import os
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.doctor import fix_files, fixing, script

from .kinds import MODEL
from .test_fixing import checked

SERVE = f"vllm serve {MODEL} --enforce-eager --host 127.0.0.1"


def fixed(file: Path, content: bytes) -> bytes:
    """Correct a file with this content, and return the bytes of the copy."""
    file.write_bytes(content)
    made = fixing.copy(file, checked(file.name))
    assert made is not None
    return made.file.read_bytes()


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600])
def test_permissions_stay(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(f"#!/bin/sh\n{SERVE}\n")
    file.chmod(mode | 0o4000)
    made = fixing.copy(file, checked("serve.sh"))
    assert made is not None
    assert made.file.stat().st_mode & 0o7777 == mode


def test_line_ends_and_the_byte_order_mark_stay(tmp_path: Path) -> None:
    made = fixed(tmp_path / "compose.yml", b"\xef\xbb\xbf" + f"# h\u00e9\n{EAGER}\n".replace("\n", "\r\n").encode())
    assert made.startswith(b"\xef\xbb\xbf# Corrected by")
    assert b"\r\r" not in made
    assert made.count(b"\n") == made.count(b"\r\n")


def test_a_file_with_both_line_ends_keeps_those_of_its_lines(tmp_path: Path) -> None:
    made = fixed(tmp_path / "serve.sh", f"echo a\r\necho b\necho b\r\necho c\n{SERVE}\necho d\n".encode()).split(b"\n")
    assert [line for line in made if line.startswith(b"echo")] == [b"echo a\r", b"echo b", b"echo b\r", b"echo c", b"echo d"]
    assert made[0].startswith(b"# Corrected")
    assert not made[0].endswith(b"\r")


EAGER = f"services:\n  v:\n    image: vllm/vllm-openai:v0.32.0\n    command: [{MODEL}, --enforce-eager]"


@pytest.mark.parametrize(
    ("name", "first", "rest"),
    [
        (
            "Dockerfile",
            ["# syntax=docker/dockerfile:1", "#escape=\\"],
            ["FROM x", f'CMD ["vllm", "serve", "{MODEL}", "--enforce-eager"]'],
        ),
        ("Dockerfile", ["#!/usr/bin/env docker", "# syntax = docker/dockerfile:1"], ["# mine", "FROM x", f"CMD {SERVE}"]),
        ("serve.sh", ["#!/bin/bash"], ["# mine", SERVE]),
        (
            "serve.py",
            ["#!/usr/bin/env python3", "# vim: set fileencoding=utf-8 :"],
            ["import subprocess", f'subprocess.run(["vllm", "serve", "{MODEL}", "--enforce-eager"])'],
        ),
        ("compose.yml", ["%YAML 1.2", "---"], [EAGER]),
        ("compose.yml", ["# mine", "", "---"], [EAGER]),
        ("compose.yml", [], ["# mine", EAGER]),
    ],
)
def test_the_comment_stands_below_what_has_to_come_first(tmp_path: Path, name: str, first: list[str], rest: list[str]) -> None:
    made = fixed(tmp_path / name, "\n".join([*first, *rest, ""]).encode()).decode().split("\n")
    assert made[: len(first)] == first
    assert made[len(first)].startswith("# Corrected by")


def test_nothing_is_written_beside_a_device(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.sh"
    os.mkfifo(pipe)
    for odd in (Path("/dev/stdin"), Path("/dev/fd/0"), Path("/proc/self/fd/0"), Path("/dev/null"), pipe, tmp_path):
        with pytest.raises(StackError):
            fix_files.check([odd])
    (tmp_path / "a.sh").write_text(SERVE)
    with (tmp_path / "a.sh").open() as opened, pytest.raises(StackError, match="is not a file that can have"):
        fix_files.check([Path(f"/dev/fd/{opened.fileno()}")])


def test_nothing_is_written_if_one_of_several_cannot_be(tmp_path: Path) -> None:
    for name in ("a.sh", "b.sh", "b.fixed.sh"):
        (tmp_path / name).write_text(SERVE)
    with pytest.raises(StackError, match=r"b\.fixed\.sh is there already"):
        fix_files.check([tmp_path / "a.sh", tmp_path / "b.sh"])


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other, link = tmp_path / "a.sh", tmp_path / "b.sh", tmp_path / "c.sh"
    file.write_text(SERVE)
    other.write_text(SERVE)
    link.symlink_to(file)
    monkeypatch.chdir(tmp_path)
    assert fix_files.distinct([file, Path("a.sh"), link, other, tmp_path / "x.sh"]) == (file, other, tmp_path / "x.sh")


def test_bytes_that_are_not_utf_8_are_left_to_a_person(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_bytes(b"# caf\xe9\n" + SERVE.encode())
    with pytest.raises(StackError, match="it is not UTF-8"):
        fixing.copy(file, checked("serve.sh"))


def test_a_byte_order_mark_is_no_part_of_a_script(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_bytes(b"\xef\xbb\xbf" + SERVE.encode())
    assert [serve.model for serve in script.read(file).serves] == [MODEL]
