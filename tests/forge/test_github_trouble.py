# SPDX-License-Identifier: Apache-2.0
"""What GitHub, the network or somebody in between does to a request, and what the user reads then."""

import json
import time
from collections.abc import Callable

import pytest

from stack.base.errors import StackError
from stack.forge import asking, connection
from stack.forge.github import DroppedError, GitHub
from stack.forge.repositories import Repository

from .conftest import MINE, READER, TOKEN, UP
from .fake_github import Answer, Handler, Hub, serving

UPSTREAM = Repository("github.com", "up", "gamma")
FORK = Repository("github.com", "me", "gamma")
BRANCH = "pr/gamma/one"
ERROR = {"documentation_url": "https://docs.github.com/rest"}
SECONDARY = ERROR | {"message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}
PRIMARY = ERROR | {"message": "API rate limit exceeded for user ID 1."}


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(StackError) as caught:
        call()
    assert caught.value.remedy
    line = str(caught.value)
    assert TOKEN not in line
    return line


def opens(client: GitHub) -> Callable[[], object]:
    return lambda: client.open_draft(UPSTREAM, head=f"me:{BRANCH}", base="main", title="One", body="Why.")


@pytest.fixture
def pushed(hub: Hub) -> Hub:
    hub.repositories[MINE].branches[BRANCH] = "a" * 40
    return hub


def test_a_token_that_expired(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", "ghp_old")
    assert (
        refusal(GitHub("github.com").login)
        == "github.com refuses the token: it has expired, or belongs to another host: log in again"
    )


def test_a_token_without_rights(pushed: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", READER)
    assert refusal(opens(GitHub("github.com"))) == (
        "github.com does not let you ask to open a pull request at up/gamma (Resource not accessible by personal access token): "
        "give the token the right to write pull requests, or log in with another"
    )
    assert pushed.repositories[UP].pulls == []


def test_no_token(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GH_TOKEN")
    client = GitHub("github.com")
    assert client.default_branch(UPSTREAM) == "main"
    assert refusal(client.login) == (
        "no token for github.com: log in with `gh auth login`, or set GH_TOKEN to a token that may write pull requests"
    )


def test_what_is_not_there(hub: Hub) -> None:
    assert refusal(lambda: GitHub("github.com").fork(Repository("github.com", "me", "other"))) == (
        "github.com knows no me/other (Not Found): check the name, and whether the token may see it"
    )
    assert "refuses to open a pull request at up/gamma (422) (Validation Failed; head invalid)" in refusal(
        opens(GitHub("github.com"))
    )


def test_opened_twice(pushed: Hub) -> None:
    opens(GitHub("github.com"))()
    assert "A pull request already exists for me:pr/gamma/one." in refusal(opens(GitHub("github.com")))
    assert len(pushed.repositories[UP].pulls) == 1


@pytest.mark.parametrize(
    "limit",
    [
        Answer(429, SECONDARY, {"Retry-After": "1"}),
        Answer(403, SECONDARY, {"Retry-After": "1"}),
        Answer(403, PRIMARY, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "NOW"}),
    ],
)
def test_limits_are_waited_for_as_the_headers_say(pushed: Hub, limit: Answer) -> None:
    headers = {name: str(int(time.time())) if value == "NOW" else value for name, value in limit.headers.items()}
    told: list[tuple[str, int, int | None]] = []
    pushed.trouble("POST", Answer(limit.status, limit.body, headers), times=2)
    begin = time.monotonic()
    made = GitHub("github.com", lambda *said: told.append(said)).open_draft(
        UPSTREAM, head=f"me:{BRANCH}", base="main", title="One", body="Why."
    )
    assert made.number == 1
    assert pushed.asked("^POST") == 3
    assert time.monotonic() - begin >= 2
    assert told[0] == ("waiting for github.com's limit of requests", 0, 1)


def test_a_limit_without_headers_takes_its_minute(pushed: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LEAST", 1.0)
    pushed.trouble("GET /user", Answer(403, SECONDARY))
    pushed.trouble("GET /user", Answer(429, SECONDARY, {"Retry-After": "soon"}))
    begin = time.monotonic()
    assert GitHub("github.com").login() == "me"
    assert time.monotonic() - begin >= 2


def test_a_limit_that_lasts_is_not_waited_for(pushed: Hub) -> None:
    reset = int(time.time()) + 3000
    pushed.trouble("GET /user", Answer(403, PRIMARY, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(reset)}))
    at = time.strftime("%H:%M", time.gmtime(reset + 1))
    assert refusal(GitHub("github.com").login) == (
        f"github.com takes no more requests for now (who you are): run the command again at {at} UTC"
    )
    pushed.trouble("GET /user", Answer(429, SECONDARY, {"Retry-After": "9" * 30}))
    assert "takes no more requests for now" in refusal(GitHub("github.com").login)
    assert pushed.asked("GET /user") == 2


def test_a_limit_that_comes_again_and_again_ends(pushed: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PATIENCE", 2.5)
    pushed.trouble("GET /user", Answer(429, SECONDARY, {"Retry-After": "-5"}), times=100)
    assert "takes no more requests for now" in refusal(GitHub("github.com").login)
    assert pushed.asked("GET /user") == 3


def test_what_only_reads_is_asked_again(hub: Hub) -> None:
    hub.trouble("GET /user", Handler.drop)
    hub.trouble("GET /user", Answer(502, ERROR | {"message": "Server Error"}))
    assert GitHub("github.com").login() == "me"
    hub.trouble("GET /repos/up/gamma$", Handler.break_off, times=3)
    line = refusal(lambda: GitHub("github.com").default_branch(UPSTREAM))
    assert line == "the connection to github.com failed when asked up/gamma: check the network"
    assert hub.asked("GET /repos/up/gamma$") == 3


@pytest.mark.parametrize("after", [False, True])
def test_what_opens_is_not_sent_twice(pushed: Hub, after: bool) -> None:
    pushed.trouble("POST", Handler.drop, after=after)
    with pytest.raises(DroppedError):
        opens(GitHub("github.com"))()
    assert pushed.asked("^POST") == 1
    assert len(pushed.repositories[UP].pulls) == after
    pushed.trouble("POST", Answer(502, ERROR | {"message": "Server Error"}))
    assert "fails (502)" in refusal(opens(GitHub("github.com")))
    assert pushed.asked("^POST") == 2


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_the_token_stays_at_its_host(hub: Hub, github_contract: object, status: int) -> None:
    with serving(github_contract) as elsewhere:  # type: ignore[arg-type]
        for method in ("GET", "POST"):
            hub.trouble(f"^{method}", lambda handler: _redirect(handler, status, f"{elsewhere.url}/user?token=x"))
        line = refusal(GitHub("github.com").login)
        assert f"says that /user is now at {elsewhere.url}/user: if the repository was renamed" in line
        assert "is now at" in refusal(opens(GitHub("github.com")))
        assert elsewhere.seen == []


def _redirect(handler: Handler, status: int, target: str) -> None:
    handler.send_response(status)
    handler.send_header("Location", target)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b"null",
        b"7",
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"default_branch": {"name": 7}}',
        b'{"default_branch": ""}',
        b"\xff\xfe",
    ],
)
def test_odd_answers(hub: Hub, body: bytes) -> None:
    hub.trouble("GET /repos", Answer(200, body))
    line = refusal(lambda: GitHub("github.com").default_branch(UPSTREAM))
    assert line == "github.com gives an invalid answer when asked up/gamma: check GITHUB_API_URL"


def test_odd_pull_requests(pushed: Hub) -> None:
    pull = pushed._pull(UP, pushed.add(UP, title="One"))
    odd = [
        {"html_url": "javascript:alert(1)"},
        {"html_url": 'https://x"\nstate = "merged'},
        {"number": "7"},
        {"number": True},
        {"head": None},
        {"title": None},
        {"user": {"login": "me\x1b[2J"}},
        {"head": pull["head"] | {"sha": "0\x1b[2J"}},
        {"base": pull["base"] | {"ref": "main or so"}},
        {"url": "https://elsewhere.test/", "title": None},
        {"merged_at": "yesterday"},
    ]
    for values in odd:
        pushed.trouble("GET /repos/up/gamma/pulls/1", Answer(200, str.encode(json.dumps(pull | values))))
        assert "gives an invalid answer" in refusal(lambda: GitHub("github.com").pull(UPSTREAM, 1)), values
    shown = pull | {"title": "One\x1b[2J\nstate: merged"}
    pushed.trouble("GET /repos/up/gamma/pulls/1", Answer(200, str.encode(json.dumps(shown))))
    assert GitHub("github.com").pull(UPSTREAM, 1).title == "One [2J state: merged"


def test_answers_without_end(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.trouble("GET /user", Handler.flood)
    assert (
        refusal(GitHub("github.com").login)
        == "the answer of 127.0.0.1 to /user does not end: more than 32 MiB came: check the address: this is not a forge"
    )
    monkeypatch.setattr(connection, "SLOWEST", 0.5)
    hub.trouble("GET /user", Handler.drip)
    assert "to /user does not end: it went on for more than 0 s" in refusal(GitHub("github.com").login)


def test_an_answer_that_repeats_the_token(hub: Hub) -> None:
    said = {"message": f"Who is {TOKEN}?\x1b[31m", "errors": [{"message": TOKEN}, 7, {"field": "a", "code": "b"}]}
    hub.trouble("GET /repos", Answer(404, str.encode(json.dumps(said))))
    line = refusal(lambda: GitHub("github.com").default_branch(UPSTREAM))
    assert line.startswith("github.com knows no up/gamma (Who is ...? [31m; ...; a b): ")


def test_an_answer_that_is_nested_deeply(hub: Hub) -> None:
    """JSON of this depth can be parsed; a function that calls itself that often cannot end."""
    said = '{"message": ' + '{"a": ' * 900 + '"x"' + "}" * 901
    hub.trouble("GET /repos", Answer(404, said.encode()))
    assert refusal(lambda: GitHub("github.com").default_branch(UPSTREAM)).startswith("github.com knows no up/gamma: ")


def test_nobody_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(asking, "_PAUSE", 0.01)
    assert (
        refusal(GitHub("github.com").login) == "the connection to github.com failed when asked who you are: check the network"
    )
    assert hub.seen == []
