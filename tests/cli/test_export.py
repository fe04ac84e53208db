# SPDX-License-Identifier: Apache-2.0
"""`stack export`: what it prints, its keys, and its exit codes."""

from pathlib import Path
from typing import Any

import pytest

from ..carry.exporting.test_branch import drop_last, remote_of
from ..carry.test_worktree import user_git
from ..carry.world import World
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import parsed


def check(name: str, document: Any) -> None:
    assert keys(document) == verb(name)


@pytest.mark.parametrize(
    ("form", "next_line"), [("quilt", "quilt push -a"), ("am", "git am --keep-cr"), ("mbox", "git am --keep-cr")]
)
def test_files(stack: Stack, tmp_path: Path, form: str, next_line: str) -> None:
    ran = stack("export", "gamma", f"--{form}", tmp_path / "out")
    assert (ran.code, ran.err) == (0, "")
    first, *following = ran.out.splitlines()
    assert first == f"{tmp_path / 'out'}: 3 patches of gamma on v2.0"
    assert next_line in following[-1]
    assert stack("export", "gamma", f"--{form}", tmp_path / "out").refused()
    found = parsed(stack("export", "gamma", f"--{form}", tmp_path / "json", "--json", "--plain"))
    check("export", found)
    assert [patch["file"] for patch in found["patches"]] == [
        "gamma/hook-main.patch",
        "gamma/tool-flag.patch",
        "gamma/fix-limit.patch",
    ]


def test_branch(stack: Stack, world: World, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    user_git(tmp_path, "clone", "-q", remote_of(world), "clone")
    asked = ("export", "gamma", "--branch", "mine", "--to", clone)
    ran = stack(*asked)
    tip = user_git(clone, "rev-parse", "mine")
    assert (ran.code, ran.out) == (0, f"{clone}: mine is new: 3 commits, {tip[:12]}\n")
    user_git(clone, "branch", "-f", "mine", "v2.1")
    drop_last(world)
    refused = stack(*asked)
    moved = user_git(clone, "rev-parse", "v2.1")
    assert (refused.code, refused.out) == (
        1,
        f"refused: mine has moved since the last export: --force-with-lease={moved[:12]}\n  replaces it\n",
    )
    as_json = stack(*asked, "--json")
    check("export --branch", parsed(as_json))
    assert (as_json.code, parsed(as_json)["state"], parsed(as_json)["before"]) == (1, "refused", moved)
    done = stack(*asked, f"--force-with-lease={moved[:12]}", "--json")
    assert (done.code, parsed(done)["state"]) == (0, "updated")
    assert stack(*asked).out.startswith(f"{clone}: mine is unchanged: 2 commits")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "name one of --quilt DIR, --am DIR, --mbox FILE and --branch NAME"),
        (("--am", "a", "--mbox", "b"), "name one of"),
        (("--branch", "x"), "--branch NAME and --to CLONE|REMOTE go together"),
        (("--am", "a", "--to", "x"), "--branch NAME and --to CLONE|REMOTE go together"),
        (("--am", "a", "--force-with-lease", "1234567"), "--branch NAME and --to CLONE|REMOTE go together"),
    ],
)
def test_options_that_do_not_go_together(stack: Stack, options: tuple[str, ...], line: str) -> None:
    assert stack("export", "gamma", *options).refused().startswith(line)


def test_an_unknown_upstream(stack: Stack, tmp_path: Path) -> None:
    assert "delta" in stack("export", "delta", "--am", tmp_path / "am").refused()
    assert not (tmp_path / "am").exists()


def test_secrets_of_an_address_are_not_shown(stack: Stack) -> None:
    address = "https://me:SECRET@forge.invalid/me/gamma"
    line = stack("export", "gamma", "--branch", "x", "--to", address, "--source", "git").refused()
    assert "SECRET" not in line
