# SPDX-License-Identifier: Apache-2.0
"""Messages for newcomers: which step takes so long, which revisions are swapped, what was not written, and what is next."""

import json
import time
from pathlib import Path

import pytest

from stack.cli.progress_lines import ProgressLines

from ..carry.test_triage import BODY, Upstream
from ..carry.world import World
from .conftest import Stack


def test_a_line_for_a_large_download_and_for_a_long_step(capsys: pytest.CaptureFixture[str]) -> None:
    tell = ProgressLines(patience=0.05)
    for done in (0, 1 << 20, 30_000_000):
        tell("downloading vllm-0.33.0.tar.gz", done, 30_000_000)
    tell("downloading small.tar.gz", 0, 1000)
    tell("fetching v1 of nginx", 0, None)
    time.sleep(0.2)
    tell("testing it", 0, None)
    time.sleep(0.1)
    tell("fetching v2 of nginx", 0, None)
    tell.close()
    time.sleep(0.1)
    said = capsys.readouterr()
    assert said.err == "stack: downloading vllm-0.33.0.tar.gz (30 MB)\nstack: fetching v1 of nginx\n"
    assert said.out == ""


def test_a_conflict_names_the_next_step(stack: Stack, world: World) -> None:
    ran = stack("rebase", "gamma", "--onto", "v2.2", "--with-required")
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "  stack rebase gamma --onto v2.2 --with-required --workspace DIR"


def test_a_plan_needs_no_proof(stack: Stack) -> None:
    ran = stack("export-pr", "one", "--json")
    assert ran.code == 1  # a patch is in conflict with the newest release
    proposals = [each for plan in json.loads(ran.out)["plans"] for each in plan["proposals"]]
    assert proposals
    assert {each["tests"]["state"] if each.get("tests") else None for each in proposals} == {None}


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("file:///nowhere", "check the path"),
        ("https://127.0.0.1:1/x", "check the network"),
    ],
)
def test_an_upstream_that_cannot_be_fetched(stack: Stack, tmp_path: Path, address: str, remedy: str) -> None:
    assert f": {remedy}" in stack("init", "web", "--git", address, root=tmp_path).refused()


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit("begin", {"a.py": BODY})
    made.tag("base")
    made.commit("change", {"a.py": ["changed", *BODY[1:]]})
    made.tag("onto")
    return made


def triage(stack: Stack, upstream: Upstream, base: str, onto: str, *more: object) -> list[str]:
    ran = stack("triage", "--repo", upstream.folder, "--base", base, "--onto", onto, *more, root=None)
    return [str(ran.code), ran.out, ran.err]


def test_triage_of_a_folder(stack: Stack, upstream: Upstream) -> None:
    _, _, err = triage(stack, upstream, "base", "onto", upstream.patches)
    assert f"{upstream.patches} is a folder: name the patch files in it: {upstream.patches}/*.patch" in err


def test_triage_with_the_revisions_swapped(stack: Stack, upstream: Upstream) -> None:
    first = upstream.fork("first line", {"a.py": ["mine", *BODY[1:]]})
    last = upstream.fork("last line", {"a.py": [*BODY[:-1], "mine"]})
    code, _, err = triage(stack, upstream, "onto", "base", first)
    assert code == "2"
    assert "onto comes after base in the history: are --base and --onto swapped?" in err
    code, out, err = triage(stack, upstream, "onto", "base", last)
    assert (code, "clean" in out) == ("0", True)
    assert "base is older than onto: the patches are carried back" in err
    assert triage(stack, upstream, "base", "onto", last)[2] == ""


def test_output_says_what_was_not_written(stack: Stack, upstream: Upstream, tmp_path: Path) -> None:
    first = upstream.fork("first line", {"a.py": ["mine", *BODY[1:]]})
    last = upstream.fork("last line", {"a.py": [*BODY[:-1], "mine"]})
    code, out, _ = triage(stack, upstream, "base", "onto", "--independent", "--output", tmp_path / "out", first, last)
    assert code == "1"
    assert f"not written to {tmp_path / 'out'}: first-line.patch to" in " ".join(out.split())
    assert "stack rebase … --workspace DIR" in out
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["0002-last-line.patch"]
