# SPDX-License-Identifier: Apache-2.0
"""A disk that is full at any write of `up` or `update`, of the state or of the engine: nothing is lost, the next call goes on."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from stack.store import cache

from .world import ONE, TWO, World, made

pytestmark = pytest.mark.slow
UPDATE = ["update", "--image", TWO]


@contextmanager
def full_at(number: int) -> Iterator[list[int]]:
    """Let the write of that number of the state or a log find no room; yield how many writes there were."""
    writes, appearing = [0], cache.appearing

    @contextmanager
    def watched(target: Path, rights: int = 0o644) -> Iterator[IO[bytes]]:
        writes[0] += 1
        if writes[0] == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        with appearing(target, rights) as file:
            yield file

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "appearing", watched)
        yield writes


def check(world: World, words: list[str], moment: object) -> None:
    """The next call goes on, to the end."""
    assert len(world.containers()) <= 1
    ran = world.run(*words)
    assert ran.code == 0, (moment, ran)
    known = world.known()
    assert known.now is not None
    wanted = TWO if words == UPDATE else ONE
    assert (known.now.image.name, known.target, known.work, world.running()) == (wanted, None, None, wanted)


@pytest.mark.parametrize("verb", ["up", "update"])
def test_of_the_state(tmp_path: Path, verb: str) -> None:
    moment, total = 1, 99
    while moment <= total:
        with made(tmp_path / str(moment)) as world:
            words = world.up() if verb == "up" else UPDATE
            if verb == "update":
                assert world.run(*world.up()).code == 0
            with full_at(moment) as writes:
                ran = world.run(*words)
            total = min(total, writes[0]) if ran.code == 0 else total
            if ran.code:
                assert "No space left on device" in ran.err, (moment, ran)
            check(world, words, moment)
        moment += 1
    assert moment > 3


@pytest.mark.parametrize("verb", ["up", "update"])
def test_of_the_engine(tmp_path: Path, verb: str) -> None:
    """Pull, tag and run: what the engine writes."""
    for moment in range(1, 4):
        with made(tmp_path / str(moment)) as world:
            words = world.up() if verb == "up" else UPDATE
            before = 0
            if verb == "update":
                assert world.run(*world.up()).code == 0
                before = sum(call[0] in ("pull", "tag", "run") for call in world.calls())
            world.environment["FAKE_FULL"] = str(before + moment)
            ran = world.run(*words)
            assert ran.code in (1, 2), (moment, ran)
            assert "no space left on device" in ran.err
            if verb == "update":
                assert world.running() == ONE
            del world.environment["FAKE_FULL"]
            check(world, words, moment)
