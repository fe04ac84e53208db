# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path

import pytest

from stack.forge.github import GitHub
from stack.forge.repositories import Checks, Fork, Pull, PullState, Repository, Reviews

from .conftest import MINE, UP
from .fake_github import Answer, Hub

UPSTREAM = Repository("github.com", "up", "gamma")
FORK = Repository("github.com", "me", "gamma")
SHA = "a" * 40


def test_what_it_says(hub: Hub) -> None:
    hub.repositories[MINE].branches["pr/gamma/one"] = SHA
    hub.repositories[MINE].branches["pr/gamma/one-more"] = "b" * 40
    github = GitHub("github.com")
    assert github.login() == "me"
    assert github.default_branch(UPSTREAM) == "main"
    assert github.fork(FORK) == Fork(FORK, UP)
    assert github.fork(UPSTREAM) == Fork(UPSTREAM, None)
    assert github.tip(FORK, "pr/gamma/one") == SHA
    assert github.tip(FORK, "pr/gamma") is None
    made = github.open_draft(UPSTREAM, head="me:pr/gamma/one", base="main", title="One", body="Why.")
    address = "https://github.com/up/gamma/pull/1"
    assert made == Pull(1, address, "One", PullState.DRAFT, "me", "me:pr/gamma/one", SHA, "main")
    assert hub.repositories[UP].pulls[0].modify
    assert hub.repositories[UP].pulls[0].body == "Why."
    assert github.pulls_from(UPSTREAM, "me:pr/gamma/one") == (made,)
    assert github.pulls_from(UPSTREAM, "me:other") == ()
    hub.add(UP, title="Another's")
    everything = json.dumps(hub._listed(UP, {"state": "all"})).encode()
    hub.trouble(r"GET /repos/up/gamma/pulls\?", Answer(200, everything))  # from a server that knows no such filter
    assert github.pulls_from(UPSTREAM, "me:pr/gamma/one") == (made,)
    hub.repositories[UP].pulls[0].diff = b"diff --git a/a b/a\n+caf\xe9\n"
    assert github.diff(UPSTREAM, 1) == b"diff --git a/a b/a\n+caf\xe9\n"
    hits, total = github.search('repo:up/gamma is:pr is:open "one"', 10)
    assert [(one.number, one.title, one.author, one.address) for one in hits] == [(1, "One", "me", address)]
    assert total == 1


def test_reviews_checks_and_lag(hub: Hub) -> None:
    reviews = [
        ("ada", "CHANGES_REQUESTED"),
        ("bob", "APPROVED"),
        ("ada", "COMMENTED"),
        ("eve", "APPROVED"),
        ("eve", "DISMISSED"),
    ]
    hub.add(UP, title="One", sha=SHA, reviews=reviews)
    hub.runs[SHA] = [("lint", "success"), ("docs", "skipped"), ("test", "failure"), ("gpu", None)]
    hub.statuses[SHA] = [("dco", "success"), ("buildkite", "pending"), ("cla", "error")]
    hub.behind[SHA] = 3
    github = GitHub("github.com")
    assert github.reviews(UPSTREAM, 1) == Reviews(approved=("bob",), changes=("ada",))
    assert github.checks(UPSTREAM, github.pull(UPSTREAM, 1).commit) == Checks(passed=3, failed=("cla", "test"), pending=2)
    assert github.behind(UPSTREAM, "main", github.pull(UPSTREAM, 1).commit) == 3


def test_a_list_of_several_pages_is_read_from_the_same_host(hub: Hub) -> None:
    head = "me:pr/gamma/one"
    for number in range(101):
        hub.add(UP, title=f"Number {number}", head=head, state="closed")
    first = json.dumps(hub._listed(UP, {"state": "all", "head": head, "per_page": "100"})).encode()
    link = '<http://elsewhere.test/pulls?page=2>; rel="next", <http://elsewhere.test/pulls?page=2>; rel="last"'
    hub.trouble(r"GET /repos/up/gamma/pulls\?", Answer(200, first, {"Link": link}))
    assert [pull.number for pull in GitHub("github.com").pulls_from(UPSTREAM, head)] == [*range(101, 0, -1)]
    assert hub.asked(r"pulls\?.*&page=2$") == 1


def test_without_a_token_none_is_taken_from_netrc(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert GitHub("github.com").login() == "me"
    monkeypatch.delenv("GH_TOKEN")
    assert GitHub("github.com").default_branch(UPSTREAM) == "main"
