# SPDX-License-Identifier: Apache-2.0
"""A server is compared with the memory that is available, not with all that the machine has."""

from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.deploy import available_memory, recipes
from stack.deploy.available_memory import Memory
from stack.serving import room

from ..deploy.machines import GB, made
from .test_demands import GB10, H200, H200_GPU, SPARK, TINY, machine

EMPTY = Memory(total=128 * GB, free=120 * GB, available=122 * GB, cache=2 * GB, shared=0, swap=0, swap_free=0)


@pytest.mark.parametrize(
    ("recipe", "extra", "wanted"),
    [
        (SPARK, (), 90),
        (SPARK, ("--gpu-memory-utilization", "0.5"), 64),
        (SPARK, ("--gpu_memory_utilization=0.25",), 32),
        (SPARK, ("--gpu-memory-utilization", "lots"), 90),
        (SPARK, ("--gpu-memory-utilization",), 90),
        (TINY, (), 5),
    ],
)
def test_what_a_server_takes_of_the_memory_that_is_shared(
    recipe: recipes.Recipe, extra: tuple[str, ...], wanted: float
) -> None:
    assert room.needed(recipe, machine(GB10), extra) == pytest.approx(wanted * GB)


def test_a_gpu_with_its_own_memory_takes_none_of_the_machines() -> None:
    assert room.needed(H200, machine(H200_GPU)) is None
    assert room.needed(recipes.load("gpt-oss"), machine(GB10)) is None
    assert room.needed(SPARK, machine()) is None


def test_enough_is_enough() -> None:
    assert room.demand(SPARK, 90 * GB, 0, silent, lambda: EMPTY) is None


def test_too_little_is_refused_with_the_numbers_and_what_to_do(tmp_path: Path) -> None:
    here = made(tmp_path)
    here.memory(MemAvailable=40 * GB, MemFree=10 * GB, Cached=33 * GB)
    here.process(20, "VLLM::EngineCore", "VLLM::EngineCore")
    here.process(30, "gnome-shell", "/usr/bin/gnome-shell", own=2 * GB)
    here.on_gpu("20, VLLM::EngineCore, 60000")
    with pytest.raises(StackError) as refused:
        room.demand(SPARK, 90 * GB, 0, silent, lambda: available_memory.read(here.sources))
    assert str(refused.value) == (
        "recipe gpt-oss-120b-spark takes 90 GB, and 40 GB of 128 GB are available (10 GB unused, 32 GB page cache); 15 GB of 16 GB swap "
        "are free: end what an earlier server left over (20 VLLM::EngineCore, 63 GB): kill 20; or end the desktop session, which holds at "
        "least 2.0 GB: sudo systemctl isolate multi-user.target; or drop the page cache of 32 GB: sync; echo 3 | sudo tee "
        "/proc/sys/vm/drop_caches; or --wait-for-memory SECONDS waits for it"
    )


def test_a_limit_of_the_container_is_named() -> None:
    with pytest.raises(
        StackError, match=r"the control group allows 64 GB more .*raise the memory limit of this container or service"
    ):
        room.demand(SPARK, 90 * GB, 0, silent, lambda: replace(EMPTY, limit=64 * GB))


def test_it_waits_until_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PAUSE", 0.01)
    looks = iter([replace(EMPTY, available=size * GB) for size in (40, 60, 95)])
    told: list[tuple[str, int, int | None]] = []

    def tell(step: str, done: int = 0, total: int | None = None, /) -> None:
        told.append((step, done, total))

    assert room.demand(SPARK, 90 * GB, 30, tell, lambda: next(looks)) is None
    assert told == [("waiting for memory, in GB", 40, 90), ("waiting for memory, in GB", 60, 90)]


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PAUSE", 0.01)
    with pytest.raises(StackError, match=r"takes 90 GB, and after 0\.05 s 40 GB of 128 GB are available"):
        room.demand(SPARK, 90 * GB, 0.05, silent, lambda: replace(EMPTY, available=40 * GB))


def test_a_page_cache_that_the_driver_counts_is_a_warning() -> None:
    warning = room.demand(SPARK, 90 * GB, 0, silent, lambda: replace(EMPTY, free=30 * GB, available=110 * GB, cache=80 * GB))
    assert warning is not None
    assert "the page cache holds 80 GB" in warning
    assert "drop_caches" in warning
    assert room.demand(TINY, 5 * GB, 0, silent, lambda: replace(EMPTY, free=1 * GB, cache=80 * GB)) is None
