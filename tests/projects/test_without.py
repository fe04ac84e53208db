# SPDX-License-Identifier: Apache-2.0
"""The engine without any plug-in: on plain projects, everything works that needs no knowledge of the project."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stack.base.errors import StackError
from stack.carry.check import check
from stack.carry.drift import check_settings, check_values
from stack.carry.outcome import Outcome
from stack.carry.rebase import Request, rebase
from stack.cli import cli
from stack.deploy import recipes
from stack.model.stack import load
from stack.projects import known
from stack.proof import environment
from stack.serving import checking
from stack.store.objects import EMPTY_TREE, Entry

from ..carry.conftest import scratch
from ..carry.test_check import add_patch
from ..carry.test_triage import BODY, Upstream
from ..carry.trees import Scratch
from ..carry.world import World, home, template, world
from ..cli.conftest import Stack, stack
from ..proof.test_command_run import SUM, prove, proves
from ..proof.test_proof_module import proved, root
from ..wheels.conftest import published
from .plugging import OURS, install

__all__ = ["home", "proved", "published", "root", "scratch", "stack", "template", "world"]


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment in which `stack` is installed without the plug-in that it comes with."""
    assert known.names()
    install(tmp_path / "site", monkeypatch, OURS)
    assert known.names() == ()
    yield
    known.forget()


def test_drift_of_an_import(world: World, scratch: Scratch) -> None:
    add_patch(world, scratch, "gamma/rely.py", b"import os\nfrom .old import pack\n\nprint(os.environ['VLLM_X'])\n")
    with world.stores() as stores:
        assert check(stores) == ()
        done = rebase(stores, Request("gamma", "v2.1"))
    [drifted] = [row for row in done.rows() if row.outcome is Outcome.DRIFTED]
    assert drifted.patch.ref.file == "gamma/rely.patch"
    assert done.unmet == ()  # nobody reads requirements/cuda.txt


def test_triage(tmp_path: Path, stack: Stack) -> None:
    upstream = Upstream(tmp_path)
    upstream.commit("Begin", {"a.py": BODY})
    upstream.tag("base")
    file = upstream.fork("One", {"a.py": ["first = 1", *BODY]})
    upstream.commit("Go on", {"a.py": [*BODY, "last = 1"]})
    ran = stack("triage", "--repo", upstream.folder, "--base", "base", "--onto", "main", "--json", file, root=None)
    assert (ran.code, [one["outcome"] for one in json.loads(ran.out)["patches"]]) == (0, ["clean"])


def test_a_proof_by_a_command(root: Path, tmp_path: Path) -> None:
    proves(root, f'[{{ run = "{SUM}", patches = ["up/add-a-sum.patch"] }}]')
    rows = json.loads(prove(root, tmp_path / "cache", "--json").output)["patches"]
    assert [(row["with"]["state"], row["without"]["state"]) for row in rows if row["file"] == "up/add-a-sum.patch"] == [
        ("passes", "fails")
    ]


def test_a_wheel_from_the_published_one(stack: Stack, published: Path, tmp_path: Path) -> None:
    ran = stack("build", "wheels", "gamma", "--platform", "x86_64", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("gamma: overlay: the patches change Python only")
    refused = stack("build", "wheels", "gamma", "--mode", "source").refused()
    assert refused.endswith("asked for, and no installed plug-in knows its build: see docs/plug-ins.md")


def test_nothing_is_compiled_and_no_compiler_is_fetched(world: World, stack: Stack) -> None:
    ran = stack("compile-check", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["compiler"], found["units"]) == (0, "", [])
    assert not (world.cache / "compilers").exists()
    assert stack("compile-check", "--unit", "a/b").refused().startswith("no upstream of this stack has a JIT")


def test_what_only_a_plug_in_knows(world: World, scratch: Scratch) -> None:
    files = {"vllm/__init__.py": b"", "vllm/envs.py": b"VLLM_PORT: int = 1\n", "requirements/cuda.txt": b"torch==2.9.0\n"}
    entries = {path: Entry(0o100644, scratch.objects.write_blob(data)) for path, data in files.items()}
    tree = scratch.objects.replaced(EMPTY_TREE, entries)
    assert check_settings(scratch.objects, tree, ["VLLM_PROT"], ["--no-such-flag"]) == ()
    assert check_values(scratch.objects, tree, [("--dtype", "x")]) == {}
    assert environment.of_tree(scratch.objects, tree) is None
    with world.stores() as stores, pytest.raises(StackError, match="no installed plug-in knows the settings of recipes"):
        checking.check(stores, [recipes.load(name) for name in recipes.known()])


def test_our_own_stack_says_what_is_missing(tmp_path: Path) -> None:
    ours = Path(__file__).parents[2]
    assert load(ours).plugins == ("vllm",)
    ran = CliRunner().invoke(cli, ["--root", str(ours), "--cache", str(tmp_path / "cache"), "check"])
    assert isinstance(ran.exception, StackError)
    assert "names the plug-in 'vllm', which is not installed (none is installed)" in str(ran.exception)
