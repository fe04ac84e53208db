# SPDX-License-Identifier: Apache-2.0
"""`stack import` of what `stack export` wrote gives the same stack: names, order, series, and every byte of the patches."""

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given

from stack.cli import cli

from ..test_worktree import user_git
from .random_stacks import Drawn, Made, make, stacks_of
from .test_round_trip import FEW, clone_of


@pytest.mark.parametrize("form", ["quilt", "am", "mbox", "branch"])
@FEW
@given(stacks_of())
def test_the_same_stack_comes_back(form: str, drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made, place = make(Path(folder), drawn), Path(folder)
        if not drawn.patches:
            return
        _run(made, made.root, "export", "up", *_options(form, made, place))
        again = place / "again"
        (again / "stacks").mkdir(parents=True)
        (again / "pins.toml").write_bytes((made.root / "pins.toml").read_bytes())
        (again / "stacks/stack.toml").write_text("series = []\n")
        _run(made, again, "import", *_sources(form, place), "--no-triage", "--all-or-nothing")
        back = Made(again, made.cache, made.remote, made.tip)
        assert list(back.patches().items()) == list(made.patches().items())


def _options(form: str, made: Made, place: Path) -> list[str]:
    if form == "branch":
        return ["--branch", "mine", "--to", str(clone_of(made, place))]
    return [f"--{form}", str(place / "out")]


def _sources(form: str, place: Path) -> list[str]:
    if form == "branch":
        user_git(place / "clone", "checkout", "-q", "mine")
        return [str(place / "clone"), "mine"]
    return [str(place / "out")]


def _run(made: Made, root: Path, *args: str) -> None:
    ran = CliRunner().invoke(cli, ["--root", str(root), "--cache", str(made.cache), *args])
    assert ran.exit_code == 0, (args, ran.output, ran.exception)
