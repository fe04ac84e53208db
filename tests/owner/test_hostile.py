# SPDX-License-Identifier: Apache-2.0
"""A registry, a port, a mirror or a log that lies does no harm to an owner."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.base import addresses
from stack.base.errors import StackError
from stack.owner import hub_client

from .world import ONE, RECIPE, TWO, World, digest, images


def created(world: World, **times: str) -> None:
    """Give the images `one` and `two` of the registry the time at which they were made."""
    listed = images()
    for name, image in (("one", ONE), ("two", TWO)):
        listed[image]["created"] = times[name]
    (world.engine / "images.json").write_text(json.dumps(listed))


def test_an_older_image_is_refused(world: World) -> None:
    created(world, one="2026-11-20T10:00:00Z", two="2026-11-20T11:30:00+02:00")
    world.run(*world.up())
    ran = world.run("update", "--image", TWO)
    assert (ran.code, world.running()) == (2, ONE), ran
    pinned = f"{TWO.rpartition(':')[0]}@{digest(f'digest {TWO}')}"
    assert f"{TWO} is older than the image that runs" in ran.err
    assert f"--image {pinned}" in ran.err
    assert world.known().work is None
    assert (world.run("update", "--image", pinned).code, world.running()) == (0, TWO)
    world.run("rollback")
    assert (world.run("update", "--image", TWO, "--older").code, world.running()) == (0, TWO)


@pytest.mark.parametrize("times", [{"one": "2026-11-20T10:00:00Z", "two": "2026-11-20T10:00:00.5Z"}, {"one": "x", "two": "y"}])
def test_an_image_that_is_not_older(world: World, times: dict[str, str]) -> None:
    created(world, **times)
    world.run(*world.up())
    assert (world.run("update", "--image", TWO).code, world.running()) == (0, TWO)


@pytest.fixture(name="key")
def _key(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("stack.owner.images._verified", lambda where, _key: images()[where.shown]["digest"])
    monkeypatch.setattr("stack.images.envelope.public", lambda _key: None)
    file = world.folder / "release.pub.pem"
    file.write_text("a public key")
    return file


def test_a_key_for_the_same_digest_is_recorded(world: World, key: Path) -> None:
    world.run(*world.up())
    before = world.containers()
    assert world.run("update", "--key", key).code == 0
    now = world.known().now
    assert now is not None and now.image.key == str(key)
    assert "verified with" in world.run("status").out
    assert world.run("up").code == 0
    assert world.containers() == before  # it runs on, with the volume that it has


def volumes(world: World) -> set[str]:
    return {file.stem for file in (world.engine / "volumes").glob("*.label")}


def test_images_of_a_key_share_compiled_code(world: World, key: Path) -> None:
    world.run(*world.up(ONE, "--key", key))
    [shared] = volumes(world)
    assert shared.startswith("stack-server-cache-key-")
    ran = world.run("update", "--image", TWO)
    assert (ran.code, volumes(world), "removed" in ran.err) == (0, {shared}, False)


def test_an_image_without_a_signature_has_a_volume_of_its_own(world: World) -> None:
    first, second = (f"stack-server-cache-image-{digest(f'digest {image}')[7:19]}" for image in (ONE, TWO))
    world.run(*world.up())
    assert volumes(world) == {first}
    world.run("update", "--image", TWO)
    assert volumes(world) == {first, second}
    pinned = f"{ONE.rpartition(':')[0]}@{digest(f'digest {ONE}')}"
    ran = world.run("update", "--image", pinned, "--keep-free", "0.001")
    assert (ran.code, volumes(world)) == (0, {first, second})
    ran = world.run("update", "--keep-free", "0.002")
    assert (ran.code, volumes(world)) == (0, {first})
    assert "removed 1 volume with compiled code of images that are not kept" in ran.err


def test_down_with_all(world: World) -> None:
    theirs = world.engine / "volumes/stack-server-cache-image-theirs"
    theirs.touch()
    theirs.with_name(f"{theirs.name}.label").write_text("stack.user=12345")
    world.run(*world.up())
    world.run("update", "--image", TWO)
    ran = world.run("down", "--all")
    assert ran.code == 0, ran
    assert (volumes(world), [*(world.engine / "pulled").iterdir()]) == ({theirs.name}, [])
    assert (world.run("status").out.startswith("There is no server yet."), world.model.exists()) == (True, True)


@contextmanager
def listening(port: int, answer: dict[str, object]) -> Iterator[None]:
    """Something else at the server's port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "it lists no model"),
        ({"data": []}, "it serves no model"),
        (
            {"data": [{"id": "other/model\x1b[2J"}]},
            "it serves other/model?[2J, and the recipe gpt-oss-20b-spark has openai/gpt-oss-20b",
        ),
    ],
)
def test_something_else_answers_at_the_port(world: World, answer: dict[str, object], why: str) -> None:
    world.run(*world.up())
    text = world.file.read_text().replace(f'"recipe": "{RECIPE}"', '"recipe": "gpt-oss-20b-spark"')
    other = addresses.free_port()
    world.file.write_text(text.replace(f'"port": {world.port}', f'"port": {other}'))
    with listening(other, answer):
        ran = world.run("status")
    assert ran.out.startswith("gpt-oss-20b-spark does not answer as it should"), ran
    assert why in ran.out


def test_a_server_that_wants_a_key_is_asked_with_that_of_its_container(world: World) -> None:
    world.environment["VLLM_API_KEY"] = "open-sesame"
    world.run(*world.up())
    world.environment["VLLM_API_KEY"] = ""
    ran = world.run("status")
    assert ran.out.startswith(f"{RECIPE} answers")
    assert "open-sesame" not in ran.out


def test_the_log_of_a_healthy_server_is_no_log_of_a_failed_start(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(*world.up())

    def fails(*_: object, **__: object) -> None:
        raise StackError("no node", "none")

    monkeypatch.setattr("stack.owner.server.containers.is_wanted", fails)
    assert world.run("update", "--image", TWO).code == 2
    assert not world.file.with_name("failed-start.log").exists()


def test_control_characters_of_a_log_are_not_printed(world: World) -> None:
    world.run(*world.up())
    with (world.engine / "stack-server.log").open("ab") as log:
        log.write(b"\x1b]0;title\x07 and \x9b2J\n")
    assert world.run("logs", "--no-follow", "--lines", "1").out.splitlines()[-1] == "?]0;title? and \ufffd2J"


@pytest.mark.parametrize(
    "address", ["http://mirror.example", "ftp://mirror.example", "https://", "mirror", "http://[::1", "http://10.0.0.1"]
)
def test_a_mirror_without_encryption_gets_no_token(world: World, address: str) -> None:
    with pytest.raises(StackError, match="HF_ENDPOINT is"):
        hub_client.here({"HF_ENDPOINT": address, "HF_TOKEN": "secret"})
    world.environment.update({"HF_ENDPOINT": address, "HF_TOKEN": "secret"})
    ran = world.run("up", "gpt-oss-20b-spark", "--image", ONE, "--allow-fallback")
    assert (ran.code, "secret" in ran.err) == (2, False)


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:1", "https://mirror.example/"])
def test_a_mirror_that_is_used(address: str) -> None:
    assert hub_client.here({"HF_ENDPOINT": address}).address == address.rstrip("/")
