# SPDX-License-Identifier: Apache-2.0
"""A job on another machine gets the stack's files, and only the job's own files come back."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.matrix import on_node, parcel
from stack.matrix.job import Job, Kind, Needs
from stack.store import git

JOB = Job("wheels", Kind.WHEELS, ("build", "wheels"), Needs(), outputs=(".stack/matrix/wheels", ".stack/verdicts/k.json"))


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("repository", [True, False])
def test_the_files_of_a_stack_arrive(tmp_path: Path, repository: bool) -> None:
    root = tmp_path / "stack"
    write(root, "pins.toml", "stacks/one/gamma/ä.patch", ".stack/log", "new.txt")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("/etc/passwd")
    if repository:
        git.run(["init", "--quiet", "--template=", str(root)])
        write(root, "build/large", ".gitignore")
        (root / ".gitignore").write_text("build/\n")
        git.run(["add", "pins.toml"], cwd=root)
    parcel.unpack(parcel.pack(root), tmp_path / "there")
    wanted = {"pins.toml", "stacks/one/gamma/ä.patch", "new.txt", "run.sh"} | ({".gitignore"} if repository else set())
    assert files(tmp_path / "there") == wanted
    assert os.access(tmp_path / "there/run.sh", os.X_OK)


def test_a_stack_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "pins.toml")
    monkeypatch.setattr(parcel, "_LARGEST", 5)
    with pytest.raises(StackError, match="are larger than"):
        parcel.pack(tmp_path)


def test_the_files_of_a_job_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "there", ".stack/matrix/wheels/a/b.whl", ".stack/verdicts/k.json", ".stack/verdicts/other.json")
    packed = parcel.outputs(tmp_path / "there", JOB)
    write(tmp_path / "here", ".stack/verdicts/k.json")
    parcel.bring(packed, tmp_path / "here", JOB)
    assert files(tmp_path / "here") == {".stack/matrix/wheels/a/b.whl", ".stack/verdicts/k.json"}
    monkeypatch.setattr(parcel, "LARGEST", 5)
    with pytest.raises(StackError, match="are larger than"):
        parcel.outputs(tmp_path / "there", JOB)


@pytest.mark.parametrize(
    "name", ["pins.toml", "../x", "/x", ".stack/matrix/wheels/../../../x", ".stack/verdicts/k.json.sig", "link"]
)
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        info = tarfile.TarInfo(".stack/matrix/wheels/link" if name == "link" else name)
        if name == "link":
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(StackError, match="none of its files"):
        parcel.bring(made.getvalue(), tmp_path, JOB)
    assert files(tmp_path) == set()


def test_another_version_of_the_tool_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"has git-carry .*, not 0\.0\.1: install the same"):
        on_node.run(on_node.Order(JOB, str(tmp_path), "0.0.1"), b"")
