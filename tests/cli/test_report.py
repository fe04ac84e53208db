# SPDX-License-Identifier: Apache-2.0
"""`stack report`, and `--report FILE` of the verbs that carry."""

import json
from pathlib import Path

import pytest

from stack.cli import common
from stack.store import git

from .. import json_documents
from ..carry.world import World
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import CONFLICT, REBASE, parsed

REPORT = ("report", "gamma", "--onto", "v2.2")


def commit(root: Path) -> None:
    """Put the stack into git, as its owner does."""
    names = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for args in (["init", "--quiet"], ["add", "--", "pins.toml", "stacks"], ["commit", "--quiet", "-m", "the stack"]):
        git.run(args, cwd=root, env=names)


def test_a_report_on_the_stack_needs_no_sources(stack: Stack, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common.Options, "place", lambda *_: pytest.fail("sources were asked for"))
    commit(world.root)
    before = world.files()
    ran = stack("report")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == stack("report", "--markdown").out
    assert "## Series" in ran.out and "## Lines carried over time" in ran.out and "Needs a person" not in ran.out
    found = parsed(stack("report", "--json"))
    assert [each["name"] for each in found["series"]] == [each.name for each in world.load().series]
    assert len(found["patches"]) == len(world.load().patches)
    [point] = found["points"]
    assert point["patches"] == len(found["patches"])
    assert point["lines"] == sum(patch["added"] + patch["removed"] for patch in found["patches"])
    assert world.files() == before


def test_now_is_the_stack_as_it_is(stack: Stack, world: World) -> None:
    commit(world.root)
    stack("lane", "add", "old")
    assert stack("rebase", "gamma", "--onto", "v2.1", "--with-required").code == 0
    found = parsed(stack("report", "--json"))
    assert [point["patches"] for point in found["points"]] == [6, 5]
    assert found["points"][-1]["lines"] == sum(patch["added"] + patch["removed"] for patch in found["patches"])


def test_a_report_on_a_release(stack: Stack, world: World, tmp_path: Path) -> None:
    before = world.files()
    ran = stack(*REPORT)
    assert ran.code == 1
    assert "## Needs a person" in ran.out and "| `v2.1` | `v2.2` |" in ran.out
    found = parsed(stack(*REPORT, "--json"))
    [ladder] = found["ladders"]
    assert ladder["releases"] == ["v2.1", "v2.2"]
    rebased = parsed(stack("rebase", "gamma", "--onto", "v2.2", "--through", "auto", "--dry-run", "--json"))
    assert [row["outcome"] for row in ladder["rows"]] == [patch["outcome"] for patch in rebased["legs"][0]["patches"]]
    assert found["notes"] == rebased["unmet"] != []
    done = stack(*REPORT, "--html", tmp_path / "r.html")
    assert (done.code, done.out) == (1, f"wrote {tmp_path / 'r.html'}\n")
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert world.files() == before


def test_the_keys_are_those_of_the_documentation(stack: Stack, world: World) -> None:
    commit(world.root)
    found = parsed(stack(*REPORT, "--json"))
    assert keys(found) == verb("report")


def test_a_rebase_writes_a_report_whatever_comes_of_it(stack: Stack, world: World, tmp_path: Path) -> None:
    stopped = stack(*CONFLICT, "--report", tmp_path / "r.json")
    assert stopped.code == 1
    assert stopped.err.endswith(f"stack: wrote {tmp_path / 'r.json'}\n")
    found = json_documents.check((tmp_path / "r.json").read_text())
    assert found["schema"] == "stack/report/1"
    assert found["title"] == "Rebase of gamma onto v2.2"
    assert [ladder["upstream"] for ladder in found["ladders"]] == ["gamma", "alpha", "beta"]
    assert any(row["open"] for ladder in found["ladders"] for row in ladder["rows"])
    assert stack(*REBASE, "--report", tmp_path / "r.md").code == 0
    assert "needs a person" not in (tmp_path / "r.md").read_text()
    assert world.load().pins.get("gamma").tag == "v2.1"


def test_a_report_that_cannot_be_written_stops_before_the_switch(stack: Stack, world: World, tmp_path: Path) -> None:
    before = world.files()
    assert "no format has that suffix" in stack(*REBASE, "--report", tmp_path / "r.txt").refused()
    assert "is not a folder" in stack(*REBASE, "--report", tmp_path / "none/r.md").refused()
    (tmp_path / "r.md").mkdir()
    assert "is a folder" in stack(*REBASE, "--report", tmp_path / "r.md").refused()
    assert world.files() == before


def test_a_report_of_a_rebase_that_goes_on(stack: Stack, world: World, tmp_path: Path) -> None:
    assert stack(*CONFLICT, "--workspace", tmp_path / "work").code == 1
    ran = stack("rebase", "--skip", tmp_path / "work", "--report", tmp_path / "r.md")
    assert ran.code == 1, ran
    assert "`stopped`" not in (tmp_path / "r.md").read_text()
    assert "stands alone" in stack("rebase", "--abort", tmp_path / "work", "--report", tmp_path / "a.md").refused()
    assert not (tmp_path / "a.md").exists()


def test_triage_and_forecast_write_reports(stack: Stack, world: World, tmp_path: Path) -> None:
    forecast = stack("forecast", "gamma", "--against", "v2.2", "--report", tmp_path / "f.json")
    assert forecast.code == 1
    assert json.loads((tmp_path / "f.json").read_text())["title"] == "Forecast for gamma v2.2"
    patches = [world.root / "stacks" / ref.path for ref in world.load().patches if ref.upstream == "gamma"]
    repo = world.load().pins.get("gamma").git.removeprefix("file://")
    asked = ("triage", "--repo", repo, "--base", "v2.0", "--onto", "v2.2", "--through", "auto")
    ran = stack(*asked, "--report", tmp_path / "t.html", *patches, root=None)
    assert ran.code == 1, ran
    text = (tmp_path / "t.html").read_text()
    assert "Triage from v2.0 onto v2.2" in text
    assert text.count('class="result"') == len(patches)


@pytest.mark.parametrize(
    "args",
    [
        ("--html", "r.html", "--json"),
        ("--markdown", "--json"),
        ("gamma",),
        ("--onto", "v2.1"),
        ("--html", "r.md"),
        ("nothing", "--onto", "v2.1"),
    ],
)
def test_what_cannot_be_asked(stack: Stack, args: tuple[str, ...]) -> None:
    assert stack("report", *args).refused()
