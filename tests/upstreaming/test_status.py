# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --status`, on a stack whose upstream is at the hub."""

import json

import pytest

from ..carry.world import World, template, world
from ..cli.conftest import Stack, stack, unwrapped
from ..forge.fake_github import Answer, Hub, Repo
from .conftest import TOKEN, UP

__all__ = ["stack", "template", "world"]

HOOK, FLAG, LIMIT = "one/gamma/hook-main.patch", "one/gamma/tool-flag.patch", "two/gamma/fix-limit.patch"
ADDRESS = f"https://github.com/{UP}/pull"
SHA = "a" * 40


@pytest.fixture
def at_github(world: World, hub: Hub) -> World:
    """All upstreams are at the hub, each as `up/<name>`."""
    for pin in world.load().pins:
        world.edit("pins.toml", f'"{pin.git}"', f'"https://github.com/up/{pin.upstream}.git"')
        hub.repositories.setdefault(f"up/{pin.upstream}", Repo())
    return world


def submit(world: World, path: str, *addresses: str) -> None:
    """Write pull requests to a patch, as opening them does."""
    series, _, file = path.partition("/")
    listed = ", ".join(f'"{one}"' for one in addresses)
    world.edit(f"stacks/{series}/series.toml", f'file = "{file}"', f'file = "{file}"\npull = [{listed}] # ours')


def state(world: World, series: str) -> str:
    return world.load().get(series).state.value


def test_nothing_is_recorded(at_github: World, stack: Stack, hub: Hub) -> None:
    ran = stack("export-pr", "--status")
    assert (ran.code, ran.out) == (0, "no series.toml records a pull request: `stack export-pr --open` does\n")
    assert hub.seen == []


def test_what_is_open(at_github: World, stack: Stack, hub: Hub) -> None:
    hub.add(UP, title="Hook main", draft=True, sha="b" * 40, author="me")
    hub.add(UP, title="Flag", sha=SHA, author="me", reviews=[("ada", "APPROVED"), ("bob", "CHANGES_REQUESTED")])
    hub.runs[SHA] = [("lint", "success"), ("test", "failure"), ("gpu", None)]
    hub.behind[SHA] = 12
    submit(at_github, HOOK, f"{ADDRESS}/1")
    submit(at_github, FLAG, f"{ADDRESS}/2")
    before = at_github.files()
    ran = stack("export-pr", "--status")
    assert ran.code == 1
    assert ran.out.endswith("\none is submitted now, as recorded in stacks/one/series.toml\n")
    lines = [line.split() for line in ran.out.splitlines()]
    assert [f"{ADDRESS}/1", "draft", "0", "one/gamma/hook-main"] in lines
    words = "open approved by ada; changes requested by bob 1 passed; failed: test; 1 run 12 one/gamma/tool-flag"
    assert [f"{ADDRESS}/2", *words.split()] in lines
    changed = {path: text for path, text in at_github.files().items() if text != before[path]}
    assert changed == {
        "stacks/one/series.toml": before["stacks/one/series.toml"].replace(b'state = "pending"', b'state = "submitted"')
    }
    found = json.loads(stack("export-pr", "one", "--status", "--json").out)
    assert found["states"] == {}
    assert found["pulls"][1] == {
        "series": "one",
        "upstream": "gamma",
        "patches": [FLAG],
        "address": f"{ADDRESS}/2",
        "number": 2,
        "title": "Flag",
        "state": "open",
        "reviews": {"approved": ["ada"], "changes": ["bob"]},
        "checks": {"passed": 1, "failed": ["test"], "pending": 1},
        "behind": 12,
        "merge": None,
        "problem": None,
    }
    assert json.loads(stack("export-pr", "two", "--status", "--json").out)["pulls"] == []
    assert json.loads(stack("export-pr", "--upstream", "alpha", "--status", "--json").out)["pulls"] == []


