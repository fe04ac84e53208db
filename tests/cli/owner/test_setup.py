# SPDX-License-Identifier: Apache-2.0
"""`spark-stack setup`: what it prints, applies and keeps."""

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.cli.owner import main
from stack.owner.nodes import kept

from ... import json_documents
from ...owner.nodes.machines import Machine, connect
from ..conftest import Ran

ROOT = Path(__file__).parents[3]
Setup = Callable[..., Ran]
FASTER = Machine(addresses={"enp1s0f1np1": "192.168.100.11/24", "enP2p1s0f1np1": "192.168.101.11/24"}, mtu=9000)


@pytest.fixture(name="setup")
def _setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    connect(tmp_path, monkeypatch, here=Machine(), others={"spark-b": Machine()})

    def run(*args: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["spark-stack", "setup", "spark-b", "--no-bandwidth", *args])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, out.getvalue(), err.getvalue())

    return run


def test_it_proposes_and_changes_nothing(setup: Setup, tmp_path: Path) -> None:
    ran = setup()
    assert ran.code == 1
    assert ran.out.startswith("2 machines: addresses to apply first\n")
    assert "192.168.177.12/24*" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "      addresses: [192.168.178.11/24]\n" in ran.out
    assert not list(tmp_path.glob("*/90-stack.yaml"))
    assert kept.read(kept.path()) == ()
    assert max(map(len, ran.out.splitlines())) <= 100


def test_it_applies_when_asked_and_keeps_the_nodes(setup: Setup, tmp_path: Path) -> None:
    ran = setup("--apply")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "2 machines ready to serve together")
    for name in ("spark-a", "spark-b"):
        assert (tmp_path / name / "90-stack.yaml").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / name / "netplan.log").read_text() == "generate\napply\n"
    head, other = kept.read(kept.path())
    assert (head.host, other.node.name) == ("spark-a", "spark-b")
    assert other.variables["HCA"] == "rocep1s0f1,roceP2p1s0f1"
    # A second call finds all in order, and applies nothing.
    assert setup("--apply").code == 0
    assert (tmp_path / "spark-a/netplan.log").read_text() == "generate\napply\n"


def test_json(setup: Setup) -> None:
    made = json_documents.check(setup("--json").out)
    assert (made["ready"], made["changes"], made["problems"]) == (False, True, [])
    assert made["nodes"][1]["links"][0] == {
        "name": "enp1s0f1np1",
        "rdma": "rocep1s0f1",
        "up": True,
        "gbits": 100.0,
        "mtu": 1500,
        "address": "192.168.177.12/24",
        "is_set": False,
    }


def test_a_file_that_netplan_refuses_is_taken_back(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "spark-b/bin/netplan").write_text("#!/bin/sh\necho 'bad file' >&2\nexit 78\n")
    for before in (None, "network: {}\n"):
        file = tmp_path / "spark-b/90-stack.yaml"
        if before is not None:
            file.write_text(before)
        assert "spark-b: bad file" in setup("--apply").refused_by("spark-stack")
        assert (file.read_text() if file.exists() else None) == before
    assert not (tmp_path / "spark-a/90-stack.yaml").exists()


def test_without_rights_it_says_what_to_do_by_hand(setup: Setup, tmp_path: Path) -> None:
    program = tmp_path / "spark-b/bin/id"
    program.write_text("#!/bin/sh\necho 1000\n")
    program.chmod(0o755)
    (tmp_path / "spark-b/bin/sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    assert "sudo netplan apply" in setup("--apply").refused_by("spark-stack")
    assert not list(tmp_path.glob("*/90-stack.yaml"))


def test_what_blocks_is_not_applied(setup: Setup, tmp_path: Path) -> None:
    (tmp_path / "spark-b/bin/nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA GB10, 590.48.01'\n")
    ran = setup("--apply")
    assert ran.code == 1
    assert "the drivers differ" in ran.out
    assert not list(tmp_path.glob("*/90-stack.yaml"))


def test_the_page_shows_what_it_prints(setup: Setup) -> None:
    page = (ROOT / "docs/owner.md").read_text()
    block = page.partition("<!-- nodes: setup -->\n")[2].partition("<!-- /nodes: setup -->")[0]
    assert block == f"```\n$ spark-stack setup spark-b\n{setup().out}```\n"
