# SPDX-License-Identifier: Apache-2.0
"""A checkout whose files are links and pipes, a job that writes without end, and a machine of a cluster that lies."""

import importlib
import io
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.matrix import kept, local, on_node, on_ray, parcel, running
from stack.matrix.ended import Ended, State
from stack.matrix.job import Job, Kind, Needs

JOB = Job("wheels", Kind.WHEELS, ("build", "wheels"), Needs(), outputs=(".stack/matrix/wheels",))
WHEEL = ".stack/matrix/wheels/a.whl"


def run(root: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Run Python code as a job of this machine."""
    monkeypatch.setattr(local, "command", lambda *_: [sys.executable, "-c", code])
    engine = local.Local(root, root, local.Capacity(1, 99), 0)
    [end] = engine([JOB], silent)
    return end


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_log_is_not_written_through_a_link(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, logs = tmp_path / "mine", tmp_path / "root/.stack/matrix/logs"
    mine.mkdir()
    (mine / "wheels.log").write_text("mine")
    logs.parent.mkdir(parents=True)
    if kind == "folder":
        logs.symlink_to(mine)
        with pytest.raises(StackError, match="a link"):
            run(tmp_path / "root", "print(1)", monkeypatch)
    else:
        logs.mkdir()
        if kind == "link":
            (logs / "wheels.log").symlink_to(mine / "wheels.log")
        else:
            os.mkfifo(logs / "wheels.log")
        assert run(tmp_path / "root", "print(1)", monkeypatch).state is State.PASSED
        assert (logs / "wheels.log").read_text() == "$ stack build wheels\n1\n"
    assert (mine / "wheels.log").read_text() == "mine"


def test_a_lock_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.stack").symlink_to(tmp_path / "mine")
    with pytest.raises(StackError, match="a link"), running.alone(tmp_path / "root", lambda: None):
        raise AssertionError
    assert [*(tmp_path / "mine").iterdir()] == []


def test_a_job_that_writes_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("stack.matrix.log"), "LARGEST", 1 << 20)
    code = "import sys, time\nfor _ in range(300): sys.stdout.write('y' * 100_000); time.sleep(0.01)"
    end = run(tmp_path, code, monkeypatch)
    assert (end.state, end.why) == (State.FAILED, "exit code -15: ended, since its output has more than 1048576 bytes")
    assert (tmp_path / ".stack/matrix/logs/wheels.log").stat().st_size < 20 << 20


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_only_regular_files_are_results(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "root/.stack/matrix/wheels"
    if kind == "folder":
        (tmp_path / "mine/wheels").mkdir(parents=True)
        (tmp_path / "mine/wheels/secret").write_text("mine")
        place.parent.parent.mkdir(parents=True)
        place.parent.symlink_to(tmp_path / "mine")
    else:
        place.mkdir(parents=True)
        os.mkfifo(place / "a.whl")  # reading it would not end
    assert [*kept.left(tmp_path / "root", JOB)] == []


def packed(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def header_only(size: int) -> bytes:
    info = tarfile.TarInfo(WHEEL)
    info.size = size
    return info.tobuf()


def sparse() -> bytes:
    """A file of 1 GiB that is one hole."""
    info = tarfile.TarInfo(WHEEL)
    info.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,0",
        "GNU.sparse.size": str(1 << 30),
    }
    return packed((info, b""))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive",
        header_only(1 << 50),
        sparse(),
        packed((tarfile.TarInfo(WHEEL), b"\0" * 1000), mode="w:gz"),  # it could be a thousand times as large
        packed((tarfile.TarInfo(WHEEL), b"x" * 5000))[:3000],
    ],
    ids=["empty", "text", "petabyte", "sparse", "compressed", "cut"],
)
def test_files_of_a_machine_that_lies(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(StackError, match=r"sent (files that cannot|more than|'\.stack)"):
        parcel.bring(data, tmp_path, JOB)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_its_files_go_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "root/.stack/matrix").mkdir(parents=True)
    (tmp_path / "root/.stack/matrix/wheels").symlink_to(tmp_path / "mine")
    with pytest.raises(StackError, match="a link"):
        parcel.bring(packed((tarfile.TarInfo(WHEEL), b"x")), tmp_path / "root", JOB)
    assert [*(tmp_path / "mine").iterdir()] == []


class _Cluster:
    """Stands in for Ray where a task has ended: it returns the result that it was given."""

    class exceptions:
        class RayError(Exception): ...

        class RayTaskError(RayError): ...

    def get(self, task: Any) -> Any:
        return task


@pytest.mark.parametrize(
    "back",
    [
        None,
        ("x",),
        on_node.Returned("0", 1.0, "h", b"", b""),  # type: ignore[arg-type]
        on_node.Returned(True, 1.0, "h", b"", b""),
        on_node.Returned(0, float("nan"), "h", b"", b""),
        on_node.Returned(0, 1.0, "h", "log", b""),  # type: ignore[arg-type]
        on_node.Returned(0, 1.0, "h", b"", header_only(1 << 50)),
    ],
)
def test_a_result_that_is_none(tmp_path: Path, back: Any) -> None:
    """It is a failure of its job, and the other jobs go on."""
    ended = on_ray.Ray(tmp_path, "a:1")._ended(_Cluster(), back, JOB)  # type: ignore[arg-type]
    assert (ended.state, ended.job) == (State.FAILED, JOB)
    assert "returned something other than a result" in ended.why or "sent more than" in ended.why


def test_the_name_of_its_machine_cannot_steer_a_terminal(tmp_path: Path) -> None:
    back = on_node.Returned(0, 1.0, "\x1b[2J" + "x" * 1000, b"", packed((tarfile.TarInfo(WHEEL), b"x")))
    ended = on_ray.Ray(tmp_path, "a:1")._ended(_Cluster(), back, JOB)  # type: ignore[arg-type]
    assert ended.state is State.PASSED
    assert ended.host.isprintable()
    assert len(ended.host) <= 80


def test_a_job_on_another_machine_that_writes_without_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, time\nfor _ in range(300): sys.stdout.write('y' * 100_000); time.sleep(0.01)"
    monkeypatch.setattr(local, "command", lambda *_: [sys.executable, "-c", code])
    monkeypatch.setattr(importlib.import_module("stack.matrix.log"), "LARGEST", 1 << 20)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/pins.toml").write_text("")
    back = on_node.run(on_node.Order(JOB, str(tmp_path / "cache")), parcel.pack(tmp_path / "root"))
    assert back.log.startswith(b"$ stack build wheels\ny") or len(back.log) == on_node._LONGEST
    assert back.log.endswith(b"ended, since its output has more than 1048576 bytes\n")
    assert back.code != 0
