# SPDX-License-Identifier: Apache-2.0
"""A server is ended before the machine has no memory left, and only then."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import available_memory
from stack.deploy.available_memory import Sample
from stack.serving.memory_guard import STALLED, MemoryGuard, short
from stack.validation.serve import parent_watchdog

from ..deploy.machines import GB
from ..validation.serve.test_server import gone_pids


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (Sample(9 * GB, 0), None),
        (Sample(7 * GB, 2 * GB), None),  # swap counts
        (Sample(7 * GB, 0), "7.0 GB of memory and 0.0 GB of swap were left, less than the 8 GB of --keep-free"),
        (Sample(1 * GB, 20 * GB, STALLED - 1), None),
        (Sample(1 * GB, 20 * GB, STALLED), "all processes waited for memory 20 % of the time"),
        (Sample(9 * GB, 20 * GB, 99.0), None),  # processes wait for something else than this server
    ],
)
def test_when_too_little_is_left(sample: Sample, said: str | None) -> None:
    found = short(sample, 8 * GB)
    assert (found is None) == (said is None)
    assert said is None or said in (found or "")


def samples(*values: int) -> Iterator[Sample]:
    yield from (Sample(value * GB, 0) for value in values)
    while True:
        yield Sample(values[-1] * GB, 0)


def test_it_ends_the_server_once_and_says_why() -> None:
    looks, ended = samples(20, 12, 9, 7, 20), []
    guard = MemoryGuard(8 * GB, lambda: next(looks), 0.01)
    with guard.watching(lambda: ended.append(time.monotonic())):
        until = time.monotonic() + 10
        while not ended and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
    assert len(ended) == 1
    assert guard.reason is not None
    assert guard.reason.startswith("7.0 GB of memory")


def test_a_server_with_enough_memory_runs_on() -> None:
    guard = MemoryGuard(8 * GB, lambda: Sample(9 * GB, 0), 0.01)
    with guard.watching(lambda: pytest.fail("it was ended")):
        time.sleep(0.1)
    assert guard.reason is None


def test_a_look_that_fails_ends_nothing_but_the_first_one_says_so() -> None:
    looks = iter([Sample(9 * GB, 0), None, None])

    def look() -> Sample:
        sample = next(looks, None)
        if sample is None:
            raise StackError("nothing is known", "try again")
        return sample

    guard = MemoryGuard(8 * GB, look, 0.01)
    with guard.watching(lambda: pytest.fail("it was ended")):
        time.sleep(0.1)
    with pytest.raises(StackError, match="nothing is known"), guard.watching(lambda: None):
        pass


def test_a_server_that_ignores_sigterm_is_killed_at_once(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' TERM; sleep 600 & echo $$ $!; wait"]
    guard = MemoryGuard(2**60, pause=0.05)  # more than any machine has: this machine's own numbers
    with parent_watchdog.kept(command, os.environ, subprocess.PIPE, tmp_path) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        begun = time.monotonic()
        with guard.watching(lambda: parent_watchdog.kill(process)):
            process.wait(timeout=30)
        assert time.monotonic() - begun < parent_watchdog.PATIENCE / 2
        parent_watchdog.kill(process)  # it has ended: nothing happens
    process.stdout.close()
    assert gone_pids(pids)
    assert guard.reason is not None
    assert available_memory.sample().available > 0
