# SPDX-License-Identifier: Apache-2.0
"""Before anything of ours leaves this machine, what others have open is looked at."""

import json

import pytest

from stack.model.stack import load

from ..forge.fake_github import Hub, Repo
from .test_push_verb import PUSH, run
from .world import Contributor

FORK = "https://git.nowhere.test/me/up"
"""Nobody answers there: whoever gets that far wanted to push."""
ADDRESS = "https://github.com/them/up/pull/1"


@pytest.fixture
def taken(me: Contributor, hub: Hub) -> Hub:
    """Somebody has opened what one of our patches does."""
    hub.repositories = {"them/up": Repo(), "me/up": Repo(parent="them/up")}
    diff = next(patch.diff for ref, patch in load(me.root).patches.items() if ref.file == "up/hook.patch")
    hub.add("them/up", title="Do a hook", diff=diff)
    return hub


def test_it_stops_and_shows_it(me: Contributor, taken: Hub) -> None:
    done = run(me, *PUSH, FORK)
    assert done.code == 1, done
    lines = done.out.splitlines()
    assert lines[2].split() == ["up/one-hook", ADDRESS, "1.00", "Do", "a", "hook"]
    assert lines[3].split() == ["+hook"]
    assert lines[-1] == "nothing was pushed"
    told = json.loads(run(me, *PUSH, FORK, "--json").out)
    assert told["branches"] == []
    [found] = told["searches"]["up/one-hook"]["found"]
    assert (found["address"], found["score"], found["duplicate"]) == (ADDRESS, 1.0, True)
    assert (me.root / ".stack/pulls/up/one-hook.search.json").is_file()


def test_a_person_says_that_it_is_something_else(me: Contributor, taken: Hub) -> None:
    assert "git.nowhere.test" in run(me, *PUSH, FORK, "--despite", ADDRESS).refused()
    # The search's record knows it from now on.
    assert "git.nowhere.test" in run(me, *PUSH, FORK).refused()


def test_nothing_alike(me: Contributor, taken: Hub) -> None:
    taken.repositories["them/up"].pulls.clear()
    assert "git.nowhere.test" in run(me, *PUSH, FORK).refused()
    assert taken.asked("/search/issues")


def test_a_fork_on_this_machine_asks_nobody(me: Contributor, taken: Hub) -> None:
    assert run(me, *PUSH, me.forge.address("me/up")).code == 0
    assert taken.seen == []
