# SPDX-License-Identifier: Apache-2.0
"""Large and hostile pages of an index: each is read, or refused in time."""

import json
import time
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import index_page
from stack.store.indexes import Settings, parse
from stack.store.registry import find, versions

from .factories import Server

HTML = {"Content-Type": "text/html"}
JSON = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
HASH = "a" * 64


def links(count: int) -> bytes:
    return "".join(f'<a href="/files/pkg-{n}.0.tar.gz#sha256={HASH}" data-yanked="">x</a>\n' for n in range(1, count)).encode()


def page(kind: str, count: int) -> tuple[int, dict[str, str], bytes]:
    """A page with `count` releases. All but the last are yanked."""
    last = f"pkg-{count}.0.tar.gz"
    if kind == "html":
        return 200, HTML, links(count) + f'<a href="/files/{last}#sha256={HASH}">{last}</a>'.encode()
    names = [(f"pkg-{n}.0.tar.gz", n < count) for n in range(1, count + 1)]
    files = [
        {"filename": name, "url": f"/files/{name}", "hashes": {"sha256": HASH}, "size": 7, "yanked": yanked}
        for name, yanked in names
    ]
    return 200, JSON, json.dumps({"meta": {"api-version": "1.1"}, "name": "pkg", "files": files}).encode()


@pytest.mark.parametrize("count", [2, 1500])
@pytest.mark.parametrize("kind", ["html", "json"])
def test_a_page_is_read_whatever_its_size(server: Server, using: Settings, kind: str, count: int) -> None:
    server.answers["/simple/pkg/"] = page(kind, count)
    assert (len(page(kind, count)[2]) > index_page.SMALL) is (count > 2)
    if kind == "json":
        found = find("pkg", "1.0", using=using)
        assert (found.url, found.sha256, found.size) == (f"{server.url}/files/pkg-1.0.tar.gz", HASH, 7)
        assert list(map(str, versions("pkg", using=using))) == [f"{count}.0"]
    else:
        found = find("pkg", f"{count}.0", using=using)
        assert (found.url, found.sha256) == (f"{server.url}/files/pkg-{count}.0.tar.gz", HASH)


def test_a_large_page_in_a_folder_is_read(tmp_path: Path) -> None:
    place = tmp_path / "simple/pkg/index.html"
    place.parent.mkdir(parents=True)
    place.write_bytes(page("html", 1500)[2])
    assert find("pkg", "1500.0", using=Settings(indexes=(parse((tmp_path / "simple").as_uri()),))).sha256 == HASH


SLOW = {
    "comments": b"<!" * 2**20,
    "nested": b"<b>" * 200_000,
    "anchors": b"<a href=x>x</a>" * 200_000,
}


@pytest.mark.parametrize("what", SLOW)
def test_a_page_that_takes_long_to_parse_is_refused(
    server: Server, using: Settings, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_page, "SECONDS", 0.5)
    server.answers["/simple/pkg/"] = 200, HTML, SLOW[what]
    began = time.monotonic()
    with pytest.raises(StackError, match="takes more than 0 s to parse: check the configured index"):
        find("pkg", "1.0", using=using)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("size", [index_page.SMALL - 1000, 4 * index_page.SMALL])
@pytest.mark.parametrize(("kind", "start"), [(JSON, b"["), (JSON, b'{"files":' + b"9" * 5000), (JSON, b"\xff"), ({}, b"\0")])
def test_a_page_that_is_none_is_refused(server: Server, using: Settings, kind: dict[str, str], start: bytes, size: int) -> None:
    server.answers["/simple/pkg/"] = 200, kind or {"Content-Type": "image/png"}, start * (size // len(start))
    with pytest.raises(StackError, match="does not answer as a package index"):
        find("pkg", "1.0", using=using)


def test_the_list_of_offers_has_an_end(server: Server, using: Settings) -> None:
    """Each link gets the address of the page's base in front: a small page lists many megabytes."""
    base = f'<base href="http://h/{"x" * 100_000}/">'.encode()
    server.answers["/simple/pkg/"] = 200, HTML, base + b"<a href=x>x</a>" * 700
    with pytest.raises(StackError, match="does not answer as a package index"):
        find("pkg", "1.0", using=using)


def test_json_is_what_an_index_is_asked_for_first(server: Server, using: Settings) -> None:
    seen: list[str | None] = []

    def give(handler: object) -> None:
        seen.append(handler.headers.get("Accept"))  # type: ignore[attr-defined]
        handler.send_error(404)  # type: ignore[attr-defined]

    server.answers["/simple/pkg/"] = give
    with pytest.raises(StackError, match="no source archive"):
        find("pkg", "1.0", using=using)
    kinds = [kind.partition(";q=") for kind in (seen[0] or "").split(", ")]
    assert max(kinds, key=lambda kind: float(kind[2] or 1))[0] == JSON["Content-Type"]
    assert sum(not weight for _, _, weight in kinds) == 1
