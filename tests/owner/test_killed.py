# SPDX-License-Identifier: Apache-2.0
"""Killed at any moment, `up` and `update` lose nothing: the next call goes on."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from stack.owner import state_file

from ..sweeps import sweep
from .world import ONE, RECIPE, TWO, World, digest, made

pytestmark = pytest.mark.slow
FORKED = """
import json, os, signal, sys, time
from stack.cli import owner
from stack.cli.owner import down, logs, outcomes, rollback, starting, status, up, update
from stack.deploy import available_memory
from stack.deploy.available_memory import Memory
available_memory.read = lambda: Memory(10**12, 10**12, 10**12, 0, 0, 0, 0)
words, delay, whole = json.loads(sys.argv[1])
sys.argv = ["spark-stack", *words]
pid = os.fork()
if pid == 0:
    sys.stdout = sys.stderr = open(os.devnull, "w")
    owner.main()
os.setpgid(pid, pid)
time.sleep(delay)
(os.killpg if whole else os.kill)(pid, signal.SIGKILL)
os.waitpid(pid, 0)
"""


def killed(world: World, words: Sequence[str], delay: float, *, whole: bool) -> None:
    """Start `spark-stack WORDS` and kill it after some seconds; `whole`: with the engine's command that it waits for."""
    subprocess.run(
        [sys.executable, "-c", FORKED, json.dumps([[*words], delay, whole])],
        env={**os.environ, **world.environment},
        cwd=world.folder,
        check=True,
        timeout=120,
    )


def whole_time(world: World, words: Sequence[str]) -> float:
    """How long a verb takes when nobody kills it."""
    began = time.monotonic()
    ran = world.run(*words)
    assert ran.code == 0, ran
    return time.monotonic() - began


def check_nothing_is_lost(world: World) -> None:
    """The state can be read, and there is at most one container, of an image that the engine has."""
    state_file.read(world.file)
    assert len(world.containers()) <= 1


@sweep("moments", 5, 50)
def test_up(tmp_path: Path, moments: int) -> None:
    with made(tmp_path / "measured") as world:
        longest = whole_time(world, world.up())
    for moment in range(moments):
        with made(tmp_path / str(moment)) as world:
            killed(world, world.up(), longest * moment / moments, whole=moment % 2 == 0)
            check_nothing_is_lost(world)
            ran = world.run(*world.up())
            assert ran.code == 0, (moment, ran)
            known = world.known()
            assert known.now is not None and (known.now.image.name, known.target, known.work) == (ONE, None, None)
            assert world.running() == ONE


UPDATE = ("update", "--image", TWO)


def killed_updates(folder: Path, moments: int, share: Callable[[int], float]) -> Iterator[tuple[int, World]]:
    """Machines whose update was killed, each at a later moment: after a share of the time that it takes."""
    with made(folder / "measured") as world:
        world.run(*world.up())
        longest = whole_time(world, UPDATE)
    for moment in range(moments):
        with made(folder / str(moment)) as world:
            assert world.run(*world.up()).code == 0
            killed(world, UPDATE, longest * share(moment), whole=moment % 2 == 0)
            yield moment, world


@sweep("moments", 5, 50)
def test_update(tmp_path: Path, moments: int) -> None:
    for moment, world in killed_updates(tmp_path, moments, lambda moment: moment / moments):
        check_nothing_is_lost(world)
        known = world.known()
        assert known.now is not None and known.now.image.name in (ONE, TWO)
        assert (world.engine / f"pulled/{digest(f'id {ONE}')[7:]}.json").exists()
        ran = world.run(*UPDATE)
        assert ran.code == 0, (moment, ran)
        known = world.known()
        assert known.now is not None and known.before is not None
        assert (known.now.image.name, known.before.image.name) == (TWO, ONE)
        assert (known.target, known.work, world.running()) == (None, None, TWO)


@sweep("moments", 3, 20)
def test_an_update_that_was_killed_is_given_up(tmp_path: Path, moments: int) -> None:
    """`rollback` after a killed update, and `up` after it, bring the old server back."""
    for moment, world in killed_updates(tmp_path, moments, lambda moment: 0.9 * (moment + 1) / moments):
        began = world.known().work is not None or world.known().before is not None
        ran = world.run("rollback")
        # Nothing was begun yet: then there is nothing to give up.
        assert (ran.code, world.running()) == (0 if began else 2, ONE), (moment, ran)
        assert world.run("status").out.startswith(f"{RECIPE} answers")
