# SPDX-License-Identifier: Apache-2.0
"""`--keep-free`: the server ends before the machine freezes, its container waits, and `status`, `logs` and `up` say why."""

import json

import pytest

from stack.deploy import recipes
from stack.serving import memory_guard

from .world import ONE, RECIPE, TWO, World, images

ALL = 9000
"""GB: more than any machine has, so that the server is killed at the guard's first look."""


@pytest.fixture(name="guarded")
def _guarded(world: World) -> World:
    """A machine whose images have the guard in their entry point."""
    (world.engine / "guard").write_text("-m stack.serving.guarded")
    return world


def test_the_server_is_ended_and_not_started_again(guarded: World) -> None:
    ran = guarded.run(*guarded.up(ONE, "--keep-free", ALL, "--", "--how", "never"))
    assert ran.code == 1, ran
    reason = f"less than the {ALL} GB of --keep-free: the server was ended before the machine froze"
    assert reason in " ".join(ran.err.split())
    assert guarded.containers() == {}


def test_a_running_server_is_ended(guarded: World) -> None:
    assert guarded.run(*guarded.up(ONE, "--keep-free", "0.001")).code == 0
    assert "memory   0.001 GB are kept free" in guarded.run("status").out
    log = guarded.engine / "stack-server.log"
    with log.open("a") as opened:  # as the guard's own line
        opened.write("stack: memory: 3.0 GB of memory were left\n")
    ran = guarded.run("status")
    assert ran.out.startswith(f"{RECIPE} was ended before the machine ran out of memory")
    assert "reason   3.0 GB of memory were left" in ran.out
    assert json.loads(guarded.run("status", "--json").out)["condition"] == "out-of-memory"
    assert guarded.run("logs", "--no-follow").out.endswith("stack: memory: 3.0 GB of memory were left\n")
    before = guarded.pid("stack-server")
    assert guarded.run("up").code == 0  # the container runs, but no server in it: it is replaced
    assert guarded.pid("stack-server") != before
    assert guarded.run("status").out.startswith(f"{RECIPE} answers")


def test_update_changes_it(guarded: World) -> None:
    guarded.run(*guarded.up())
    before = guarded.known().now
    assert before is not None and before.keep_free == 0
    assert guarded.run("update", "--keep-free", "0.5").code == 0
    now = guarded.known().now
    assert now is not None and now.keep_free == 0.5
    assert guarded.run("update", "--image", TWO).code == 0
    now = guarded.known().now
    assert now is not None and now.keep_free == 0.5
    assert guarded.containers()["stack-server"]["env"]["STACK_KEEP_FREE"] == "0.5"


def test_an_image_without_a_guard(world: World) -> None:
    listed = images()
    (world.engine / "images.json").write_text(json.dumps(listed | {ONE: {**listed[ONE], "how": "old"}}))
    ran = world.run(*world.up(ONE, "--keep-free", "8"))
    assert ran.code == 0, ran
    assert "has no memory guard" in ran.err


def test_it_is_the_default_where_the_memory_is_shared() -> None:
    assert memory_guard.default(recipes.load("gpt-oss-120b-spark")) == 8
    assert [memory_guard.default(recipes.load(name)) for name in ("gpt-oss-120b-h200", RECIPE)] == [0, 0]


@pytest.mark.parametrize("value", ["nan", "-1", "inf", "x"])
def test_no_number(world: World, value: str) -> None:
    assert world.run(*world.up(ONE, "--keep-free", value)).code == 2
