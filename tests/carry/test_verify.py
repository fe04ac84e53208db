# SPDX-License-Identifier: Apache-2.0
"""Pins are proved against the sources, and every wrong field is named with what was expected and what was found."""

import pytest

from stack.carry import verify
from stack.carry.upstream_stores import Place
from stack.carry.verify import Check
from stack.model.pins import Pin, Source
from stack.store import git
from stack.store.cache import upstream_store

from .world import World

FIELDS = [
    *(("gamma", field) for field in ("commit", "archive.sha256", "tree", "store", "archive.version")),
    *(("alpha", field) for field in ("commit", "archive.sha256", "tree", "store", "archive.version")),
    ("beta", "subtrees.include"),
]


def checks(world: World, source: Source = "archive") -> list[Check]:
    return list(verify.verify(world.load(), Place(world.cache, source)))


def test_sound_pins_hold(world: World) -> None:
    found = checks(world)
    assert [(check.upstream, check.field) for check in found] == FIELDS
    assert all(check.holds for check in found)


def test_sound_pins_hold_in_git(world: World) -> None:
    found = checks(world, "git")
    assert [(check.upstream, check.field) for check in found] == [
        *((name, field) for name in ("gamma", "alpha") for field in ("commit", "tag", "files of both")),
        *(("beta", "commit"), ("beta", "subtrees.include")),
    ]
    assert all(check.holds for check in found)


def pinned(pin: Pin, field: str) -> str:
    assert pin.archive is None or field != "archive.version"
    values = {"commit": pin.commit, "tree": pin.tree, "archive.sha256": pin.archive.sha256 if pin.archive else None}
    return str(values[field] if field in values else pin.subtrees[field.removeprefix("subtrees.")])


@pytest.mark.parametrize(
    ("upstream", "field", "source"),
    [
        *[("gamma", field, "archive") for field in ("commit", "tree", "archive.sha256")],
        *[("alpha", field, "archive") for field in ("commit", "tree", "archive.sha256")],
        ("beta", "subtrees.include", "archive"),
        ("gamma", "commit", "git"),
        ("alpha", "commit", "git"),
        ("beta", "commit", "git"),
        ("beta", "subtrees.include", "git"),
    ],
)
def test_a_wrong_field_is_named(world: World, upstream: str, field: str, source: Source) -> None:
    right = pinned(world.load().pins.get(upstream), field)
    wrong = "abc" + right[3:] if right[:3] != "abc" else "def" + right[3:]
    world.edit("pins.toml", right, wrong)
    failed = [check for check in checks(world, source) if not check.holds]
    assert [(check.upstream, check.field, check.expected) for check in failed] == [(upstream, field, wrong)]
    assert failed[0].found is not None
    assert failed[0].found.startswith(right) or right.startswith(failed[0].found)


def test_a_short_commit_is_a_prefix(world: World) -> None:
    commit = world.load().pins.get("alpha").commit
    world.edit("pins.toml", commit, commit[:7])
    assert all(check.holds for check in checks(world))


def tamper(world: World) -> str:
    """Let the store say that gamma v2.0 is what v2.1 is; returns that tree."""
    env = {"GIT_DIR": str(upstream_store(world.cache, "gamma"))}
    message = git.text(["log", "-1", "--format=%B", "refs/stack/archive/v2.0"], env=env)
    tree = git.text(["rev-parse", "refs/stack/archive/v2.1^{tree}"], env=env)
    other = git.text(["-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", tree, "-m", message], env=env)
    git.run(["update-ref", "refs/stack/archive/v2.0", other], env=env)
    return tree


def test_a_store_that_was_tampered_with(world: World) -> None:
    """What stands in the store is not believed: the tree is worked out from the archive again."""
    tree = tamper(world)
    failed = {check.field: check for check in checks(world) if not check.holds}
    assert failed["store"].found == tree
    assert failed["store"].expected == world.load().pins.get("gamma").tree


def test_files_that_archive_and_git_have_otherwise(world: World) -> None:
    """With git, each file that both have and that differs is named."""
    tamper(world)
    failed = [check.field for check in checks(world, "git") if not check.holds]
    assert failed == ["file gamma/main.py", "file gamma/tool.py", "file requirements/cuda.txt"]
