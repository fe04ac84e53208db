# SPDX-License-Identifier: Apache-2.0
"""No control character of a patch, a branch, a file name or a stack's texts reaches the terminal, whichever verb shows it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tomlkit
from click.testing import CliRunner, Result

from stack.cli import cli

from ..carry.importing.conftest import Project, project
from ..carry.world import World, numbered
from .conftest import Stack
from .test_import import imported

__all__ = ["imported", "project"]

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\x08"
"""Sets the title, clears the screen, colours by C1, turns the direction of writing, goes back."""
FOUND = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and line end; characters that turn the direction of writing."""


@pytest.fixture
def evil(world: World) -> World:
    """Each text of the stack that somebody else may have written has control characters, as far as its reader takes them."""
    for path in sorted((world.root / "stacks").rglob("*.patch")):
        text = path.read_bytes()
        if b"Content-Transfer-Encoding" in text:
            continue  # a body in that encoding has no such bytes
        head, subject, rest = text.partition(b"Subject: ")
        path.write_bytes(head + subject + rest.replace(b"\n\n", f" {EVIL}\n\nWhy {EVIL} it is.\n\n".encode(), 1))
    for path in sorted((world.root / "stacks").rglob("series.toml")):
        toml = tomlkit.parse(path.read_text())
        for key in ("title", "why", "drop_when"):
            toml[key] = f"{toml.get(key, key)} {EVIL}"
        path.write_text(tomlkit.dumps(toml))
    return world


VERBS = [
    "status --all", "lint", "check", "pins show", "pins verify", "lane list", "log", "undo --list", "resolutions list",
    "show one/gamma/hook-main", "diff one/gamma/hook-main", "explain one/gamma/hook-main",
    "rebase gamma --onto v2.1 --dry-run --with-required", "rebase gamma --onto v2.1 --dry-run --all",
    "forecast gamma --against v2.1", "report", "export gamma --quilt {tmp}/quilt", "export gamma --am {tmp}/am",
    "checkout gamma {tmp}/tree", "export-pr --no-tests --source git", "build wheels gamma --plan", "compile-check",
]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_prints_one(evil: World, stack: Stack, verb: str, tmp_path: Path) -> None:
    ran = stack(*(word.replace("{tmp}", str(tmp_path)) for word in verb.split()))
    print(ran.code, ran.out, ran.err)
    assert ran.code in (0, 1), ran.err
    assert not FOUND.search(ran.out + ran.err), verb


def test_nothing_of_upstreams_history_and_of_a_clone_reaches_the_terminal(
    project: Project, imported: Callable[..., Result], tmp_path: Path
) -> None:
    """Subjects of commits, authors, names of branches and files, in tables, notes, conflicts and errors."""
    path, name = "src/\x1b[2J\x9b1m.c", "m\x9b31m\u202eine"
    project.remote.commit({path: numbered("evil", count=20)}, f"Evil {EVIL}")
    project.remote.tag("release-1.2.0")
    project.pin("release-1.2.0")
    project.clone.git("fetch", "--quiet", "--tags", "up")
    project.clone.git("checkout", "--quiet", "-B", name, "release-1.2.0")
    project.clone.git("config", "user.name", "A \x9b1m\u202e")
    project.clone.commit({path: numbered("evil", {10: "mine"}, count=20)}, f"Mine {EVIL}\n\nWhy {EVIL}.")
    project.clone.git("commit", "--quiet", "--allow-empty", "-m", f"Empty {EVIL}")
    project.remote.commit({path: numbered("evil", {10: "theirs"}, count=20)}, f"Theirs {EVIL}")
    project.remote.tag("release-1.3.0")
    said = [imported(project.clone.path, "no such \x1b[2J"), imported(project.clone.path, name, "--series", "mine")]
    assert said[-1].exit_code == 0, said[-1].output
    run = ["--root", str(project.root), "--cache", str(project.place / "cache")]
    [patch] = sorted((project.root / "stacks").rglob("*.patch"))
    for words in (
        ["status", "--all"], ["show", f"mine/web/{patch.stem}"], ["lint"], ["check"], ["undo", "--list"],
        ["rebase", "web", "--onto", "release-1.3.0", "--dry-run"], ["explain", f"mine/web/{patch.stem}", "--onto", "release-1.3.0"],
        ["forecast", "web", "--against", "release-1.3.0"], ["report"], ["log"],
        ["rebase", "web", "--onto", "release-1.3.0", "--workspace", str(tmp_path / "work")],
        ["export-pr", "--no-tests", "--onto", "release-1.3.0"], ["export-pr", "--no-tests", "--onto", "release-1.2.0"],
    ):  # fmt: skip
        said.append(CliRunner().invoke(cli, [*run, *words]))
        assert isinstance(said[-1].exception, SystemExit | None), words
    assert sum("Theirs \\x1b]0;title" in one.output for one in said) >= 3
    assert not [one.output for one in said if FOUND.search(one.output)]


@pytest.mark.parametrize(
    "words",
    [
        ("show", f"no{EVIL}/such"), ("fetch", "gamma", "--tag", EVIL), ("status", "--lane", EVIL), ("rebase", EVIL), ("diff", EVIL),
        ("import", f"/dev/null/{EVIL}"), ("checkout", "gamma", f"/dev/null/{EVIL}"), ("lint", f"--no{EVIL}"), (EVIL,),
        ("rebase", "gamma", "--onto", EVIL, "--source", "git"), ("explain", f"one/{EVIL}"), ("image", "verify", f"oci:{EVIL}"),
        ("wheel", "inspect", EVIL), ("recipe", "show", EVIL), ("doctor", "--log", EVIL),
    ],
)  # fmt: skip
def test_no_error_repeats_one(stack: Stack, words: tuple[str, ...]) -> None:
    assert not FOUND.search(stack(*words).refused())
