# SPDX-License-Identifier: Apache-2.0
"""`stack import` of what `stack export` wrote gives the same stack: names, order, series, and every byte of the patches."""

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given

from stack.cli import cli
from stack.model import stack as stacks
from stack.model.series import State

from ..test_worktree import user_git
from ..world import World
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


@pytest.mark.parametrize(
    ("stated", "state"),
    [
        ('state = "submitted"\npull = "https://forge.test/p/1"', State.SUBMITTED),
        ('state = "inappropriate"\nreason = "ours"', State.INAPPROPRIATE),
        ('state = "draft"', State.DRAFT),
    ],
)
def test_the_state_upstream_comes_back_from_quilt(world: World, tmp_path: Path, stated: str, state: State) -> None:
    world.edit("stacks/two/series.toml", 'state = "draft"', stated)
    arguments = ["--root", str(world.root), "--cache", str(world.cache)]
    assert CliRunner().invoke(cli, [*arguments, "export", "gamma", "--quilt", str(tmp_path / "out")]).exit_code == 0
    again = tmp_path / "again"
    (again / "stacks").mkdir(parents=True)
    (again / "pins.toml").write_bytes((world.root / "pins.toml").read_bytes())
    (again / "stacks/stack.toml").write_text("series = []\n")
    arguments = ["--root", str(again), "--cache", str(world.cache)]
    ran = CliRunner().invoke(cli, [*arguments, "import", str(tmp_path / "out"), "--upstream", "gamma", "--no-triage"])
    assert ran.exit_code == 0, ran.output
    back = stacks.load(again).get("two")
    assert back.state is state
    assert [pull.address for pull in back.pulls] == (["https://forge.test/p/1"] if "pull" in stated else [])
