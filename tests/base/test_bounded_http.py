# SPDX-License-Identifier: Apache-2.0
"""Servers that never come to an end, send elsewhere, or nest without end."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from stack.base import bounded_http
from stack.base.errors import StackError
from stack.validation import endpoint
from stack.validation.serve.client import Talk, Wrong

from ..loopback import listening

Says = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def saying(says: Says) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            try:
                self.rfile.read(int(self.headers.get("content-length", 0)))  # what is left unread breaks the connection
                says(self)
            except OSError:  # whoever asked has gone
                self.close_connection = True

        do_POST = do_GET

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def head(handler: BaseHTTPRequestHandler, status: int = 200, **fields: str) -> None:
    handler.send_response(status)
    for name, value in {"content_type": "text/event-stream", **fields}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def drips(handler: BaseHTTPRequestHandler) -> None:
    """One letter now and then: each in time, the whole never."""
    head(handler)
    while True:
        handler.wfile.write(b"data: {}\n\n")
        time.sleep(0.05)


def pours(handler: BaseHTTPRequestHandler) -> None:
    head(handler)
    while True:
        handler.wfile.write(b"data:" + b" " * 2**20)


def nests(handler: BaseHTTPRequestHandler) -> None:
    head(handler)
    handler.wfile.write(b'data: {"a":' + b"[" * 100_000)


ENDLESS: dict[str, tuple[Says, str]] = {
    "drips": (drips, "it went on for more than 1 s"),
    "pours": (pours, "more than 1 MiB came"),
    "nests": (nests, "nested too deeply|with JSON"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_an_end_has_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    says, said = ENDLESS[name]
    monkeypatch.setattr(bounded_http, "SERVED", 2**20)
    for module, limit in ((endpoint, "LISTED"), (endpoint, "WAIT")):
        monkeypatch.setattr(module, limit, 1.0)
    with saying(says) as url:
        asked = Talk(url, "tiny", 1.0)
        for ask in (lambda: asked.get("/x"), lambda: asked.ask("/x"), lambda: asked.stream("/x")):
            with pytest.raises(Wrong, match=said if name != "nests" else "JSON|nested"):
                ask()
        for about in (lambda: endpoint.at(url).models(), lambda: endpoint.at(url).ask("completions", {})):
            with pytest.raises(StackError, match=said):
                about()


def test_a_server_that_sends_elsewhere_is_not_followed() -> None:
    reached = []

    def answers(handler: BaseHTTPRequestHandler) -> None:
        reached.append(handler.path)
        head(handler)
        handler.wfile.write(b'{"data": [{"id": "tiny"}], "version": "1"}')

    with saying(answers) as other, saying(lambda handler: head(handler, 307, location=f"{other}/v1/models")) as url:
        with pytest.raises(StackError, match="/models answers 307"):
            endpoint.at(url).models()
        assert endpoint.at(url).version() is None
        for ask in (Talk(url, "tiny").get, Talk(url, "tiny").ask):
            with pytest.raises(Wrong, match="it answers 307"):
                ask("/v1/models")
    assert reached == []


def test_no_proxy_stands_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    def answers(handler: BaseHTTPRequestHandler) -> None:
        head(handler)
        handler.wfile.write(b'{"data": []}')

    with saying(answers) as url:
        assert Talk(url, "tiny").get("/v1/models") == {"data": []}


@pytest.mark.parametrize("user", ["", "else:who@"])
def test_the_key_is_what_a_server_gets(user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setattr(bounded_http, "is_here", lambda _: False)  # nothing is asked of the environment for servers here
    shown = []

    def answers(handler: BaseHTTPRequestHandler) -> None:
        shown.append(handler.headers.get_all("authorization"))
        head(handler)

    with saying(answers) as url, bounded_http.asked(url.replace("//", f"//{user}"), None, 5, "key") as answer:
        assert answer.status_code == 200
    assert shown == [["Bearer key"]]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_lines_do_not_depend_on_the_pieces_that_they_come_in(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"data: one\r\n\r\ndata: two\n\ndata: no end"
    cut = [data[place : place + size] for place in range(0, len(data), size)]
    monkeypatch.setattr(bounded_http, "pieces", lambda *_: iter(cut))
    assert list(bounded_http.lines(None)) == [b"data: one", b"", b"data: two", b"", b"data: no end"]  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["secret\r", "two words", "schlüssel", "secret\nX-Other: 1"])
def test_a_key_that_no_header_can_hold_is_not_shown(key: str) -> None:
    """The library's error has the whole header in it."""
    with pytest.raises(StackError, match="the API key or token has a blank or a special character") as refused:
        bounded_http.session(seconds=1, key=key)
    assert key.strip()[:6] not in str(refused.value)
