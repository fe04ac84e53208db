# SPDX-License-Identifier: Apache-2.0
"""Issues and pull requests of the user's own repository, against GitHub's contract."""

from collections.abc import Iterator

import pytest

from stack.base.errors import StackError
from stack.forge import threads
from stack.forge.github import DroppedError, GitHub
from stack.forge.repositories import PullState, Repository
from stack.forge.threads import Comment, Threads, ThreadState, WorkflowRun

from .conftest import READER, TOKEN
from .fake_github import Handler, Hub, Repo
from .fake_threads import Issue

OWN = "me/stack"


@pytest.fixture
def own(hub: Hub) -> Iterator[Threads]:
    hub.repositories[OWN] = Repo(branches={"main": "0" * 40, "stack-watch/gamma": "1" * 40})
    github = GitHub("github.com")
    yield Threads(github, Repository("github.com", "me", "stack"))
    github.close()


def test_an_issue_is_opened_changed_and_commented_on(hub: Hub, own: Threads) -> None:
    opened = own.open_issue("One", "text", ("stack-watch",))
    assert (opened.number, opened.labels, opened.trusted, opened.state) == (1, ("stack-watch",), True, ThreadState.OPEN)
    changed = own.edit_issue(1, "Two", "more", ThreadState.CLOSED)
    assert (changed.title, changed.body, changed.state) == ("Two", "more", ThreadState.CLOSED)
    own.add_comment(1, "hello")
    assert own.comments(1) == (Comment("hello"),)
    assert own.issues() == own.issues("stack-watch") == (changed,)
    assert own.issues("other") == ()
    own.remove_label(1, "stack-watch")
    own.remove_label(1, "stack-watch")
    assert own.issues()[0].labels == ()


def test_who_may_not_write_is_not_trusted(hub: Hub, own: Threads) -> None:
    hub.repositories[OWN].issues = [
        Issue(number, "t", "b", association=who, comments=[("x", who, "c")])
        for number, who in enumerate(("OWNER", "MEMBER", "COLLABORATOR", "CONTRIBUTOR", "NONE"), 1)
    ]
    assert [each.trusted for each in own.issues()] == [True, True, True, False, False]
    assert [own.comments(number)[0].trusted for number in (3, 4)] == [True, False]


def test_a_pull_request_is_opened_changed_and_closed(hub: Hub, own: Threads) -> None:
    opened = own.open_pull("stack-watch/gamma", "main", "One", "text")
    assert opened.state is PullState.DRAFT
    assert own.edit_pull(opened.number, "Two", "more", closed=False).state is PullState.DRAFT
    hub.repositories[OWN].pulls[0].labels = ["hold"]
    [found] = own.pulls("stack-watch/gamma")
    assert (found.title, found.body, found.labels) == ("Two", "more", ("hold",))
    assert own.issues() == ()  # GitHub lists pull requests among the issues
    assert own.edit_pull(found.number, "Two", "more", closed=True).state is PullState.CLOSED


def test_a_branch_of_a_fork_with_the_same_owner_is_not_ours(hub: Hub, own: Threads) -> None:
    """An organization may have a fork of its own repository, and `owner:branch` is the same for both."""
    own.open_pull("stack-watch/gamma", "main", "One", "text")
    [pull] = hub.repositories[OWN].pulls
    assert len(own.pulls("stack-watch/gamma")) == 1
    pull.fork = "me/other"
    assert own.pulls("stack-watch/gamma") == ()


def test_runs_of_a_workflow(hub: Hub, own: Threads) -> None:
    assert own.runs("stack-watch.yml", 5) is None
    hub.repositories[OWN].runs["stack-watch.yml"] = [("2026-11-27T03:00:00Z", "success"), ("2026-11-26T03:00:00Z", None)]
    found = own.runs("stack-watch.yml", 5)
    assert found == (
        WorkflowRun("2026-11-27T03:00:00Z", "success", "schedule"),
        WorkflowRun("2026-11-26T03:00:00Z", "", "schedule"),
    )


def test_a_lost_answer_is_not_asked_for_again(hub: Hub, own: Threads) -> None:
    hub.trouble("^POST .*/issues$", Handler.drop, after=True)
    with pytest.raises(DroppedError):
        own.open_issue("One", "text", ())
    assert len(own.issues()) == 1
    hub.trouble("^POST .*/comments$", Handler.drop, after=True)
    with pytest.raises(DroppedError):
        own.add_comment(1, "hello")
    assert len(own.comments(1)) == 1


def test_a_change_is_asked_for_again(hub: Hub, own: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stack.forge.github._PAUSE", 0.01)
    own.open_issue("One", "text", ())
    hub.trouble("^PATCH ", Handler.drop, after=True)
    assert own.edit_issue(1, "Two", "text", ThreadState.OPEN).title == "Two"


def test_a_token_that_may_only_read_is_refused(hub: Hub, own: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", READER)
    github = GitHub("github.com")
    with pytest.raises(StackError) as caught:
        Threads(github, Repository("github.com", "me", "stack")).open_issue("One", "text", ())
    github.close()
    assert "does not let you ask to open an issue at me/stack" in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_many_issues_are_read(hub: Hub, own: Threads) -> None:
    hub.repositories[OWN].issues = [Issue(number, "t", "b") for number in range(1, 101)]
    assert len(own.issues()) == 100
    assert threads.MOST > 1000