def test_what_was_merged_is_proposed_for_the_drop(at_github: World, stack: Stack, hub: Hub) -> None:
    diff = at_github.read(f"stacks/{LIMIT}").partition("\ndiff --git")[2]
    hub.add(UP, title="Fix limit", state="closed", merge="c" * 40, diff=b"diff --git" + diff.encode())
    hub.add(UP, title="Fix more", state="closed", merge="d" * 40, diff=b"")
    submit(at_github, LIMIT, f"{ADDRESS}/1", f"{ADDRESS}/2")
    ran = stack("export-pr", "--status")
    assert ran.code == 0
    told = unwrapped(ran.out)
    assert (
        f"{ADDRESS}/1 was merged as cccccccccccc at 2026-11-20T10:00:00+00:00, with 100% of the lines of our patches in it "
        f"when a release has it, stack rebase gamma --onto TAG finds it there and drops {LIMIT} "
    ) in told
    assert f"{ADDRESS}/2 was merged as dddddddddddd at 2026-11-20T10:00:00+00:00, with 0% of" in told
    # The series has patches of other upstreams, which nobody has opened.
    assert state(at_github, "two") == "draft"
    for name, path in (("alpha", "two/alpha/open-header.patch"), ("beta", "two/beta/wide-load.patch")):
        hub.add(f"up/{name}", title="Open", state="closed", merge="e" * 40)
        submit(at_github, path, f"https://github.com/up/{name}/pull/1")
    assert "two is merged now" in stack("export-pr", "--status").out
    assert state(at_github, "two") == "merged"
    hub.repositories[UP].pulls[1].state, hub.repositories[UP].pulls[1].merge = "open", None
    assert "two is submitted now" in stack("export-pr", "--status").out


def test_what_was_closed_needs_a_person(at_github: World, stack: Stack, hub: Hub) -> None:
    hub.add(UP, title="Flag", state="closed")
    submit(at_github, FLAG, f"{ADDRESS}/1")
    ran = stack("export-pr", "--status")
    assert ran.code == 1
    assert (
        f"{ADDRESS}/1 was closed: give the reason as `reason` in stacks/one/series.toml (state declined), or reopen it"
        in unwrapped(ran.out)
    )
    assert state(at_github, "one") == "pending"


def test_what_a_person_has_declined_stays_so(at_github: World, stack: Stack, hub: Hub) -> None:
    hub.add(UP, title="Flag")
    submit(at_github, FLAG, f"{ADDRESS}/1")
    at_github.edit("stacks/one/series.toml", 'state = "pending"', 'state = "declined"\nreason = "Enough."')
    assert stack("export-pr", "--status").code == 0
    assert state(at_github, "one") == "declined"


def test_a_pull_request_of_a_whole_series(at_github: World, stack: Stack, hub: Hub) -> None:
    hub.add(UP, title="One", draft=True)
    at_github.edit("stacks/one/series.toml", 'state = "pending"', f'state = "pending"\npull = "{ADDRESS}/1"')
    (found,) = json.loads(stack("export-pr", "--status", "--json").out)["pulls"]
    assert (found["patches"], found["state"]) == ([HOOK, FLAG], "draft")


def test_an_address_that_is_nobodys(at_github: World, stack: Stack, hub: Hub) -> None:
    submit(at_github, FLAG, "https://github.com/else/where/pull/1", "https://example.org/about")
    ran = stack("export-pr", "--status")
    assert ran.code == 1
    assert ran.out.count("this address belongs to no upstream in pins.toml") == 2
    assert hub.seen == []


def test_a_pull_request_that_is_gone(at_github: World, stack: Stack, hub: Hub) -> None:
    submit(at_github, FLAG, f"{ADDRESS}/9")
    before = at_github.files()
    assert stack("export-pr", "--status").refused() == (
        "github.com knows no up/gamma#9 (Not Found): check the name, and whether the token may see it"
    )
    hub.trouble("/pulls/9", Answer(200, b"{}"))
    assert "gives an invalid answer when asked up/gamma#9" in stack("export-pr", "--status").refused()
    assert at_github.files() == before


def test_without_a_token_it_is_read_all_the_same(
    at_github: World, stack: Stack, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GH_TOKEN")
    hub.add(UP, title="Flag")
    submit(at_github, FLAG, f"{ADDRESS}/1")
    assert stack("export-pr", "--status").code == 0
    monkeypatch.setenv("GH_TOKEN", f"{TOKEN} or so")
    line = stack("export-pr", "--status").refused()
    assert line == "the value in GH_TOKEN is not a token: a token is one word of plain letters and digits"
