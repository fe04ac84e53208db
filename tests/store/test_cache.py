# SPDX-License-Identifier: Apache-2.0
import errno
import fcntl
import os
import select
import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from stack.base.errors import StackError
from stack.store import cache


def test_the_named_folder_wins_then_the_variable_then_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.root() == Path(platformdirs.user_cache_dir("stack", appauthor=False))
    monkeypatch.setenv("STACK_CACHE", str(tmp_path / "variable"))
    assert cache.root() == tmp_path / "variable"
    assert cache.root(tmp_path / "named") == tmp_path / "named"


def test_places(tmp_path: Path) -> None:
    assert cache.upstream_store(tmp_path, "vllm") == tmp_path / "upstreams/vllm.git"
    assert cache.archive(tmp_path, "vllm", "vllm-1.0.tar.gz") == tmp_path / "archives/vllm/vllm-1.0.tar.gz"


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a\0b", "-rf", "a\n"])
def test_names_that_are_no_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StackError, match="cannot be a file name"):
        cache.upstream_store(tmp_path, name)
    with pytest.raises(StackError, match="cannot be a file name"):
        cache.archive(tmp_path, "vllm", name)


HOLD = """
import select, sys, time
from pathlib import Path
from stack.store import cache
with cache.lock(Path(sys.argv[1])):
    print("held", flush=True)
    select.select([sys.stdin], [], [], 60)
    time.sleep(0.1)
    print("released", flush=True)
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds a lock until its input ends, and a moment longer."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_waits_for_the_other_process_and_says_so(tmp_path: Path) -> None:
    with hold(tmp_path / "x") as other:
        assert other.stdin is not None
        assert other.stdout is not None
        told = []

        def let_go() -> None:
            told.append(True)
            other.stdin.close()  # type: ignore[union-attr]

        with cache.lock(tmp_path / "x", let_go):
            ready, _, _ = select.select([other.stdout], [], [], 0)
            assert ready, "the lock was given while the other process held it"
    assert told == [True]


def test_a_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with hold(tmp_path / "x") as other:
        other.kill()
        other.wait()
        with cache.lock(tmp_path / "x", lambda: pytest.fail("waited")):
            pass


def test_locks_of_different_paths_do_not_meet(tmp_path: Path) -> None:
    with hold(tmp_path / "x") as other:
        with cache.lock(tmp_path / "y", lambda: pytest.fail("waited")):
            pass
        other.kill()


def test_a_file_system_without_locks_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", none)
    with (
        pytest.raises(StackError, match=r"x cannot be locked \(No locks available\): .*STACK_CACHE"),
        cache.lock(tmp_path / "x"),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match=r"cannot write .*file/x.*STACK_CACHE"), cache.lock(tmp_path / "file/x/y"):
        pass


def test_a_file_does_not_take_the_place_of_something_else(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileExistsError, match="exists, but is not a file"):
        cache.put(tmp_path / "fifo", b"new")
    assert (tmp_path / "fifo").is_fifo()
    assert [one.name for one in tmp_path.iterdir()] == ["fifo"]
