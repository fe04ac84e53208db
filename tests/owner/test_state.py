# SPDX-License-Identifier: Apache-2.0
"""The state's file: what is written is read again, and what is damaged is refused in one line."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.owner import state_file
from stack.owner.state import Image, Model, Setup, State, Step, Work

DIGEST = f"sha256:{'a' * 64}"
SETUP = Setup("recipe", Image("x:1", DIGEST, DIGEST, "/key.pem"), Model("/m", "a/b", "0" * 40, "c"), 8000)
FULL = State(
    "docker",
    "stack-server",
    replace(SETUP, variables={"A": "b"}, extra=("--x", "--x"), opened=True, fallback=True),
    replace(SETUP, image=replace(SETUP.image, key=None), model=Model("/m")),
    SETUP,
    Work("update", Step.ANSWER, replace(SETUP.wanted, variables={"A": "b"}, keep_free=2.5)),
)


@pytest.mark.parametrize("known", [State("podman"), FULL])
def test_what_is_written_is_read(tmp_path: Path, known: State) -> None:
    file = tmp_path / "state/server.json"
    assert state_file.read(file) is None
    state_file.write(file, known)
    assert state_file.read(file) == known
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not of version 1"),
        ('{"schema": 2}', "is not of version 1"),
        ('{"schema": 1}', "engine is missing"),
        ('{"schema": 1, "engine": "docker", "container": "c", "more": 1}', "more is an unknown key"),
        ('{"schema": 1, "engine": "docker", "container": "c", "now": 1}', "now is 1"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_damaged_file(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "server.json"
    file.write_text(text)
    with pytest.raises(StackError, match=problem):
        state_file.read(file)


def test_a_digest_is_one(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    state_file.write(file, FULL)
    text = json.loads(file.read_text())
    text["now"]["image"]["id"] = "--privileged"
    file.write_text(json.dumps(text))
    with pytest.raises(StackError, match=r"now.image.id is '--privileged'"):
        state_file.read(file)


def test_one_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    with (
        state_file.locked(file),
        pytest.raises(StackError, match="another spark-stack is changing the server"),
        state_file.locked(file),
    ):
        pass
    with state_file.locked(file):
        pass


def test_a_lock_that_is_freed_a_moment_later_is_got(tmp_path: Path) -> None:
    """A killed command's child holds the lock until it has begun its program."""
    file = tmp_path / "server.json"
    freed = threading.Event()

    def hold() -> None:
        with state_file.locked(file):
            freed.wait()
            time.sleep(0.3)

    with ThreadPoolExecutor() as others:
        holder = others.submit(hold)
        while not (tmp_path / "server.json.lock").exists():
            time.sleep(0.01)
        freed.set()
        with state_file.locked(file):
            assert not holder.running() or holder.result(timeout=60) is None
