# SPDX-License-Identifier: Apache-2.0
"""Requests to a registry: logins, tokens, redirects, and plain HTTP; each server is on loopback."""

import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import layout, registry_login, skopeo
from stack.images.layout import INDEX, MANIFEST
from stack.images.reference import Reference
from stack.images.registry_client import ChangedError, RegistryClient, Tagged
from stack.images.registry_login import Login
from tests.loopback import Patient, listening

DATA = layout.encode({"schemaVersion": 2, "mediaType": MANIFEST, "layers": []})
Request = tuple[str, str, str]
"""Method, path and authorization."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a home of their own, and no login."""
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@contextmanager
def serving(answer: Callable[[Patient, Request], None]) -> Iterator[tuple[str, list[Request]]]:
    """A server; gives its host, and what it was asked."""
    seen: list[Request] = []

    class Handler(Patient):
        def any(self) -> None:
            self.body = self.sent()
            request = (self.command, self.path, self.headers.get("Authorization", ""))
            seen.append(request)
            answer(self, request)

        do_GET = do_HEAD = do_POST = do_PUT = any

    with listening(Handler) as port:
        yield f"127.0.0.1:{port}", seen


def reply(handler: Patient, status: int, data: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(data)


def client(host: str, *, push: bool = False) -> RegistryClient:
    return RegistryClient(Reference(f"{host}/you/image"), tls=False, push=push)


def login(file: Path, **entries: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(entries))


def auth(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def basic(user: str, password: str) -> str:
    return f"Basic {auth(user, password)['auth']}"


def test_a_registry_that_wants_a_token_gets_one(home: Path) -> None:
    """As ghcr.io and Docker Hub do it."""

    def tokens(handler: Patient, request: Request) -> None:
        assert request[2] == basic("ada", "secret")
        reply(handler, 200, json.dumps({"token": "for-you"}).encode())

    with serving(tokens) as (issuer, asked):

        def registry(handler: Patient, request: Request) -> None:
            if request[2] != "Bearer for-you":
                reply(
                    handler,
                    401,
                    WWW_Authenticate=f'Bearer realm="http://{issuer}/token",service="it",scope="repository:x:pull"',
                )
            else:
                reply(handler, 200, DATA, ETag='"mark"')

        with serving(registry) as (host, seen):
            login(home / ".docker/config.json", auths={host: auth("ada", "secret")})
            with client(host) as one:
                assert one.manifest("1.0") == Tagged(DATA, '"mark"')
                assert one.manifest(skopeo.digest(DATA)).data == DATA
            assert [request[2] for request in seen] == ["", "Bearer for-you", "Bearer for-you"]
            with client(host, push=True) as one:
                one.manifest("1.0")
            read, write = (
                "/token?service=it&scope=repository%3Ax%3Apull",
                "/token?service=it&scope=repository%3Ax%3Apull%2Cpush",
            )
            assert [request[1] for request in asked] == [read, write]


def test_without_a_login_a_public_image_can_be_read_and_a_private_one_says_so() -> None:
    def registry(handler: Patient, request: Request) -> None:
        reply(handler, 401, WWW_Authenticate='Basic realm="it"')

    with serving(registry) as (host, seen), client(host) as one:
        with pytest.raises(skopeo.Refused, match="skopeo login"):
            one.manifest("1.0")
        assert len(seen) == 1


def test_a_password_does_not_leave_for_a_server_without_tls(home: Path) -> None:
    with serving(lambda handler, request: reply(handler, 200, b"{}")) as (issuer, asked):
        made = RegistryClient(Reference("registry.invalid/you/image"))
        made._login, made._known = Login("ada", "secret"), True
        assert not made._authorized(f'Bearer realm="http://{issuer}/token",service="it"')
        assert asked == []


def test_the_login_of_netrc_is_not_sent(home: Path) -> None:
    (home / ".netrc").write_text("machine 127.0.0.1 login netrc password secret\n")
    (home / ".netrc").chmod(0o600)
    with serving(lambda handler, request: reply(handler, 200, DATA)) as (host, seen), client(host) as one:
        one.manifest("1.0")
        assert [request[2] for request in seen] == [""]


def test_a_blob_that_another_server_has_is_fetched_without_the_login(home: Path) -> None:
    blob = b"content"
    with serving(lambda handler, request: reply(handler, 200, blob)) as (elsewhere, asked):
        # Another host, by name: a redirect to another port of one host keeps a login.
        place = elsewhere.replace("127.0.0.1", "localhost")

        def registry(handler: Patient, request: Request) -> None:
            if not request[2]:
                reply(handler, 401, WWW_Authenticate='Basic realm="it"')
            else:
                reply(handler, 307, Location=f"http://{place}/stored")

        with serving(registry) as (host, _):
            login(home / ".config/containers/auth.json", auths={host: auth("ada", "secret")})
            with client(host) as one:
                assert one.blob(skopeo.digest(blob), len(blob)) == blob
        assert asked == [("GET", "/stored", "")]


def test_what_does_not_match_is_refused() -> None:
    with serving(lambda handler, request: reply(handler, 200, DATA)) as (host, _), client(host) as one:
        with pytest.raises(StackError, match="has another digest"):
            one.manifest("sha256:" + "a" * 64)
        with pytest.raises(StackError, match="does not match its digest"):
            one.blob("sha256:" + "a" * 64, len(DATA))
        with pytest.raises(StackError, match="more than"):
            one.blob("sha256:" + "a" * 64, len(DATA) - 1)
        with pytest.raises(StackError, match="bytes, more than"):
            one.blob("sha256:" + "a" * 64, 1 << 40)


@pytest.mark.parametrize(("status", "error"), [(404, skopeo.Absent), (403, skopeo.Refused), (500, StackError)])
def test_each_refusal_has_its_error(status: int, error: type[StackError]) -> None:
    with serving(lambda handler, request: reply(handler, status)) as (host, _), client(host) as one:
        with pytest.raises(error):
            one.manifest("1.0")
        with pytest.raises(error):
            one.put_blob(b"x")


def test_a_tag_that_was_changed_is_told_apart() -> None:
    with serving(lambda handler, request: reply(handler, 412)) as (host, _), client(host) as one, pytest.raises(ChangedError):
        one.put_manifest("1.0", DATA, MANIFEST, before=Tagged(b"", '"old"'))


@pytest.mark.parametrize("answer", [404, 405, 200])
def test_a_registry_without_referrers_is_known_by_its_answer(answer: int) -> None:
    with serving(lambda handler, request: reply(handler, answer, b"<html>")) as (host, _), client(host) as one:
        assert one.referrers("sha256:" + "a" * 64) is None


def test_pages_of_referrers_stay_in_the_repository() -> None:
    def registry(handler: Patient, request: Request) -> None:
        reply(handler, 200, b'{"manifests": []}', Content_Type=INDEX, Link='<http://elsewhere.invalid/>; rel="next"')

    with serving(registry) as (host, seen), client(host) as one:
        assert one.referrers("sha256:" + "a" * 64) == [b'{"manifests": []}']
        assert len(seen) == 1

    def endless(handler: Patient, request: Request) -> None:
        reply(handler, 200, b"{}", Content_Type=INDEX, Link=f'<{handler.path}>; rel="next"')

    with serving(endless) as (host, seen), client(host) as one:
        assert len(one.referrers("sha256:" + "a" * 64) or []) == len(seen) == 32


def test_nobody_at_the_address_is_said_in_one_line() -> None:
    with client("127.0.0.1:1") as one, pytest.raises(skopeo.Unreachable, match="cannot be reached"):
        one.manifest("1.0")


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("ghcr.io/you/image", "https://ghcr.io/v2/you/image/"),
        ("localhost/you/image", "https://localhost/v2/you/image/"),
        ("registry:5000/image", "https://registry:5000/v2/image/"),
        ("vllm/vllm-openai", "https://registry-1.docker.io/v2/vllm/vllm-openai/"),
        ("docker.io/vllm/vllm-openai", "https://registry-1.docker.io/v2/vllm/vllm-openai/"),
        ("debian", "https://registry-1.docker.io/v2/library/debian/"),
    ],
)
def test_a_short_name_is_one_of_dockers(name: str, address: str) -> None:
    assert RegistryClient(Reference(name))._base == address


