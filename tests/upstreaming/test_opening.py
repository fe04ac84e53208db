# SPDX-License-Identifier: Apache-2.0
"""Opening drafts: from which branch, once only, and written down at once."""

from dataclasses import replace

import pytest

from stack.base.errors import StackError
from stack.forge.github import GitHub
from stack.forge.repositories import PullState, Repository
from stack.model import switch
from stack.model.ids import CommitId
from stack.model.series import Pulled, State
from stack.model.stack import load
from stack.store import pushed_refs
from stack.store.pushed_refs import Pushed
from stack.upstreaming import following, opening
from stack.upstreaming.opening import Head
from stack.upstreaming.proposal import Part, Proposal

from ..forge.fake_github import Answer, Handler, Hub, Repo
from .conftest import MINE, READER, TOKEN, UP
from .world import Contributor, proposal

UPSTREAM = Repository("github.com", "up", "gamma")
TIP = CommitId("a" * 40)
BRANCH = "pr/up/one-hook"
SOURCE = Head(Repository("github.com", "me", "gamma"), BRANCH, TIP)
ONE = proposal(CommitId("b" * 40), "hook")
THERE = "https://github.com/me/gamma"


def draft(github: GitHub) -> object:
    return opening.open_draft(github, UPSTREAM, SOURCE, base="main", title="Hook", body="Why.")


@pytest.fixture
def github(hub: Hub) -> GitHub:
    hub.repositories[MINE].branches[BRANCH] = TIP
    return GitHub("github.com")


@pytest.mark.parametrize("address", [THERE, "git@work-alias:me/gamma.git", "http://127.0.0.1:1234/me/gamma"])
def test_the_head_is_where_the_branch_was_pushed(address: str) -> None:
    others = [Pushed("https://github.com/me/other", "pr/up/one-other", TIP), Pushed("https://x/old/gamma", BRANCH, ONE.base)]
    assert opening.head(ONE, TIP, [*others, Pushed(address, BRANCH, TIP)], UPSTREAM) == SOURCE
    assert SOURCE.label == "me:pr/up/one-hook"


@pytest.mark.parametrize(
    ("places", "why"),
    [
        ([], "pr/up/one-hook is in no fork: stack export-pr --push REMOTE --only up/one-hook"),
        ([Pushed(THERE, "pr/up/one-hooks", TIP)], "pr/up/one-hook is in no fork: "),
        ([Pushed(THERE, BRANCH, ONE.base)], f"{THERE} has another version of pr/up/one-hook: stack export-pr --push"),
        ([Pushed(THERE, BRANCH, TIP), Pushed("https://x/y/z", BRANCH, TIP)], "have pr/up/one-hook: delete it in one of them"),
        ([Pushed("/srv/gamma", BRANCH, TIP)], "/srv/gamma is not a repository of a forge"),
    ],
)
def test_no_head(places: list[Pushed], why: str) -> None:
    with pytest.raises(StackError) as caught:
        opening.head(ONE, TIP, places, UPSTREAM)
    assert why in str(caught.value)


def test_the_fork_is_checked(hub: Hub, github: GitHub) -> None:
    def refusal(source: Head) -> str:
        with pytest.raises(StackError) as caught:
            opening.check(github, UPSTREAM, source)
        return str(caught.value)

    opening.check(github, UPSTREAM, SOURCE)
    opening.check(github, Repository("github.com", "UP", "Gamma"), SOURCE)
    hub.repositories[UP].branches[BRANCH] = TIP  # who may push there needs no fork
    opening.check(github, UPSTREAM, replace(SOURCE, repository=UPSTREAM))
    assert refusal(replace(SOURCE, commit=ONE.base)) == (
        "me/gamma has aaaaaaaaaaaa, not bbbbbbbbbbbb, as branch pr/up/one-hook: stack export-pr --push REMOTE"
    )
    assert refusal(replace(SOURCE, branch="pr/up/one")) == ("me/gamma has no branch pr/up/one: stack export-pr --push REMOTE")
    hub.repositories["me/other"] = Repo(parent="up/other", branches={BRANCH: TIP})
    other = replace(SOURCE, repository=Repository("github.com", "me", "other"))
    assert refusal(other) == "me/other is not a fork of up/gamma: fork up/gamma, and push there"
    gone = replace(SOURCE, repository=Repository("github.com", "me", "gone"))
    assert refusal(gone).startswith("github.com knows no me/gone (Not Found)")


def test_a_draft(hub: Hub, github: GitHub) -> None:
    assert opening.existing(github, UPSTREAM, SOURCE) is None
    draft(github)
    [made] = hub.repositories[UP].pulls
    assert (made.draft, made.modify, made.base, made.head, made.sha) == (True, True, "main", "me:pr/up/one-hook", TIP)
    found = opening.existing(github, UPSTREAM, SOURCE)
    assert found is not None
    assert found.state is PullState.DRAFT
    assert opening.open_now(github, UPSTREAM) == 1
    # Opened again after it was closed: the one that lives counts.
    made.state = "closed"
    assert opening.open_now(github, UPSTREAM) == 0
    assert opening.existing(github, UPSTREAM, SOURCE).state is PullState.CLOSED  # type: ignore[union-attr]
    draft(github)
    made.number, hub.repositories[UP].pulls[1].number = 9, 2
    assert opening.existing(github, UPSTREAM, SOURCE).number == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("after", [False, True])
