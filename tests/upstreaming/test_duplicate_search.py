# SPDX-License-Identifier: Apache-2.0
"""The search for what does the same as a proposal, among the pull requests of the hub."""

import json
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.forge.github import GitHub
from stack.forge.repositories import Repository
from stack.upstreaming import duplicate_search
from stack.upstreaming.duplicate_search import Search, Searcher
from stack.upstreaming.proposal import Part, Proposal

from ..carry.world import World, template, world
from ..forge.fake_github import Answer, Hub
from .conftest import UP

__all__ = ["template", "world"]

FLAG = "one/gamma/tool-flag.patch"
ADDRESS = f"https://github.com/{UP}/pull"


def diff_of(world: World, path: str) -> bytes:
    return next(patch.diff for ref, patch in world.load().patches.items() if ref.path == path)


def search(world: World, *, path: str = FLAG, despite: tuple[str, ...] = ()) -> Search:
    with world.stores() as stores:
        ref, patch = next(item for item in stores.stack.patches.items() if item[0].path == path)
        proposal = Proposal("gamma", ref.series, "x", stores.base("gamma"), "v2.0", False, (Part(path, patch),))
        searcher = Searcher(GitHub("github.com"), Repository("github.com", "up", "gamma"))
        return searcher.search(proposal, stores.stack.get(ref.series), stores.objects("gamma"), despite)


def test_what_does_the_same_is_found(world: World, hub: Hub) -> None:
    world.edit("stacks/one/series.toml", 'why = "It is needed."', 'why = "It is needed: see issue 7 and pull request 2."')
    same = diff_of(world, FLAG)
    hub.add(UP, title="Flag für das Werkzeug", diff=same)
    hub.add(UP, title="Other words", diff=diff_of(world, "two/gamma/fix-limit.patch"))
    hub.add(UP, title="For 7", diff=b"not a diff \xff")
    hub.add(UP, title="Flag für das Werkzeug, ours", author="me", diff=same)
    hub.add(UP, title="Flag für das Werkzeug, done", state="closed", diff=same)
    hub.add(UP, title="Elsewhere", diff=same)
    found = search(world)
    assert [(one.number, one.score, one.duplicate) for one in found.found] == [(1, 1.0, True), (2, 0.0, False), (3, 0.0, False)]
    assert found.duplicates == found.found[:1]
    assert found.found[0].lines == ("flag",)
    assert found.found[0].paths == ("gamma/tool.py",)
    assert [one.whole for one in found.found] == [True, True, False]
    assert found.repository == UP
    assert f'repo:{UP} is:pr is:open "7"' in found.queries
    assert f'repo:{UP} is:pr is:open "Flag" "für" "Werkzeug"' in found.queries
    assert found.unread == 0
    # The one of the message is asked for by its number, whether or not a search finds it; 7 is an issue's.
    assert hub.asked("/pulls/2$") == 2
    assert search(world, despite=(f"{ADDRESS}/1",)).duplicates == ()


def test_nothing_is_found(world: World, hub: Hub) -> None:
    found = search(world)
    assert (found.found, found.unread) == ((), 0)
    assert found.queries
    assert not hub.asked("/pulls/")


def test_our_own_are_known_without_a_token(world: World, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(UP, title="Flag für das Werkzeug", author="me", diff=diff_of(world, FLAG))
    monkeypatch.delenv("GH_TOKEN")
    assert len(search(world).duplicates) == 1
    world.edit(
        "stacks/one/series.toml", 'file = "gamma/tool-flag.patch"', f'file = "gamma/tool-flag.patch"\npull = "{ADDRESS}/1"'
    )
    assert search(world).found == ()


def test_what_is_too_large_or_too_many_is_counted(world: World, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicate_search, "MOST", 2)
    for _ in range(3):
        hub.add(UP, title="Flag für das Werkzeug", diff=diff_of(world, FLAG))
    hub.trouble(
        "/pulls/1$", Answer(406, b"Sorry, the diff exceeded the maximum number of lines", {"Content-Type": "text/plain"})
    )
    found = search(world)
    assert ([one.number for one in found.found], found.unread) == ([2], 2)


def test_hostile_titles_and_lines_are_words(world: World, hub: Hub) -> None:
    hub.add(UP, title="Flag für das Werkzeug\x1b[2J\x00", diff=diff_of(world, FLAG))
    assert search(world).found[0].title == "Flag für das Werkzeug [2J"


def test_the_record_is_kept(world: World, hub: Hub, tmp_path: Path) -> None:
    hub.add(UP, title="Flag für das Werkzeug", diff=diff_of(world, FLAG))
    found = search(world, despite=(f"{ADDRESS}/1",))
    with world.stores() as stores:
        proposal = Proposal("gamma", "one", "tool-flag", stores.base("gamma"), "v2.0", False, ())
    assert duplicate_search.kept(tmp_path, proposal) is None
    duplicate_search.keep(tmp_path, proposal, found)
    assert duplicate_search.kept(tmp_path, proposal) == found
    file = tmp_path / ".stack/pulls/gamma/one-tool-flag.search.json"
    whole = json.loads(file.read_text())
    [one] = whole["found"]
    changed = [whole | {"made": 7}, *(whole | {"found": [one | {key: []}]} for key in ("score", "title", "number"))]
    for odd in ([], {}, whole | {"more": 1}, whole | {"found": [{}]}, whole | {"queries": 7}, "x", *changed):
        file.write_text(json.dumps(odd))
        with pytest.raises(StackError, match=r"one-tool-flag\.search\.json is not a record of a search: remove it"):
            duplicate_search.kept(tmp_path, proposal)
