# SPDX-License-Identifier: Apache-2.0
"""A kept result counts only while the files are there that the job left."""

from pathlib import Path

import pytest

from stack.matrix import inputs
from stack.matrix.job import Job, Kind, Needs
from stack.matrix.kept import Shelf

from ..carry.world import World

JOB = Job("wheels", Kind.WHEELS, ("build", "wheels", "--out", "out"), Needs(), outputs=("out",))


@pytest.fixture
def shelf(world: World) -> Shelf:
    (world.root / "out/below").mkdir(parents=True)
    (world.root / "out/a.whl").write_text("a")
    (world.root / "out/below/b.whl").write_text("b")
    return Shelf(world.cache, world.load())


def put(world: World, shelf: Shelf) -> Path:
    shelf.put(inputs.key(world.load(), JOB), JOB, 123.0, "here")
    [file] = (world.cache / "results/matrix").iterdir()
    return file


def test_it_is_kept_with_its_files(world: World, shelf: Shelf) -> None:
    put(world, shelf)
    kept = shelf.get(inputs.key(world.load(), JOB))
    assert kept is not None
    assert (kept.seconds, kept.host, [*kept.outputs]) == (123.0, "here", ["out/a.whl", "out/below/b.whl"])
    assert shelf.timed(JOB).needs.minutes == 2.0


@pytest.mark.parametrize("change", ["missing", "another"])
def test_without_its_files_it_does_not_count(world: World, shelf: Shelf, change: str) -> None:
    put(world, shelf)
    file = world.root / "out/below/b.whl"
    file.unlink()
    if change == "another":
        file.write_text("B")
    assert shelf.get(inputs.key(world.load(), JOB)) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"seconds": "x", "host": 1, "outputs": {}}', '{"seconds": 1, "outputs": []}']
)
def test_a_damaged_one_does_not_count(world: World, shelf: Shelf, text: str) -> None:
    put(world, shelf).write_text(text)
    assert shelf.get(inputs.key(world.load(), JOB)) is None


def test_a_link_among_its_files_is_not_followed(world: World, shelf: Shelf, tmp_path: Path) -> None:
    (world.root / "out/link").symlink_to(tmp_path)
    put(world, shelf)
    kept = shelf.get(inputs.key(world.load(), JOB))
    assert kept is not None
    assert [*kept.outputs] == ["out/a.whl", "out/below/b.whl"]


def test_what_a_job_does_not_read_does_not_matter(world: World) -> None:
    """A job of another lane, resolutions and files beside the stack do not; patches and pins do."""
    carried = world.load()
    before = inputs.key(carried, JOB)
    for path in ("README", "stacks/lanes/1.0/one/gamma/hook-main.patch", "stacks/resolutions/x", "stacks/one/.hidden"):
        file = world.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("other")
    assert inputs.key(carried, JOB) == before
    assert inputs.key(carried, Job("wheels", Kind.WHEELS, ("build", "wheels"), Needs())) != before
    (world.root / "kernels").mkdir()
    (world.root / "kernels/new.cuh").write_text("x")
    assert inputs.key(carried, JOB) != before