def test_logins_are_found_in_the_order_of_containers_and_docker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = "ghcr.io"
    login(home / ".docker/config.json", auths={host: auth("docker", "1"), "https://index.docker.io/v1/": auth("hub", "1")})
    assert registry_login.find(f"{host}/you/image") == Login("docker", "1")
    assert registry_login.find("docker.io/library/debian") == Login("hub", "1")
    assert registry_login.find("quay.io/you/image") is None
    login(home / ".config/containers/auth.json", auths={host: auth("podman", "2"), f"{host}/you": auth("you", "3")})
    assert registry_login.find(f"{host}/you/image") == Login("you", "3")
    assert registry_login.find(f"{host}/others/image") == Login("podman", "2")
    named = home / "named.json"
    login(named, auths={host: auth("named", "4:5")})
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(named))
    assert registry_login.find(f"{host}/you/image") == Login("named", "4:5")
    assert "4:5" not in repr(registry_login.find(f"{host}/you/image"))
    for damaged in ("", "[]", '{"auths": []}', '{"auths": {"ghcr.io": {"auth": "%"}}}', '{"credHelpers": {"ghcr.io": "../x"}}'):
        named.write_text(damaged)
        assert registry_login.find(f"{host}/you/image") is None


def test_a_credential_helper_of_docker_is_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = home / "bin/docker-credential-mine"
    helper.parent.mkdir()
    helper.write_text(
        '#!/bin/sh\nread name || true\nprintf \'{"ServerURL": "%s", "Username": "ada", "Secret": "secret"}\' "$name"\n'
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{helper.parent}{os.pathsep}{os.environ['PATH']}")
    file = home / ".docker/config.json"
    login(file, credHelpers={"ghcr.io": "mine"})
    assert registry_login.find("ghcr.io/you/image") == Login("ada", "secret")
    login(file, auths={"ghcr.io": {}}, credsStore="mine")
    assert registry_login.find("ghcr.io/you/image") == Login("ada", "secret")
    helper.write_text("#!/bin/sh\necho no\n")
    with pytest.raises(StackError, match="gives no login"):
        registry_login.find("ghcr.io/you/image")
    login(file, credHelpers={"ghcr.io": "missing"})
    with pytest.raises(StackError, match="docker-credential-missing gives no login"):
        registry_login.find("ghcr.io/you/image")
