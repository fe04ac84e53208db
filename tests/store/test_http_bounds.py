# SPDX-License-Identifier: Apache-2.0
"""An answer has an end, in time and in size, whatever the server does."""

import gzip
import math
import os
import resource
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from stack.base import bounded_http
from stack.base.bounded_http import Bounded
from stack.base.errors import StackError
from stack.store import registry
from stack.store.indexes import Settings, parse
from stack.store.registry import Candidate, download, find

from .factories import Server

Handling = Callable[[BaseHTTPRequestHandler], None]
PATIENT = 20.0
"""Seconds in which each of these has ended, on a slow machine, too; without bounds they never do."""


def without_end(handler: BaseHTTPRequestHandler) -> None:
    """A page of links that never ends, as fast as it is read."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.end_headers()
    while True:
        handler.wfile.write(b"<a href='pkg-1.0.tar.gz'>pkg-1.0.tar.gz</a>" * 1000)


def packed(handler: BaseHTTPRequestHandler) -> None:
    """A small answer that unpacks to a gigabyte."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.send_header("Content-Encoding", "gzip")
    body = b"".join(gzip.compress(bytes(2**20)) for _ in range(1000))
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def dripping_body(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    drip(handler, b"x")


def dripping_head(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-A: ")
    drip(handler, b"x")


def redirecting_late(handler: BaseHTTPRequestHandler) -> None:
    """Redirects, each within the budget, that take much longer together."""
    time.sleep(0.4)
    handler.send_response(302)
    handler.send_header("Location", handler.path)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def drip(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    while True:
        handler.wfile.write(data)
        handler.wfile.flush()
        time.sleep(0.05)


def interim(handler: BaseHTTPRequestHandler) -> None:
    """Interim answers, and never the real one."""
    while True:
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def chunked(handler: BaseHTTPRequestHandler, start: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(start)


def trailing(handler: BaseHTTPRequestHandler) -> None:
    """A body that ends, with trailers that never do."""
    chunked(handler, b"1\r\nx\r\n0\r\n")
    while True:
        handler.wfile.write(b"X-A: y\r\n" * 1000)


def extending(handler: BaseHTTPRequestHandler) -> None:
    """A chunk size whose line never ends."""
    chunked(handler, b"1;")
    while True:
        handler.wfile.write(b"x" * 2**16)


def redirecting(handler: BaseHTTPRequestHandler) -> None:
    """Each redirect has a body without end."""
    handler.send_response(302)
    handler.send_header("Location", handler.path)
    handler.end_headers()
    while True:
        handler.wfile.write(bytes(2**16))


ENDLESS = {
    "without end": without_end,
    "packed": packed,
    "dripping": dripping_body,
    "head": dripping_head,
    "interim": interim,
    "trailers": trailing,
    "chunk size": extending,
    "redirect": redirecting,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that tests can reach; that they are set where sessions are made is what is tested."""
    adapter = Bounded.__init__
    monkeypatch.setattr(Bounded, "__init__", lambda self, **given: adapter(self, **{"seconds": 1.0, "largest": 2**20, **given}))


@pytest.mark.parametrize("what", ENDLESS)
def test_an_answer_has_an_end(server: Server, using: Settings, what: str) -> None:
    server.answers["/simple/pkg/"] = ENDLESS[what]
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(StackError, match=r"answers without end|in time|cannot be reached|not answer as a package index"):
        find("pkg", "1.0", using=using)
    assert time.monotonic() - began < PATIENT
    # Kilobytes; the largest answer that is read here has a thousand.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("handling", [dripping_body, dripping_head])
def test_a_download_that_drips_has_an_end(server: Server, using: Settings, tmp_path: Path, handling: Handling) -> None:
    server.answers["/file"] = handling
    began = time.monotonic()
    with pytest.raises(StackError, match=r"broke off|in time"):
        download(Candidate("pkg-1.0.tar.gz", f"{server.url}/file", None, None), tmp_path, using=using)
    assert time.monotonic() - began < PATIENT


@pytest.mark.parametrize("handling", [interim, trailing, extending])
def test_a_download_has_an_end_outside_of_its_body(server: Server, using: Settings, tmp_path: Path, handling: Handling) -> None:
    server.answers["/file"] = handling
    began = time.monotonic()
    with pytest.raises(StackError, match=r"broke off|answers without end|cannot be reached"):
        download(Candidate("pkg-1.0.tar.gz", f"{server.url}/file", None, None), tmp_path, using=using)
    assert time.monotonic() - began < PATIENT


def test_redirects_share_the_time_of_their_request(server: Server, using: Settings, tmp_path: Path) -> None:
    server.answers["/simple/pkg/"] = server.answers["/file"] = redirecting_late
    with pytest.raises(StackError, match="did not answer in time"):
        find("pkg", "1.0", using=using)
    with pytest.raises(StackError, match="did not answer in time"):
        download(Candidate("pkg-1.0.tar.gz", f"{server.url}/file", None, None), tmp_path, using=using)
    assert len(server.asked) < 10


def test_each_request_has_time_of_its_own(server: Server) -> None:
    server.answers["/a"] = (200, {}, b"x")
    with bounded_http.session(seconds=0.5) as session:
        for _ in range(3):
            assert session.get(f"{server.url}/a").content == b"x"
            time.sleep(0.3)


@pytest.mark.parametrize("follow", [True, False])
def test_the_body_of_a_redirect_has_an_end_in_a_streamed_answer(server: Server, follow: bool) -> None:
    server.answers["/file"] = redirecting
    with bounded_http.session(seconds=1, largest=2**20) as session, pytest.raises(bounded_http.EndlessError, match="1 MiB"):
        session.get(f"{server.url}/file", stream=True, allow_redirects=follow)


def test_a_body_may_come_byte_by_byte(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "_FRAMING", size := 2**12)

    def tiny(handler: BaseHTTPRequestHandler) -> None:
        chunked(handler, b"00001\r\nx\r\n" * size + b"0\r\n\r\n")

    server.answers["/a"] = tiny
    with bounded_http.session(seconds=60) as session:
        assert session.get(f"{server.url}/a").content == b"x" * size


def test_a_download_that_is_slow_but_steady_comes(server: Server, using: Settings, tmp_path: Path) -> None:
    """Received bytes extend the time: a large file over a slow line takes longer than the budget at its start."""
    data = os.urandom(300_000)

    def steady(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for place in range(0, len(data), 50_000):
            handler.wfile.write(data[place : place + 50_000])
            time.sleep(0.3)

    server.answers["/file"] = steady
    found = download(Candidate("pkg-1.0.tar.gz", f"{server.url}/file", None, None), tmp_path, using=using)
    assert found.read_bytes() == data


@pytest.mark.parametrize("handling", [dripping_body, dripping_head])
def test_a_server_that_is_asked_has_its_seconds_in_all(server: Server, handling: Handling) -> None:
    server.answers["/v1/models"] = handling
    began = time.monotonic()
    with pytest.raises(bounded_http.BROKEN), bounded_http.asked(f"{server.url}/v1/models", None, 1.0) as answer:
        bounded_http.whole(answer)
    assert time.monotonic() - began < PATIENT


def test_a_whole_answer_comes_through(server: Server) -> None:
    server.answers["/a"] = (200, {}, b"x" * 100_000)
    with bounded_http.Session() as session:
        session.mount("http://", Bounded(rate=math.inf))
        assert session.get(f"{server.url}/a").content == b"x" * 100_000
        assert session.get(f"{server.url}/a").content == b"x" * 100_000  # over the same connection


@pytest.mark.parametrize("kind", ["pipe", "large"])
def test_an_index_in_a_folder_has_an_end(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "simple/pkg/index.html"
    page.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(page)
    else:
        monkeypatch.setattr(bounded_http, "LARGEST", 1000)
        page.write_bytes(b" " * 2000)
    using = Settings(indexes=(parse((tmp_path / "simple").as_uri()),))
    with pytest.raises(StackError, match=r"answers without end|is not an address that can be fetched"):
        registry.find("pkg", "1.0", using=using)