def test_the_network_drops_while_it_is_opened(hub: Hub, github: GitHub, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_PAUSE", 0.01)
    hub.trouble("POST", Handler.drop, after=after)
    if after:
        assert draft(github) == opening.existing(github, UPSTREAM, SOURCE)
    else:
        with pytest.raises(StackError, match=r"the connection .* failed .*: nothing was opened: run the command again"):
            draft(github)
    assert len(hub.repositories[UP].pulls) == after
    assert hub.asked("^POST") == 1


def test_somebody_was_faster(hub: Hub, github: GitHub) -> None:
    hub.add(UP, title="Hook", head=SOURCE.label, sha=TIP, author="me")
    assert draft(github) == opening.existing(github, UPSTREAM, SOURCE)
    assert len(hub.repositories[UP].pulls) == 1
    hub.repositories[UP].pulls[0].state = "closed"
    hub.repositories[UP].branches = {}
    with pytest.raises(StackError, match="base invalid"):
        draft(github)


def test_a_token_that_may_only_read(hub: Hub, github: GitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", READER)
    with pytest.raises(StackError, match="Resource not accessible by personal access token"):
        draft(GitHub("github.com"))
    hub.trouble("POST", Answer(404, {"message": "Not Found"}))
    with pytest.raises(StackError, match="Not Found"):
        draft(github)
    assert hub.repositories[UP].pulls == []


# --- written down ---------------------------------------------------------------------------------------------------------

ADDRESS = "https://github.com/up/gamma/pull"


def parts(*paths: str, cut: str = "") -> Proposal:
    return replace(ONE, parts=tuple(Part(path, None, cut) for path in paths))  # type: ignore[arg-type]


def test_what_is_open_is_written_down(me: Contributor) -> None:
    before = (me.root / "stacks/one/series.toml").read_text()
    opening.record(me.root, parts("one/up/hook.patch", "one/up/more.patch"), f"{ADDRESS}/1")
    series = load(me.root).get("one")
    hook, _, more = series.patches
    assert series.state is State.SUBMITTED
    assert series.pulls == (Pulled(hook, f"{ADDRESS}/1"), Pulled(more, f"{ADDRESS}/1"))
    opening.record(me.root, parts("one/up/hook.patch", "one/up/more.patch"), f"{ADDRESS}/1")
    assert [one.title for one in switch.history(me.root)] == ["export-pr --open up/one-hook"]
    # Opened anew, the address of a whole patch is replaced; a part of a cut one comes to those of the others.
    opening.record(me.root, parts("one/up/hook.patch"), f"{ADDRESS}/2")
    opening.record(me.root, parts("one/up/more.patch", cut="more.py"), f"{ADDRESS}/3")
    assert load(me.root).get("one").pulls == (
        Pulled(hook, f"{ADDRESS}/2"),
        Pulled(more, f"{ADDRESS}/1"),
        Pulled(more, f"{ADDRESS}/3"),
    )
    for _ in range(3):
        switch.undo(me.root)
    assert (me.root / "stacks/one/series.toml").read_text() == before


def test_what_cannot_be_written_down_is_said(me: Contributor) -> None:
    file = me.root / "stacks/one/series.toml"
    with pytest.raises(StackError) as caught:
        opening.record(me.root, parts("one/up/gone.patch"), f"{ADDRESS}/1")
    assert str(caught.value) == (
        f"{ADDRESS}/1 is open, but could not be written into stacks/one/series.toml (one/up/gone.patch has left the stack): "
        "mend that, then run the command again"
    )
    file.write_text("title = ")
    with pytest.raises(StackError, match=f"{ADDRESS}/1 is open, but could not be written"):
        opening.record(me.root, parts("one/up/hook.patch"), f"{ADDRESS}/1")
    file.unlink()
    with pytest.raises(StackError, match=f"{ADDRESS}/1 is open, but could not be written"):
        opening.record(me.root, parts("one/up/hook.patch"), f"{ADDRESS}/1")
    assert TOKEN not in str(caught.value)


def test_what_was_pushed_is_known(me: Contributor) -> None:
    """The records of pushing are what opening reads."""
    with me.stores() as stores:
        patch = next(patch for ref, patch in stores.stack.patches.items() if ref.file == "up/hook.patch")
    one = proposal(me.base(), "hook", patch)
    [row] = me.push(one)
    found = opening.head(one, row.branch.tip, pushed_refs.everything(me.store), UPSTREAM)
    assert found == Head(Repository("github.com", "me", "up"), "pr/up/one-hook", row.branch.tip)


def test_a_pull_request_of_a_lane_is_written_down_in_the_lane(me: Contributor) -> None:
    pins = me.root / "pins.toml"
    pins.write_text(f"{pins.read_text()}\n[lane.old]\n")
    common = (me.root / "stacks/one/series.toml").read_bytes()
    opening.record(me.root, replace(parts("one/up/hook.patch"), lane="old"), f"{ADDRESS}/1")
    assert (me.root / "stacks/one/series.toml").read_bytes() == common
    old, main = load(me.root, "old").get("one"), load(me.root).get("one")
    assert (old.state, [one.address for one in old.pulls]) == (State.SUBMITTED, [f"{ADDRESS}/1"])
    assert (main.state, main.pulls) == (State.PENDING, ())
    following.record(load(me.root, "old"), {"one": State.MERGED})
    assert (load(me.root, "old").get("one").state, load(me.root).get("one").state) == (State.MERGED, State.PENDING)
    for _ in range(2):
        switch.undo(me.root)
    assert not (me.root / "stacks/lanes").exists() or not any((me.root / "stacks/lanes").rglob("*.toml"))
