# SPDX-License-Identifier: Apache-2.0
"""Issues and pull requests of the user's own repository: the same at GitHub, GitLab and Forgejo, each held against its description."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.forge import threads
from stack.forge.asking import DroppedError
from stack.forge.repositories import PullState, Repository
from stack.forge.services import SERVICES, Kind
from stack.forge.threads import Comment, Threads, ThreadState, WorkflowRun
from stack.watch import forges

from .conftest import KINDS, READER, TOKEN
from .fake_forgejo import ForgejoHub
from .fake_github import Handler, Hub, Repo
from .fake_gitlab import GitLabHub
from .fake_threads import Issue

OWN = "me/stack"
ALL = pytest.mark.parametrize("kind", KINDS)


def connected(kind: str) -> Threads:
    service = SERVICES[Kind(kind)]
    return forges.connected(Repository(service.home, "me", "stack"), service, silent)


@pytest.fixture
def own(hub: Hub, kind: str) -> Iterator[Threads]:
    hub.repositories[OWN] = Repo(branches={"main": "0" * 40, "stack-watch/gamma": "1" * 40})
    made = connected(kind)
    yield made
    made.close()


@ALL
def test_an_issue_is_opened_changed_and_commented_on(hub: Hub, own: Threads) -> None:
    opened = own.open_issue("One", "text", ("stack-watch",))
    assert (opened.number, opened.labels, opened.author, opened.state) == (1, ("stack-watch",), "me", ThreadState.OPEN)
    changed = own.edit_issue(1, "Two", "more", ThreadState.CLOSED)
    assert (changed.title, changed.body, changed.state) == ("Two", "more", ThreadState.CLOSED)
    assert own.add_comment(1, "hello") == Comment("hello", "me")
    assert own.comments(1) == (Comment("hello", "me"),)
    assert own.issues() == own.issues("stack-watch") == (changed,)
    assert own.issues("other") == ()
    own.remove_label(1, "stack-watch", pull=False)
    own.remove_label(1, "stack-watch", pull=False)
    assert own.issues()[0].labels == ()
    assert own.edit_issue(1, "Two", "more", ThreadState.OPEN).state is ThreadState.OPEN


@ALL
def test_the_label_is_made_once(hub: Hub, own: Threads) -> None:
    own.open_issue("One", "text", ("stack-watch",))
    own.open_issue("Two", "text", ("stack-watch",))
    assert len(own.issues("stack-watch")) == 2
    if isinstance(hub, ForgejoHub):
        assert hub.labels.count("stack-watch") == 1


def grant(hub: Hub, **levels: str) -> None:
    """Give accounts rights, as each forge names them."""
    hub.permissions |= levels
    if isinstance(hub, GitLabHub):
        hub.levels |= {who: {"admin": 40, "write": 30, "read": 20}[level] for who, level in levels.items()}
    if isinstance(hub, ForgejoHub):
        hub.rights |= levels


@ALL
def test_who_may_not_write_is_not_trusted(hub: Hub, own: Threads) -> None:
    grant(hub, maintainer="admin", writer="write", reader="read")
    hub.repositories[OWN].issues = [
        Issue(1, "t", "b", author="writer", comments=[(who, "NONE", "c") for who in ("maintainer", "reader", "stranger")])
    ]
    assert own.trusts(own.issues()[0].author)
    assert [own.trusts(each.author) for each in own.comments(1)] == [True, False, False]
    assert own.trusts(own.account)
    assert not own.trusts("")


def test_another_program_is_not_trusted(hub: Hub, own: Threads, kind: str) -> None:
    """Every app that is installed may open issues. Only the one that the token belongs to is trusted."""
    hub.tokens |= {"ghs_OfTheWorkflow": "github-actions[bot]"}
    hub.apps.add("ghs_OfTheWorkflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GH_TOKEN", "ghs_OfTheWorkflow")
        program = connected(kind)
    assert program.account == "github-actions[bot]"
    assert [program.trusts(who) for who in ("github-actions[bot]", "dependabot[bot]")] == [True, False]
    program.close()


@pytest.mark.parametrize("kind", ["forgejo"])
def test_a_token_that_may_not_ask_for_rights_trusts_itself_and_the_owner(hub: Hub, own: Threads) -> None:
    assert isinstance(hub, ForgejoHub)
    hub.asks_of_others = False
    hub.tokens[TOKEN] = "robot"
    grant(hub, writer="write")
    assert [own.trusts(who) for who in ("robot", "me", "writer")] == [True, True, False]


@ALL
def test_a_pull_request_is_opened_changed_and_closed(hub: Hub, own: Threads) -> None:
    opened = own.open_pull("stack-watch/gamma", "main", "One", "text")
    assert (opened.state, opened.title) == (PullState.DRAFT, "One")
    [kept] = hub.repositories[OWN].pulls
    assert kept.draft
    assert own.edit_pull(opened, "Two", "more", closed=False).state is PullState.DRAFT
    kept.labels = ["hold"]
    [found] = own.pulls("stack-watch/gamma")
    assert (found.title, found.body, found.labels) == ("Two", "more", ("hold",))
    assert own.issues() == ()  # GitHub lists pull requests among the issues
    own.remove_label(found.number, "hold", pull=True)
    assert kept.labels == []
    kept.draft = False
    [ready] = own.pulls("stack-watch/gamma")
    assert ready.state is PullState.OPEN
    assert own.edit_pull(ready, "Three", "more", closed=False).state is PullState.OPEN  # a person took the draft's mark away
    assert own.edit_pull(ready, "Two", "more", closed=True).state is PullState.CLOSED
    kept.merge = "9" * 40
    assert own.pulls("stack-watch/gamma")[0].state is PullState.MERGED


@ALL
def test_a_branch_of_a_fork_is_not_ours(hub: Hub, own: Threads) -> None:
    """An organization may have a fork of its own repository, and `owner:branch` is the same for both."""
    own.open_pull("stack-watch/gamma", "main", "One", "text")
    [pull] = hub.repositories[OWN].pulls
    assert len(own.pulls("stack-watch/gamma")) == 1
    pull.fork = "me/other"
    assert own.pulls("stack-watch/gamma") == ()


@ALL
def test_runs_of_a_workflow(hub: Hub, own: Threads, kind: str) -> None:
    assert own.runs("stack-watch.yml", 5) == (() if kind == "forgejo" else None)
    hub.repositories[OWN].runs["other.yml"] = [("2026-11-28T03:00:00Z", "success")]
    hub.repositories[OWN].runs["stack-watch.yml"] = [
        ("2026-11-27T03:00:00Z", None), ("2026-11-26T03:00:00Z", "success"), ("2026-11-25T03:00:00Z", "failure"),
    ]  # fmt: skip
    assert own.runs("stack-watch.yml", 5) == (
        WorkflowRun("2026-11-27T03:00:00Z", "", "schedule"),
        WorkflowRun("2026-11-26T03:00:00Z", "success", "schedule"),
        WorkflowRun("2026-11-25T03:00:00Z", "failure", "schedule"),
    )
    assert own.runs_page("stack-watch.yml").startswith(f"https://{SERVICES[Kind(kind)].home}/me/stack/")


@ALL
def test_a_lost_answer_is_not_asked_for_again(hub: Hub, own: Threads) -> None:
    hub.trouble("^POST .*/issues$", Handler.drop, after=True)
    with pytest.raises(DroppedError):
        own.open_issue("One", "text", ())
    assert len(own.issues()) == 1
    hub.trouble("^POST .*/(comments|notes)$", Handler.drop, after=True)
    with pytest.raises(DroppedError):
        own.add_comment(1, "hello")
    assert len(own.comments(1)) == 1
    hub.trouble("^POST .*/(pulls|merge_requests)$", Handler.drop, after=True)
    with pytest.raises(DroppedError):
        own.open_pull("stack-watch/gamma", "main", "One", "text")
    assert len(own.pulls("stack-watch/gamma")) == 1


@ALL
def test_a_change_is_asked_for_again(hub: Hub, own: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stack.forge.asking._PAUSE", 0.01)
    own.open_issue("One", "text", ())
    hub.trouble("^(PATCH|PUT) ", Handler.drop, after=True)
    assert own.edit_issue(1, "Two", "text", ThreadState.OPEN).title == "Two"


@ALL
def test_a_token_that_may_only_read_is_refused(hub: Hub, own: Threads, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN" if kind == "github" else f"{kind.upper()}_TOKEN", READER)
    reader = connected(kind)
    with pytest.raises(StackError) as caught:
        reader.open_issue("One", "text", ())
    reader.close()
    assert "does not let you ask to open an issue at me/stack" in str(caught.value)
    assert TOKEN not in str(caught.value)


@ALL
def test_a_token_that_is_not_known_is_refused(hub: Hub, own: Threads, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN" if kind == "github" else f"{kind.upper()}_TOKEN", "expired")
    other = connected(kind)
    with pytest.raises(StackError, match="refuses the token"):
        other.issues()
    other.close()


@ALL
def test_many_issues_are_read(hub: Hub, own: Threads) -> None:
    hub.repositories[OWN].issues = [Issue(number, "t", "b") for number in range(1, 101)]
    assert [thread.number for thread in own.issues()] == list(range(1, 101))
    assert threads.MOST > 1000


@pytest.mark.parametrize("kind", ["gitlab"])
def test_gitlab_carries_out_no_line_of_a_text(hub: Hub, own: Threads) -> None:
    """GitLab would do what a line such as `/close` says, with the rights of the token."""
    own.open_issue("One", "text\n/close\n/label ~x", ())
    own.edit_issue(1, "One", "/assign @me", ThreadState.OPEN)
    own.add_comment(1, "/close\n/Close\n/MERGE\nsrc/a.py and /usr")
    own.open_pull("stack-watch/gamma", "main", "One", "/merge")
    sent = [body.decode() for body in hub.sent]
    assert len(sent) == 4
    assert not [text for text in sent if '"/' in text or "\\n/" in text]
    assert own.comments(1)[0].body == "&#47;close\n&#47;Close\n&#47;MERGE\nsrc/a.py and /usr"


@pytest.mark.parametrize("kind", ["gitlab"])
def test_a_project_in_a_subgroup(hub: Hub, own: Threads) -> None:
    hub.repositories["group/below/stack"] = Repo()
    made = forges.connected(Repository("gitlab.com", "group/below", "stack"), SERVICES[Kind.GITLAB], silent)
    assert made.default_branch() == "main"
    made.close()
    assert ("GET", "/projects/group%2Fbelow%2Fstack") in hub.seen
    with pytest.raises(StackError, match="is not a repository of Forgejo: if it is one of GitLab, add --gitlab"):
        forges.connected(Repository("codeberg.org", "group/below", "stack"), SERVICES[Kind.FORGEJO], silent)


def test_the_kind_of_forge_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for service in SERVICES.values():
        monkeypatch.delenv(service.host_variable, raising=False)
    found = {
        host: forges.service(host, tmp_path).kind.value
        for host in ("github.com", "gitlab.com", "gitlab.example.org", "codeberg.org", "forgejo.example.org", "git.example.org")
    }
    assert list(found.values()) == ["github", "gitlab", "gitlab", "forgejo", "forgejo", "github"]
    assert forges.service("git.example.org", tmp_path, "forgejo").kind is Kind.FORGEJO
    monkeypatch.setenv("FORGEJO_HOST", "git.example.org")
    assert forges.service("git.example.org", tmp_path).kind is Kind.FORGEJO
