# SPDX-License-Identifier: Apache-2.0
"""Answers of a forge that lies: text in place of numbers, dates out of bounds, impossible values."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.forge import asking
from stack.forge.github import GitHub
from stack.forge.github_threads import GitHubThreads
from stack.forge.repositories import Repository
from stack.forge.services import SERVICES, Kind
from stack.forge.threads import Threads
from stack.watch import forges

TOKEN = "ghp_ThisIsMySecretTokenAndNobodyElses00"
UP = Repository("github.com", "up", "gamma")
PULL = {
    "number": 1, "html_url": "https://github.com/up/gamma/pull/1", "title": "One", "state": "open", "draft": True, "merged_at": None,
    "user": {"login": "me"}, "head": {"label": "me:one", "ref": "one", "sha": "a" * 40}, "base": {"ref": "main"},
    "merge_commit_sha": None,
}  # fmt: skip


class Liar(ThreadingHTTPServer):
    """A forge that answers every request with the same status, headers and body, and counts them."""

    status, headers, body, asked = 200, {}, b"{}", 0  # type: dict[str, str]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Liar)
        server.asked += 1
        self.send_response(server.status)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def liar(home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Liar]:
    del home
    for name in ("GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(asking, "_PAUSE", 0.01)
    monkeypatch.setattr(asking, "PATIENCE", 0.05)
    with Liar(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("GITHUB_API_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("GH_TOKEN", TOKEN)
        yield server
        server.shutdown()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(StackError) as refused:
        call()
    assert TOKEN not in str(refused.value)
    assert str(refused.value).isprintable()
    return str(refused.value)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-nan", "1e999", "-5", "x", ""])
@pytest.mark.parametrize("header", ["Retry-After", "X-RateLimit-Reset"])
def test_a_limit_of_no_number_ends(liar: Liar, header: str, seconds: str) -> None:
    liar.status, liar.body = 429, b'{"message": "slow down"}'
    liar.headers = {header: seconds, "X-RateLimit-Remaining": "0"}
    assert "takes no more requests for now" in refusal(lambda: GitHub("github.com").default_branch(UP))
    assert liar.asked == 1


@pytest.mark.parametrize(
    "date",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-99-99T00:00:00Z", "0000-00-00", 7, ["x"]],
)
def test_dates_out_of_all_bounds(liar: Liar, date: Any) -> None:
    liar.body = json.dumps(PULL | {"state": "closed", "merged_at": date, "merge_commit_sha": "b" * 40}).encode()
    assert "gives an invalid answer" in refusal(lambda: GitHub("github.com").pull(UP, 1))


@pytest.mark.parametrize("field", sorted(PULL))
@pytest.mark.parametrize("value", [7, -1, 1.5, True, [], {}, "", "\x1b[2J\x9b", [[]], "x" * 100, {"login": 7}, 10**4000])
def test_fields_of_wrong_types(liar: Liar, field: str, value: Any) -> None:
    """Any answer gives a pull request of printable words, or an error of one line."""
    liar.body = json.dumps(PULL | {field: value}).encode() if value != 10**4000 else b'{"number": ' + b"9" * 4000 + b"}"
    try:
        pull = GitHub("github.com").pull(UP, 1)
    except StackError as refused:
        assert str(refused).isprintable()
        return
    assert all(str(getattr(pull, name)).isprintable() for name in pull.__dataclass_fields__)


ISSUE = {
    "number": 1, "title": "One", "body": "text", "state": "open", "labels": [{"name": "x"}], "user": {"login": "me", "type": "User"},
    "author_association": "OWNER",
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(ISSUE))
@pytest.mark.parametrize("value", [7.5, -1, True, [], {}, None, [[]], [7], {"login": 7}, "\x1b[2J", 10**40])
def test_issues_with_fields_of_wrong_types(liar: Liar, field: str, value: Any) -> None:
    """Any answer gives an issue of texts and a number, or an error of one line."""
    liar.body = json.dumps([ISSUE | {field: value}]).encode()
    try:
        [thread] = GitHubThreads(GitHub("github.com"), UP).issues()
    except StackError as refused:
        assert str(refused).isprintable()
        return
    assert all(isinstance(text, str) for text in (thread.title, thread.body, *thread.labels))
    assert isinstance(thread.number, int)


def test_runs_with_control_characters(liar: Liar) -> None:
    run = {"created_at": "2026\x1b[2J", "conclusion": "good\x07", "event": "x"}
    liar.body = json.dumps({"workflow_runs": [run]}).encode()
    [found] = GitHubThreads(GitHub("github.com"), UP).runs("x.yml", 5) or ()
    assert (found.began, found.conclusion) == ("2026?[2J", "good?")


@pytest.mark.parametrize("runs", [None, 7, [7], [{}], [{"created_at": 7, "conclusion": None, "event": "x"}], [None], {}])
def test_runs_of_wrong_types(liar: Liar, runs: Any) -> None:
    liar.body = json.dumps({"workflow_runs": runs}).encode()
    if runs == {}:
        assert GitHubThreads(GitHub("github.com"), UP).runs("x.yml", 5) == ()
    else:
        assert "gives an invalid answer" in refusal(lambda: GitHubThreads(GitHub("github.com"), UP).runs("x.yml", 5))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_goes_to_no_other_host(liar: Liar, status: int) -> None:
    with Liar(("127.0.0.1", 0), _Handler) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        liar.status, liar.headers = status, {"Location": f"http://localhost:{other.server_port}/user?token={TOKEN}"}
        assert "is now at" in refusal(GitHub("github.com").login)
        other.shutdown()
        assert other.asked == 0


def test_pages_without_end(liar: Liar) -> None:
    liar.headers = {"Link": '<http://127.0.0.1/next>; rel="next"'}
    liar.body = json.dumps([PULL | {"head": PULL["head"] | {"label": "me:one"}}] * 100).encode()  # type: ignore[operator]
    assert len(GitHub("github.com").pulls_from(UP, "me:one")) == 1000
    assert liar.asked == 10


USER = {"id": 1, "username": "me", "login": "me"}
ISSUES: dict[str, dict[str, Any]] = {
    "gitlab": {"iid": 1, "title": "One", "description": "text", "state": "opened", "labels": ["x"], "author": USER},
    "forgejo": {"number": 1, "title": "One", "body": "text", "state": "open", "labels": [{"name": "x"}], "user": USER},
}
PULLS: dict[str, dict[str, Any]] = {
    "gitlab": ISSUES["gitlab"] | {"draft": True, "source_branch": "b", "source_project_id": 1, "target_project_id": 1},
    "forgejo": ISSUES["forgejo"] | {"merged": False, "head": {"ref": "b", "repo": {"full_name": "up/gamma"}}},
}
RUNS: dict[str, Any] = {
    "gitlab": [
        {"id": 1, "description": "stack-watch", "status": "success", "source": "schedule", "created_at": "2026-11-27T03:00:00Z"}
    ],
    "forgejo": {
        "workflow_runs": [
            {
                "id": 1,
                "workflow_id": "x.yml",
                "status": "success",
                "trigger_event": "schedule",
                "created": "2026-11-27T03:00:00Z",
            }
        ]
    },
}
HOSTILE = [7.5, -1, True, [], {}, None, [[]], [7], {"login": 7}, "\x1b[2J", "0001-01-01T00:00:00+14:00", 10**40]


def other(kind: str, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> Threads:
    """The client of another forge, which the liar plays."""
    service = SERVICES[Kind(kind)]
    monkeypatch.setenv(service.api_variable, f"http://127.0.0.1:{liar.server_port}")
    monkeypatch.setenv(service.token_variables[0], TOKEN)
    return forges.connected(Repository(service.home, "up", "gamma"), service, silent)


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("kind", ["gitlab", "forgejo"])
def test_other_forges_that_lie(liar: Liar, kind: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any answer gives plain values, or an error of one line."""
    forge = other(kind, liar, monkeypatch)
    calls: list[tuple[Any, Callable[[], object]]] = [
        *(([ISSUES[kind] | {field: value}], forge.issues) for field in ISSUES[kind]),
        *(([PULLS[kind] | {field: value}], lambda: forge.pulls("b")) for field in PULLS[kind]),
        *((body, lambda: forge.runs("x.yml", 5)) for body in lies(RUNS[kind], value)),
        *(
            (value, call)
            for call in (forge.issues, lambda: forge.comments(1), forge.default_branch, lambda: forge.trusts("you"))
        ),
    ]
    for body, call in calls:
        liar.body = json.dumps(body).encode()
        try:
            found = call()
        except StackError as refused:
            assert str(refused).isprintable()
            assert TOKEN not in str(refused)
            continue
        for each in found if isinstance(found, tuple) else ():
            assert isinstance(getattr(each, "title", "") + getattr(each, "body", "") + getattr(each, "began", ""), str)
            assert getattr(each, "began", "").isprintable()
    forge.close()


def lies(document: Any, value: Any) -> Iterator[Any]:
    """Replace each value of a document, one at a time."""
    if isinstance(document, dict):
        for key, inner in document.items():
            yield from (document | {key: lie} for lie in (value, *lies(inner, value)))
    elif isinstance(document, list):
        for lie in (value, *lies(document[0], value)):
            yield [lie]
