# SPDX-License-Identifier: Apache-2.0
"""The oldest Python and the oldest git that the project promises to work with."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.store import git

from .carry.world import World, home, template, world
from .cli.conftest import SCRIPT, run_apart

__all__ = ["home", "template", "world"]

ROOT = Path(__file__).parents[1]
FLOOR = (3, 11)
RUN = ("tools", "examples", "benchmarks", "kernels/laboratory", "requirements")
"""The folders whose code users run; tests run with the developer's Python."""
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def sources() -> Iterator[Path]:
    for folder in RUN:
        yield from sorted((ROOT / folder).rglob("*.py"))


def too_new(text: str) -> list[str]:
    """What of a module the oldest Python lacks: its syntax, or a name of the standard library."""
    try:
        tree = ast.parse(text, feature_version=FLOOR)
    except SyntaxError as refused:
        return [str(refused)]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            found += [f"{node.module}.{one.name}" for one in node.names if lacking(node.module, one.name)]
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names if lacking(one.name)]
    return found


@functools.cache
def versions() -> dict[str, tuple[int, int]]:
    """Since when the standard library has a module, as the type checker's descriptions of it say."""
    mypy = pytest.importorskip("mypy")
    listed = (Path(mypy.__file__).parent / "typeshed/stdlib/VERSIONS").read_text()
    rows = re.findall(r"^([\w.]+): (\d+)\.(\d+)-", listed, re.MULTILINE)
    return {name: (int(major), int(minor)) for name, major, minor in rows}


def lacking(module: str, name: str | None = None) -> bool:
    """Whether the oldest Python's standard library lacks a module, or a name in it."""
    parts = module.split(".")
    since = [versions().get(".".join(parts[:count])) for count in range(1, len(parts) + 1)]
    if since[0] is None:
        return False
    return any(one is not None and one > FLOOR for one in since) or (name is not None and name not in names(module))


@functools.cache
def names(module: str) -> "All | set[str]":
    """The names that a module of the standard library has in the oldest Python, as the type checker's descriptions say."""
    mypy = pytest.importorskip("mypy")
    place = Path(mypy.__file__).parent / "typeshed/stdlib" / module.replace(".", "/")
    stub = place / "__init__.pyi" if place.is_dir() else place.with_suffix(".pyi")
    if not stub.is_file():
        return All()
    found: set[str] = set()
    for node in at_floor(ast.parse(stub.read_text()).body):
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            package = module if place.is_dir() else module.rpartition(".")[0]
            more = names(f"{package}.{node.module}" if node.level else str(node.module))
            if isinstance(more, All):
                return more
            found |= more
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for one in targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
    if place.is_dir():
        found |= {path.stem for path in place.iterdir()}
    return found


class All(frozenset[str]):
    """Names of a module that nothing describes: all."""

    def __contains__(self, _: object) -> bool:
        return True


