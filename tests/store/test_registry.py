# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from packaging.version import Version

from stack.base.errors import StackError
from stack.model.ids import Sha256
from stack.store import registry
from stack.store.indexes import Settings, parse
from stack.store.registry import Candidate, download, find, versions

from .factories import Answer, Server, run_python, sdist, serving, sha256


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificate and key of a server on loopback, and the authority that vouches for it, made for this run."""
    place = tmp_path_factory.mktemp("tls") / "loopback.pem"
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(place))
    authority.cert_pem.write_to_path(str(place), append=True)
    return place


def release(folder: Path, version: str, content: bytes = b"1") -> Path:
    return sdist(folder / f"pkg-{version}.tar.gz", {"a": content})


@pytest.fixture
def offered(tmp_path: Path, server: Server) -> Path:
    path = release(tmp_path / "served", "1.0", os.urandom(100_000))
    server.offer(path)
    return path


def all_words(error: BaseException | None) -> str:
    """What an error and its causes say."""
    return f"{error} {error!r} {all_words(error.__cause__ or error.__context__)}" if error else ""


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*") if path.suffix != ".lock")


def test_find_and_download(tmp_path: Path, server: Server, using: Settings, offered: Path) -> None:
    candidate = find("Pkg", "1.0.0", using=using)
    assert candidate == Candidate("pkg-1.0.tar.gz", f"{server.url}/files/pkg-1.0.tar.gz", sha256(offered), None)
    told: list[tuple[int, int | None]] = []
    path = download(candidate, tmp_path / "to/here", lambda done, total: told.append((done, total)), using=using)
    assert path == tmp_path / "to/here/pkg-1.0.tar.gz"
    assert path.read_bytes() == offered.read_bytes()
    assert leftovers(path.parent) == [path.name]
    assert told[-1] == (offered.stat().st_size, offered.stat().st_size)


def test_what_is_there_is_not_asked_for_again(tmp_path: Path, server: Server, using: Settings, offered: Path) -> None:
    candidate = find("pkg", "1.0", using=using)
    for _ in range(2):
        download(candidate, tmp_path, using=using)
    assert server.asked.count("/files/pkg-1.0.tar.gz") == 1
    (tmp_path / "pkg-1.0.tar.gz").write_text("spoiled")
    download(candidate, tmp_path, using=using)
    assert sha256(tmp_path / "pkg-1.0.tar.gz") == sha256(offered)


def test_an_index_in_json(tmp_path: Path, server: Server, using: Settings) -> None:
    path = release(tmp_path, "1.0")
    file = {
        "filename": path.name,
        "url": f"/files/{path.name}",
        "hashes": {"sha256": sha256(path)},
        "size": path.stat().st_size,
    }
    page = {"meta": {"api-version": "1.0"}, "name": "pkg", "files": [file]}
    kind = {"Content-Type": "application/vnd.pypi.simple.v1+json"}
    server.answers["/simple/pkg/"] = 200, kind, json.dumps(page).encode()
    assert find("pkg", "1.0", using=using).size == path.stat().st_size


def test_an_index_in_a_folder(tmp_path: Path) -> None:
    path = release(tmp_path / "files of it", "1.0")
    page = tmp_path / "simple/pkg/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files%20of%20it/{path.name}#sha256={sha256(path)}">{path.name}</a>')
    for url in (f"file://{tmp_path}/simple", f"file://{tmp_path}/simple/"):
        using = Settings(indexes=(parse(url),))
        candidate = find("pkg", "1.0", using=using)
        assert download(candidate, tmp_path / "to", using=using).read_bytes() == path.read_bytes()
        with pytest.raises(StackError, match="no source archive of other"):
            find("other", "1.0", using=using)
    path.unlink()
    with pytest.raises(StackError, match="answered 404"):
        download(candidate, tmp_path / "again", using=using)


def test_the_newest_and_the_nearest_versions_are_named(tmp_path: Path, server: Server, using: Settings) -> None:
    made = ["0.1", "0.2", "0.3", "0.10", "0.11", "1.0", "2.0", "3.0rc1"]
    server.offer(*(release(tmp_path, version) for version in made))
    with pytest.raises(StackError, match=re.escape("no source archive of pkg 9.9; newest: 2.0, 1.0, 0.11, 0.10, 0.3:")):
        find("pkg", "9.9", using=using)
    with pytest.raises(StackError, match=re.escape("nearest: 0.2, 0.3, 0.10, 0.11")):
        find("pkg", "0.4", using=using)
    with pytest.raises(StackError, match="is not a version"):
        find("pkg", "newest", using=using)
    with pytest.raises(StackError, match="no source archive of other"):
        find("other", "1.0", using=using)


def test_versions_are_ordered_and_stable(tmp_path: Path, server: Server, using: Settings) -> None:
    made = ["0.10", "0.9.post1", "0.9", "1.0rc1", "0.11", "0.9.dev3"]
    server.offer(*(release(tmp_path, version) for version in made))
    page = server.answers["/simple/pkg/"]
    assert isinstance(page, tuple)
    withdrawn = page[2].replace(b"0.11.tar.gz#", b'0.11.tar.gz" data-yanked="broken" x="#')
    server.answers["/simple/pkg/"] = (
        page[0],
        page[1],
        withdrawn + b'<a href="pkg-7.0-py3-none-any.whl">pkg-7.0-py3-none-any.whl</a>',
    )
    assert versions("pkg", using=using) == [Version("0.9"), Version("0.9.post1"), Version("0.10")]
    assert versions("pkg", stable=False, using=using)[-1] == Version("1.0rc1")
    with pytest.raises(StackError, match="no source archive of other"):
        versions("other", using=using)


def test_only_a_gzipped_archive_will_do(tmp_path: Path, server: Server, using: Settings) -> None:
    path = release(tmp_path, "1.0").rename(tmp_path / "pkg-1.0.zip")
    server.offer(path)
    with pytest.raises(StackError, match=r"only pkg-1.0.zip: expected a .tar.gz.*--source git"):
        find("pkg", "1.0", using=using)


def test_a_name_that_leads_elsewhere(server: Server, using: Settings) -> None:
    page = b'<a href="x.tar.gz">../../pkg-1.0.tar.gz</a><a href="y">pkg-1.0/../../x-1.0.tar.gz</a>'
    server.answers["/simple/pkg/"] = 200, {"Content-Type": "text/html"}, page
    with pytest.raises(StackError, match="no "):
        find("pkg", "1.0", using=using)


def test_a_server_may_not_point_at_files_of_this_machine(tmp_path: Path, server: Server, using: Settings) -> None:
    path = release(tmp_path, "1.0")
    server.answers["/simple/pkg/"] = 200, {"Content-Type": "text/html"}, f'<a href="file://{path}">{path.name}</a>'.encode()
    with pytest.raises(StackError, match="no source archive of pkg"):
        find("pkg", "1.0", using=using)
    server.answers["/files/x"] = 302, {"Location": f"file://{path}"}, b""
    both = replace(using, indexes=(*using.indexes, parse(f"file://{tmp_path}")))
    with pytest.raises(StackError, match="points at a local file"):
        download(Candidate("pkg-1.0.tar.gz", f"{server.url}/files/x", None, None), tmp_path / "to", using=both)
    with pytest.raises(StackError, match="not an address that can be fetched"):
        download(Candidate("pkg-1.0.tar.gz", f"{server.url}/files/x", None, None), tmp_path / "to", using=using)
    assert leftovers(tmp_path / "to") == []


class TestTwoIndexes:
    @pytest.fixture
    def second(self) -> Iterator[Server]:
        with serving() as running:
            yield running

    @pytest.fixture
    def both(self, using: Settings, second: Server) -> Settings:
        return replace(using, indexes=(*using.indexes, parse(second.index)))

    def test_the_first_that_has_it_wins(self, tmp_path: Path, server: Server, second: Server, both: Settings) -> None:
        one, two = release(tmp_path / "1", "1.0", b"1"), release(tmp_path / "2", "1.0", b"2")
        server.offer(one)
        second.offer(two, release(tmp_path, "2.0"))
        assert find("pkg", "1.0", using=both).sha256 == sha256(one)
        assert find("pkg", "1.0", sha256=sha256(two), using=both).sha256 == sha256(two)
        assert find("pkg", "2.0", using=both).url.startswith(second.url)
        assert versions("pkg", using=both) == [Version("1.0"), Version("2.0")]
        with pytest.raises(StackError, match=f"{sha256(one)}, .*{sha256(two)}: expected .*{'0' * 64}"):
            find("pkg", "1.0", sha256=Sha256("0" * 64), using=both)

    def test_one_that_fails_does_not_hide_the_other(
        self, tmp_path: Path, server: Server, second: Server, both: Settings
    ) -> None:
        second.offer(release(tmp_path, "1.0"))
        server.answers["/simple/pkg/"] = 500, {}, b"broken"
        assert find("pkg", "1.0", using=both)
        with pytest.raises(StackError, match="answered 500"):  # it may have it: this is no "no such version"
            find("pkg", "3.0", using=both)


def test_no_network(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        using = Settings(indexes=(parse(f"http://me:secret@127.0.0.1:{unused.getsockname()[1]}/"),), retries=0)
        with pytest.raises(StackError, match=r"cannot be reached: check the network .*--source git") as caught:
            find("pkg", "1.0", using=using)
        assert "secret" not in all_words(caught.value)
        with pytest.raises(StackError, match="cannot be reached"):
            versions("pkg", using=using)
        with pytest.raises(StackError, match="cannot be reached"):
            download(Candidate("a.tar.gz", using.indexes[0].url, None, None), tmp_path, using=using)


def test_a_server_that_does_not_answer(server: Server, using: Settings) -> None:
    def wait(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.recv(1)

    server.answers["/simple/pkg/"] = wait
    with pytest.raises(StackError, match="did not answer in time"):
        find("pkg", "1.0", using=replace(using, timeout=0.2))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((500, {}, b"broken"), "answered 500: check the network"),
        ((401, {}, b""), "answered 401: check the credentials"),
        ((403, {}, b""), "answered 403: check the credentials"),
        ((200, {"Content-Type": "text/html"}, b'\x00\xff<<<a href="pkg-1.0.tar.gz</html'), "no source archive"),
        ((200, {"Content-Type": "text/html"}, b"<html><body>Please log in</body></html>"), "no source archive"),
        ((200, {"Content-Type": "image/png"}, b"\x89PNG"), "does not answer as a package index"),
        ((200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, b"{"), "does not answer as a package index"),
        ((200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, b"[1]"), "does not answer as a package index"),
        (
            (200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, b'{"files": [{}]}'),
            "does not answer as a package index",
        ),
        ((200, {"Content-Type": "text/html"}, b'<meta name="pypi:repository-version" content="9.0">'), "does not answer"),
        ((200, {"Content-Type": "text/html", "Content-Length": "900"}, b"<a>"), "cannot be reached"),
        ((302, {"Location": "/simple/pkg/"}, b""), "cannot be reached"),
        ((200, {"Content-Type": "text/html; charset=nonsense"}, b"<a>"), "no source archive"),
    ],
)
def test_an_index_that_answers_badly(server: Server, using: Settings, answer: Answer, why: str) -> None:
    def give(handler: BaseHTTPRequestHandler) -> None:
        status, headers, body = answer
        handler.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | headers).items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = True

    server.answers["/simple/pkg/"] = give
    with pytest.raises(StackError, match=why):
        find("pkg", "1.0", using=using)


def bodies(content: bytes) -> dict[str, tuple[object, str]]:
    def cut(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])
        handler.close_connection = True

    def chunked_cut(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        handler.close_connection = True

    return {
        "another file": ((200, {}, b"another"), "came with the SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}"),
        "nothing": ((200, {}, b""), "came with the SHA-256"),
        "cut": (cut, "broke off after [0-9]+ bytes"),
        "chunks without an end": (chunked_cut, "broke off after [0-9]+ bytes"),
        "gone": ((404, {}, b""), "answered 404"),
        "broken": ((500, {}, b""), "answered 500"),
        "a page instead": ((200, {"Content-Type": "text/html"}, b"<html>log in</html>"), "came with the SHA-256"),
        "too large": ((200, {"Content-Length": str(registry.MAX_SIZE + 1)}, b"x"), "is larger than"),
        "no such number": ((200, {"Content-Length": "9" * 5000}, b"x"), "is larger than"),
    }


@pytest.mark.parametrize("case", bodies(b""))
def test_a_file_that_comes_badly_leaves_nothing(
    tmp_path: Path, server: Server, using: Settings, offered: Path, case: str
) -> None:
    candidate = find("pkg", "1.0", using=using)
    answer, why = bodies(offered.read_bytes())[case]
    server.answers["/files/pkg-1.0.tar.gz"] = answer  # type: ignore[assignment]
    with pytest.raises(StackError, match=why):
        download(candidate, tmp_path / "to", using=using)
    assert leftovers(tmp_path / "to") == []


def test_a_size_that_nobody_announced_is_capped(
    tmp_path: Path, server: Server, using: Settings, offered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "MAX_SIZE", 50_000)

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(offered.read_bytes())
        handler.close_connection = True

    server.answers["/files/pkg-1.0.tar.gz"] = endless
    with pytest.raises(StackError, match="is larger than 50000 bytes"):
        download(find("pkg", "1.0", using=using), tmp_path / "to", using=using)
    assert leftovers(tmp_path / "to") == []


def test_the_pins_hash_counts_more_than_the_indexs(tmp_path: Path, server: Server, using: Settings) -> None:
    path = release(tmp_path / "served", "1.0")
    server.offer(path, hashes=False)
    candidate = find("pkg", "1.0", sha256=Sha256("0" * 64), using=using)
    with pytest.raises(StackError, match=f"expected {'0' * 64}"):
        download(candidate, tmp_path / "to", expected_sha256=Sha256("0" * 64), using=using)
    assert download(candidate, tmp_path / "to", using=using).is_file()


def test_a_server_that_compresses_on_the_way(tmp_path: Path, server: Server, using: Settings, offered: Path) -> None:
    server.answers["/files/pkg-1.0.tar.gz"] = 200, {"Content-Encoding": "gzip"}, offered.read_bytes()
    assert sha256(download(find("pkg", "1.0", using=using), tmp_path, using=using)) == sha256(offered)


def test_parts_of_a_killed_download_are_removed(tmp_path: Path, using: Settings, offered: Path) -> None:
    (tmp_path / ".pkg-1.0.tar.gz.dead.part").write_text("half")
    download(find("pkg", "1.0", using=using), tmp_path, using=using)
    assert leftovers(tmp_path) == ["pkg-1.0.tar.gz", "served"]


def test_a_full_disk(tmp_path: Path, using: Settings, offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "part")))
    with pytest.raises(StackError, match=r"cannot write .*No space left on device: free some disk space"):
        download(find("pkg", "1.0", using=using), tmp_path / "to", using=using)
    assert leftovers(tmp_path / "to") == []


LIMITED = """
import resource, sys
from pathlib import Path
from stack.store.indexes import Settings, parse
from stack.store.registry import download, find
sys.dont_write_bytecode = True  # it would be torn
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
using = Settings(indexes=(parse(sys.argv[1]),))
download(find("pkg", "1.0", using=using), Path(sys.argv[2]), using=using)
"""


def test_a_limit_on_file_sizes(tmp_path: Path, server: Server, offered: Path) -> None:
    done = run_python(LIMITED, server.index, str(tmp_path / "to"))
    assert "StackError" in done.stderr
    assert "File too large" in done.stderr
    assert leftovers(tmp_path / "to") == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, using: Settings, offered: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="cannot write"):
        download(find("pkg", "1.0", using=using), tmp_path / "file/to", using=using)


class TestCredentials:
    def test_of_the_address_go_to_that_server_only(self, tmp_path: Path, server: Server) -> None:
        with serving() as other:
            path = release(tmp_path, "1.0")
            other.offer(path)
            link = f'<a href="{other.url}/files/{path.name}">{path.name}</a>'
            server.answers["/simple/pkg/"] = 200, {"Content-Type": "text/html"}, link.encode()
            using = Settings(indexes=(parse(server.index.replace("//", "//me:p%40ss@")),), retries=0)
            download(find("pkg", "1.0", using=using), tmp_path / "to", using=using)
            assert server.authorizations == ["Basic bWU6cEBzcw=="]
            assert other.authorizations == [None]

    def test_of_netrc(self, home: Path, server: Server, using: Settings, offered: Path) -> None:
        (home / ".netrc").write_text("machine 127.0.0.1 login me password p@ss\n")
        (home / ".netrc").chmod(0o600)
        find("pkg", "1.0", using=using)
        assert server.authorizations == ["Basic bWU6cEBzcw=="]

    def test_never_reach_a_message(self, tmp_path: Path, server: Server) -> None:
        using = Settings(indexes=(parse(server.index.replace("//", "//me:secret@")),), retries=0)
        server.answers["/simple/pkg/"] = 500, {}, b""
        with pytest.raises(StackError) as caught:
            find("pkg", "1.0", using=using)
        assert "secret" not in all_words(caught.value)
        with pytest.raises(StackError, match=re.escape(f"{server.url}/files/x answered 404")):
            download(Candidate("a.tar.gz", f"{server.url}/files/x?sig=secret", None, None), tmp_path, using=using)


class TestSecureConnections:
    @pytest.fixture
    def secure(self, tmp_path: Path, pem: Path) -> Iterator[Server]:
        def wrap(http: ThreadingHTTPServer) -> None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            http.socket = context.wrap_socket(http.socket, server_side=True)

        with serving(wrap) as running:
            running.offer(release(tmp_path, "1.0"))
            yield running

    def test_an_unknown_certificate_is_refused(self, secure: Server) -> None:
        with pytest.raises(StackError, match=r"certificate of .* is not trusted: check pip's setting cert"):
            find("pkg", "1.0", using=Settings(indexes=(parse(secure.index),), retries=0))

    def test_a_certificate_that_the_user_named(self, secure: Server, pem: Path) -> None:
        assert find("pkg", "1.0", using=Settings(indexes=(parse(secure.index),), certificates=pem))

    def test_a_certificate_in_the_environment(self, secure: Server, pem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(pem))
        assert find("pkg", "1.0", using=Settings(indexes=(parse(secure.index),)))

    def test_a_host_that_the_user_trusts(self, secure: Server) -> None:
        index = parse(secure.index)
        for host in ("127.0.0.1", secure.url.removeprefix("https://")):
            assert find("pkg", "1.0", using=Settings(indexes=(index,), trusted_hosts=frozenset({host})))
        for host in ("127.0.0.2", "127.0.0.1:1"):
            with pytest.raises(StackError, match="not trusted"):
                find("pkg", "1.0", using=Settings(indexes=(index,), trusted_hosts=frozenset({host}), retries=0))

    def test_a_certificate_file_that_is_missing(self, secure: Server, tmp_path: Path) -> None:
        with pytest.raises(StackError, match=r"missing.pem does not exist"):
            find("pkg", "1.0", using=Settings(indexes=(parse(secure.index),), certificates=tmp_path / "missing.pem"))

    def test_plain_http_to_a_host_that_nobody_trusts(self) -> None:
        with pytest.raises(StackError, match=r"http://index.test/simple/ is not secure: .*trusted-host"):
            find("pkg", "1.0", using=Settings(indexes=(parse("http://index.test/simple"),)))


def test_a_busy_server_is_asked_again(tmp_path: Path, server: Server, using: Settings, offered: Path) -> None:
    page = server.answers["/simple/pkg/"]
    assert isinstance(page, tuple)

    def busy_once(handler: BaseHTTPRequestHandler) -> None:
        server.answers["/simple/pkg/"] = page
        handler.send_response(503)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server.answers["/simple/pkg/"] = busy_once
    assert find("pkg", "1.0", using=replace(using, retries=1))
    assert server.asked == ["/simple/pkg/"] * 2
