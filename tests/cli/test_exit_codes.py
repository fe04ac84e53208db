# SPDX-License-Identifier: Apache-2.0
"""A verb ends with the same exit code with and without --json: who reads the one must not miss what the other finds."""

import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from stack.cli import cli
from stack.store import git

from ..carry.world import World
from ..validation.factories import ONE, exact, failed, file, of
from .conftest import Stack

HOOK = "stacks/one/gamma/hook-main.patch"
GATES = '[cpu]\nhas = ["cpu"]\n[[cpu.cases]]\nnames = "kernels/*"\nleast = 2\n'
Args = tuple[object, ...]


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The verbs that have --json."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from leaves(inner, (*path, name))
    elif any("--json" in option.opts for option in command.params):
        yield path


def broken(world: World, _: Path) -> None:
    """A patch that does not apply."""
    world.edit(HOOK, " main 9\n", " main nine\n")


def verdicts(world: World, place: Path) -> None:
    """A gate, a verdict that is not enough for it, and a worse one."""
    (world.root / "validation").mkdir()
    (world.root / "validation/gates.toml").write_text(GATES)
    file(place, "good.json", of(world.load(), exact(ONE)))
    file(place, "bad.json", of(world.load(), failed(ONE)))


def conflicting(_: World, place: Path) -> None:
    """A repository, and a patch that conflicts there."""
    repo = place / "repo"
    git.run(["init", "--quiet", str(repo)])
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for name, text in (("base", "one\ntwo\n"), ("onto", "one\nother\n"), ("fork", "one\nmine\n")):
        if name == "fork":
            git.run(["checkout", "--quiet", "base"], cwd=repo)
        (repo / "a").write_text(text)
        git.run(["add", "a"], cwd=repo)
        git.run([*identity, "commit", "--quiet", "--message", name], cwd=repo)
        git.run(["tag", name], cwd=repo)
    (place / "one.patch").write_bytes(git.run(["format-patch", "-1", "--stdout", "fork"], cwd=repo).stdout)


def wheels(_: World, place: Path) -> None:
    for name, content in (("first", "1"), ("second", "2")):
        folder = place / name
        folder.mkdir()
        with zipfile.ZipFile(folder / "a-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("a.py", content)
            wheel.writestr("a-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: a\nVersion: 1.0\n")
            wheel.writestr("a-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr("a-1.0.dist-info/RECORD", "")


def log(_: World, place: Path) -> None:
    (place / "log").write_text("ERROR 11-11 11:11:11 [a.py:1] torch.OutOfMemoryError: CUDA out of memory\n")


def nothing(_: World, place: Path) -> None:
    pass


Setting = Callable[[World, Path], None]
PERSON: tuple[tuple[Setting, Args], ...] = (
    (broken, ("lint",)),
    (nothing, ("rebase", "gamma", "--onto", "v2.2")),
    (nothing, ("export-pr",)),
    (nothing, ("rebase", "gamma", "--onto", "v2.1")),
    (nothing, ("forecast", "gamma", "--against", "v2.2")),
    (nothing, ("pins", "set", "gamma", "v2.1")),
    (conflicting, ("triage", "--repo", "{}/repo", "--base", "base", "--onto", "onto", "{}/one.patch")),
    (verdicts, ("verdict", "require", "--gate", "cpu", "{}/good.json")),
    (verdicts, ("verdict", "diff", "{}/good.json", "{}/bad.json")),
    (wheels, ("wheel", "diff", "{}/first/a-1.0-py3-none-any.whl", "{}/second/a-1.0-py3-none-any.whl")),
    (wheels, ("wheel", "inspect", "{}/first/a-1.0-py3-none-any.whl")),
    (log, ("doctor", "--log", "{}/log")),
)
"""Commands that find something for a person: these end with 1."""
OTHERS: tuple[tuple[Setting, Args], ...] = (
    *((nothing, (verb,)) for verb in ("status", "fetch", "lint", "check", "prove", "compile-check", "undo", "redo", "serve")),
    *((nothing, ("pins", verb)) for verb in ("show", "verify")),
    (nothing, ("init", "gamma", "--git", "{}")),
    (nothing, ("pins", "set", "gamma", "v2.1", "--allow-mismatch")),
    (nothing, ("checkout", "gamma", "{}/tree")),
    (nothing, ("refresh", "gamma", "{}/none")),
    *((nothing, ("resolutions", *args)) for args in (("list",), ("show", "none"), ("drop", "none"))),
    (nothing, ("build", "wheels", "none")),
    (wheels, ("wheel", "index", "{}/first")),
    *((nothing, ("recipe", *args)) for args in (("list",), ("show", "cpu-fp32"), ("check", "none"), ("compose", "cpu-fp32"))),
    (nothing, ("serve", "none")),
    (nothing, ("roofline", "none")),
    *((nothing, ("validate", *args)) for args in (("kernels", "--only", "none"), ("serve", "--recipe", "none"), ("bench",))),
    *((nothing, ("validate", *args)) for args in (("quality",), ("pack", "--gpu", "none"))),
    (verdicts, ("verdict", "show", "{}/good.json")),
    (verdicts, ("verdict", "sign", "{}/good.json", "--key", "{}/none")),
    *((nothing, ("image", verb)) for verb in ("build", "validate")),
    (verdicts, ("image", "publish", "h/n:1", "--gate", "cpu", "--verdict", "{}/good.json", "--key", "{}/good.json")),
    *((nothing, ("image", verb, "oci:none")) for verb in ("verify", "list")),
    (verdicts, ("image", "promote", "h/n:1", "latest", "--key", "{}/good.json")),
    (verdicts, ("image", "rollback", "h/n:latest", "--key", "{}/good.json")),
    (nothing, ("image", "bisect", "none", "none", "true")),
    *((nothing, ("cache", *args)) for args in (("show",), ("prune", "--dry-run"))),
)


def codes(world: World, stack: Stack, place: Path, setting: Setting, args: Args) -> tuple[int, int]:
    """The exit code without --json, and with it, each in the same world."""
    setting(world, place)
    kept = place / "kept"
    shutil.copytree(world.root, kept)
    found = []
    for more in ((), ("--json",)):
        shutil.rmtree(world.root)
        shutil.copytree(kept, world.root)
        shutil.rmtree(place / "tree", ignore_errors=True)
        given = [str(one).replace("{}", str(place)) for one in args]
        found.append(stack(*given, *more).code)
    return found[0], found[1]


def name(given: object) -> str | None:
    return " ".join(map(str, given)) if isinstance(given, tuple) else None


@pytest.mark.parametrize(("setting", "args"), PERSON, ids=name)
def test_what_needs_a_person_ends_with_1_in_either_form(
    world: World, stack: Stack, tmp_path: Path, setting: Setting, args: Args
) -> None:
    (tmp_path / "place").mkdir()
    assert codes(world, stack, tmp_path / "place", setting, args) == (1, 1)


@pytest.mark.parametrize(("setting", "args"), OTHERS, ids=name)
def test_the_form_of_what_is_printed_does_not_decide(
    world: World, stack: Stack, tmp_path: Path, setting: Setting, args: Args
) -> None:
    (tmp_path / "place").mkdir()
    plain, as_json = codes(world, stack, tmp_path / "place", setting, args)
    assert plain == as_json
    assert plain in (0, 2)


def test_each_verb_is_tried() -> None:
    tried = [tuple(map(str, args)) for _, args in (*PERSON, *OTHERS)]
    assert [verb for verb in leaves(cli) if not any(args[: len(verb)] == verb for args in tried)] == []
