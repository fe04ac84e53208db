# SPDX-License-Identifier: Apache-2.0
"""An unfinished verb is continued by the same verb, replaced by another `up` or `update`, and given up by `rollback` and `down`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stack.owner import state_file
from stack.owner.state import Step, Work

from ..sweeps import sweep
from .test_killed import killed, killed_updates, whole_time
from .world import ONE, RECIPE, TWO, World, digest, made


def interrupted(world: World, *words: object) -> None:
    """Call a verb whose engine finds no room."""
    world.environment["FAKE_FULL"] = "all"
    assert world.run(*words).code == 2
    del world.environment["FAKE_FULL"]


def test_a_first_start_goes_on_with_its_options(world: World) -> None:
    interrupted(world, *world.up(ONE, "--allow-fallback", "--keep-free", "2", "--", "--max-num-seqs", "3"))
    status = " ".join(world.run("status").out.split())
    assert f"Not finished: up of {RECIPE}, at the step image. Go on: spark-stack up" in status
    assert "Give it up: spark-stack down" in status
    assert world.run("up").code == 0
    now = world.known().now
    assert now is not None
    assert (now.image.name, now.port, now.fallback, now.keep_free, now.extra) == (
        *(ONE, world.port, True, 2, ("--max-num-seqs", "3")),
    )


def test_relative_paths_go_on_in_another_folder(world: World) -> None:
    interrupted(world, "up", RECIPE, "--image", ONE, "--model", "model", "--port", world.port)
    work = world.known().work
    assert work is not None and work.wanted.model == world.model
    interrupted(world, "up", RECIPE, "--image", "oci:layout", "--model", "model", "--port", world.port)
    work = world.known().work
    assert work is not None and work.wanted.image == f"oci:{world.folder / 'layout'}"


@pytest.mark.parametrize("verb", ["rollback", "down"])
def test_a_first_start_is_given_up(world: World, verb: str) -> None:
    interrupted(world, *world.up())
    ran = world.run(verb)
    assert ran.code == 0, ran
    assert world.run("status").out.startswith("There is no server yet.")
    assert world.run("up").code == 2


def test_a_first_start_is_replaced(world: World) -> None:
    interrupted(world, *world.up())
    assert world.run(*world.up(TWO)).code == 0
    known = world.known()
    assert known.now is not None and (known.now.image.name, known.before, known.work) == (TWO, None, None)


def test_an_update_is_given_up_or_goes_on(world: World) -> None:
    world.run(*world.up())
    listed = (world.engine / "images.json").read_text()
    (world.engine / "images.json").write_text("{}")
    ran = world.run("update", "--image", TWO)
    assert (ran.code, world.running()) == (2, ONE), ran
    assert ran.err.startswith("spark-stack: docker pull failed: ")
    assert f"Not finished: update of {RECIPE}, at the step image." in world.run("status").out
    assert (world.run("rollback").code, world.running(), world.known().work) == (0, ONE, None)
    world.run("update", "--image", TWO)
    (world.engine / "images.json").write_text(listed)
    assert (world.run("up").code, world.running()) == (0, TWO)


@pytest.mark.parametrize(
    ("words", "image"),
    [
        (["up"], ONE),
        (["update"], ONE),
        (["rollback"], ONE),
        (["update", "--image", TWO], TWO),
        (["up", TWO], TWO),
        (["down"], None),
    ],
)
def test_an_interrupted_return(world: World, words: list[str], image: str | None) -> None:
    """A verb that names nothing finishes the return, and says that the new server did not do; one that names a server starts it."""
    world.run(*world.up())
    known = world.known()
    assert known.now is not None
    bad = replace(known.now, extra=("--how", "dies"))
    world.run("down")
    state_file.write(world.file, replace(known, target=bad, work=Work("update", Step.BACK, bad.wanted)))
    ran = world.run(*(world.up(TWO) if words == ["up", TWO] else words))
    assert (ran.code, world.running()) == (1 if image == ONE else 0, image), ran
    known = world.known()
    assert (known.target, known.work) == (None, None)


def test_an_unfinished_rollback_goes_on(world: World) -> None:
    world.run(*world.up())
    world.run("update", "--image", TWO)
    known = world.known()
    assert known.before is not None
    world.run("down")
    state_file.write(world.file, replace(known, target=known.before, work=Work("rollback", Step.START, known.before.wanted)))
    assert (world.run("up").code, world.running()) == (0, ONE)


def test_the_work_of_an_older_version_is_forgotten(world: World) -> None:
    world.run(*world.up())
    content = json.loads(world.file.read_text())
    content["work"] = {"verb": "update", "step": "image", "recipe": RECIPE, "image": TWO}
    for name in ("now", "before", "target"):
        if content[name] is not None:
            del content[name]["keep_free"], content[name]["image"]["cache"]
    world.file.write_text(json.dumps(content))
    assert world.run("status").out.startswith(f"{RECIPE} answers")
    assert world.run("up").code == 0


@pytest.mark.slow
@sweep("moments", 4, 24)
def test_killed_and_continued_given_up_or_replaced(tmp_path: Path, moments: int) -> None:
    """After a kill of the first `up` at any moment: `up` goes on or has not begun; `rollback` and `down` leave nothing; `up` replaces it."""
    with made(tmp_path / "measured") as world:
        longest = whole_time(world, world.up())
    for moment in range(moments):
        with made(tmp_path / str(moment)) as world:
            killed(world, world.up(), longest * (moment // 4 + 0.5) * 4 / moments, whole=moment % 8 < 4)
            begun = world.file.exists() and not world.known().is_empty
            match moment % 4:
                case 0:
                    ran = world.run("up")
                    assert (ran.code, world.running()) == ((0, ONE) if begun else (2, None)), (moment, ran)
                case 1:
                    done = begun and world.known().work is None
                    ran = world.run("rollback")
                    assert (ran.code, world.running()) == ((0, None) if begun and not done else (2, ONE if done else None)), ran
                case 2:
                    assert (world.run("down").code, world.running(), world.containers()) == (0, None, {})
                case _:
                    ran = world.run(*world.up(TWO))
                    assert (ran.code, world.running(), world.known().work) == (0, TWO, None), (moment, ran)


@pytest.mark.slow
@sweep("moments", 3, 18)
def test_a_killed_update_is_replaced_by_another_up(tmp_path: Path, moments: int) -> None:
    for _, world in killed_updates(tmp_path, moments, lambda moment: (moment + 0.5) / moments):
        ran = world.run(*world.up(ONE, "--", "--max-num-seqs", "3"))
        known = world.known()
        assert known.now is not None
        assert (ran.code, world.running(), known.now.extra, known.work) == (0, ONE, ("--max-num-seqs", "3"), None), ran
        assert (world.engine / f"pulled/{digest(f'id {ONE}')[7:]}.json").exists()