def at_floor(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a description that hold for the oldest Python on Linux."""
    for node in body:
        if not isinstance(node, ast.If):
            yield node
            continue
        version = (*FLOOR, 0)
        told = {"sys": type("sys", (), {"version_info": version, "platform": "linux"}), "TYPE_CHECKING": True}
        holds = eval(compile(ast.Expression(node.test), "stub", "eval"), told)
        yield from at_floor(node.body if holds else node.orelse)


def test_the_code_is_of_the_oldest_python() -> None:
    found = {path.relative_to(ROOT).as_posix(): too_new(path.read_text()) for path in sources()}
    assert len(found) > 300
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("type Names = list[str]\n", "Type statement is only supported"),
        ("def first[T](of: list[T]) -> T: ...\n", "Type parameter lists are only supported"),
        ("from itertools import batched\n", "itertools.batched"),
        ("from typing import override, Self\n", "typing.override"),
        ("from collections.abc import Buffer\n", "collections.abc.Buffer"),
        ("import compression.zstd\n", "compression.zstd"),
        ("from pathlib import UnsupportedOperation\n", "pathlib.UnsupportedOperation"),
    ],
)
def test_what_a_later_python_brought_is_found(text: str, what: str) -> None:
    if "only supported" in what and sys.version_info < (3, 12):
        what = "invalid syntax" if text.startswith("type ") else "expected '('"
    [found] = too_new(text)
    assert what in found


def test_everything_names_the_same_oldest_python() -> None:
    floor = ".".join(map(str, FLOOR))
    assert SETTINGS["project"]["requires-python"] == f">={floor}"
    assert SETTINGS["tool"]["mypy"]["python_version"] == floor
    assert SETTINGS["tool"]["ruff"]["target-version"] == f"py{''.join(map(str, FLOOR))}"
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"Python {floor} or newer" in (ROOT / page).read_text(), page
    assert f"sys.version_info >= {FLOOR}" in (ROOT / "Makefile").read_text()


def test_the_oldest_python_runs_it(world: World) -> None:
    """Help, and one triage, by the oldest Python that is promised, where this machine has it."""
    oldest = shutil.which(f"python{FLOOR[0]}.{FLOOR[1]}")
    if oldest is None:
        pytest.skip("no python3.11 on PATH")
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "tools"), str(ROOT), *packages))}
    environment.pop("VIRTUAL_ENV", None)
    patch = world.root / "stacks/one/gamma/hook-main.patch"
    asked = ["triage", "--repo", clone(world), "--base", "v2.0", "--onto", "v2.1", str(patch)]
    for args, said in ((["--help"], "Usage: stack"), (["--cache", str(world.cache), *asked], "clean")):
        done = subprocess.run([oldest, "-c", SCRIPT, *args], capture_output=True, text=True, check=False, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        assert said in done.stdout


def clone(world: World) -> str:
    """The git repository of an upstream."""
    return str(world.load().pins.get("gamma").git).removeprefix("file://")


def old_git(folder: Path, version: str) -> dict[str, str]:
    """An environment whose git says that it is of that version, and does what the real one does."""
    real = shutil.which("git")
    script = folder / "git"
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "git version {version}" && exit\nexec {real} "$@"\n')
    script.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


VERBS = (
    ("rebase", "gamma", "--onto", "v2.1"),
    ("forecast", "gamma", "--against", "v2.1"),
    ("triage", "--repo", "{remote}", "--base", "v2.0", "--onto", "v2.1", "{patch}"),
    ("checkout", "gamma", "{folder}/tree"),
    ("check",),
    ("prove",),
)
"""Verbs that merge, or carry patches."""


@pytest.mark.parametrize("args", VERBS, ids=" ".join)
def test_an_older_git_is_refused_in_one_line(world: World, tmp_path: Path, args: tuple[str, ...]) -> None:
    patch = str(world.root / "stacks/one/gamma/hook-main.patch")
    given = {"{remote}": clone(world), "{patch}": patch, "{folder}/tree": str(tmp_path / "tree")}
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
    said = run_apart(world, *(given.get(one, one) for one in args), env=old_git(tmp_path, "2.37.9")).refused()
    assert said == "git 2.37 is too old: install git 2.38 or newer (`git merge-tree --write-tree` is needed)"
    assert {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("version", ["2.38.0", "2.39.5 (Apple Git-154)", "2.50.1.windows.1", "3.0.0.rc1", "2.100.0"])
def test_a_git_that_is_new_enough_is_taken(world: World, tmp_path: Path, version: str) -> None:
    ran = run_apart(world, "check", env=old_git(tmp_path, version))
    assert (ran.code, ran.err) == (0, "")


def test_no_git_is_refused_in_one_line(world: World, tmp_path: Path) -> None:
    said = run_apart(world, "check", env={"PATH": str(tmp_path)}).refused()
    assert said == "git is not installed: install git 2.38 or newer"


def test_everything_names_the_same_oldest_git() -> None:
    floor = ".".join(map(str, git.MINIMUM_VERSION))
    for page in ("README.md", "CONTRIBUTING.md", "tools/stack/store/git.py"):
        assert set(re.findall(r"git (2\.\d+) or newer", (ROOT / page).read_text())) == {floor}, page
