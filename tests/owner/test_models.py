# SPDX-License-Identifier: Apache-2.0
"""A model is taken from Hugging Face's cache where it is whole; what it lacks is downloaded from a hub that may lie."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.owner import hub_client

from .lying_hub import COMMIT, FILES, LARGE, REPOSITORY, SMALL, TOKEN, Hub, hashed, serving
from .world import ROOT

SCRIPT = """
import dataclasses, errno, json, os, sys
from stack.base.errors import StackError
from stack.owner import download, hub_client, models
from stack.owner.state import Model
download._FIRST_PAUSE = 0.01
repository, revision, known = json.loads(sys.argv[1])
steps = []
if "FULL" in os.environ:
    count, left = download._Transfer._count, [int(os.environ["FULL"])]
    def counted(self, size):
        left[0] -= size
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count(self, size)
    download._Transfer._count = counted
def tell(step, done=0, total=None, /):
    steps.append(step)
try:
    made = models.published(hub_client.here(), repository, revision, Model(**known) if known else None, tell)
    print(json.dumps({"model": dataclasses.asdict(made), "steps": steps}))
except StackError as failed:
    print(json.dumps({"error": str(failed), "steps": steps}))
"""


@dataclass
class Owner:
    """An owner with a cache of their own."""

    folder: Path
    hub: Hub
    more: dict[str, str]

    @property
    def snapshot(self) -> Path:
        return self.folder / f"hub/models--maker--model/snapshots/{COMMIT}"

    @property
    def blobs(self) -> Path:
        return self.folder / "hub/models--maker--model/blobs"

    def command(self, known: dict[str, Any] | None = None) -> tuple[list[str], dict[str, str]]:
        env = {**os.environ, "HF_HOME": str(self.folder), "HF_ENDPOINT": self.hub.address, "HF_TOKEN": TOKEN}
        env |= {"PYTHONPATH": str(ROOT / "tools"), "HF_HUB_DISABLE_TELEMETRY": "1", **self.more}
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            env.pop(name, None)
        return [sys.executable, "-c", SCRIPT, json.dumps([REPOSITORY, COMMIT, known])], env

    def provide(self, known: dict[str, Any] | None = None) -> dict[str, Any]:
        command, env = self.command(known)
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def is_whole(self) -> bool:
        return all((self.snapshot / name).read_bytes() == FILES[name] for name in (*LARGE, *SMALL))


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    with serving() as hub:
        yield Owner(tmp_path / "hf", hub, {})


def test_what_a_server_reads_is_downloaded(owner: Owner) -> None:
    found = owner.provide()
    model = found["model"]
    assert (model["folder"], model["repository"], model["revision"]) == (str(owner.snapshot), REPOSITORY, COMMIT)
    assert owner.is_whole()
    assert sorted(path.name for path in owner.snapshot.iterdir()) == sorted((*LARGE, *SMALL))
    assert f"downloading {REPOSITORY}" in found["steps"]


def test_a_whole_cache_needs_no_network(owner: Owner) -> None:
    model = owner.provide()["model"]
    owner.hub.asked.clear()
    found = owner.provide()
    assert found["model"] == model
    assert found["steps"].count("checking the model's hashes") > 0
    found = owner.provide(model)
    assert (found["model"], found["steps"]) == (model, [])
    owner.more["HF_HUB_OFFLINE"] = "1"
    assert owner.provide()["model"] == model
    assert owner.hub.asked == []


def test_offline_with_a_gap(owner: Owner) -> None:
    owner.more["HF_HUB_OFFLINE"] = "1"
    assert "HF_HUB_OFFLINE is set" in owner.provide()["error"]
    assert owner.hub.asked == []


def test_a_lost_connection_goes_on_where_it_was(owner: Owner) -> None:
    first = next(iter(LARGE))
    owner.hub.breaks[first] = [100_000, 100_000]
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()
    ranges = [asked for method, path, asked, _ in owner.hub.asked if method == "GET" and path.endswith(first)]
    assert ranges[0] is None
    assert all(asked is not None for asked in ranges[1:])


def test_a_lost_network_is_said_and_the_next_call_goes_on(owner: Owner) -> None:
    first = next(iter(LARGE))
    owner.hub.breaks[first] = [100_000, *[0] * 99]
    error = owner.provide()["error"]
    assert "run the command again: it goes on where it was" in error
    owner.hub.breaks.clear()
    owner.hub.asked.clear()
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()
    ranges = [asked for method, path, asked, _ in owner.hub.asked if method == "GET" and path.endswith(first)]
    assert ranges == ["bytes=100000-"]


def test_no_hub_at_all(owner: Owner) -> None:
    owner.hub.down = True
    assert "cannot be downloaded" in owner.provide()["error"]


@pytest.mark.parametrize("name", ["config.json", next(iter(LARGE))])
def test_wrong_bytes_are_never_served(owner: Owner, name: str) -> None:
    owner.hub.change = lambda file, data: bytes([data[0] ^ 1]) + data[1:] if file == name else data
    found = owner.provide()
    assert found["error"].startswith(f"{name} of {REPOSITORY} arrives with other bytes than the hub names"), found
    assert owner.hub.downloads().count(name) == 2
    assert not (owner.snapshot / name).exists()
    owner.hub.change = lambda _, data: data
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()


@pytest.mark.parametrize("much", [-1000, 1000])
def test_a_wrong_size(owner: Owner, much: int) -> None:
    name = next(iter(LARGE))
    owner.hub.size = lambda file, size: size + much if file == name else size
    found = owner.provide()
    assert "error" in found or owner.is_whole()
    owner.hub.size = lambda _, size: size
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()


def test_the_token_stays_with_its_host(owner: Owner) -> None:
    with serving() as other:
        owner.hub.other = other.address.replace("127.0.0.1", "localhost")
        assert owner.provide()["model"]["revision"] == COMMIT
        assert owner.is_whole()
        assert {*other.downloads()} == {*LARGE}
        assert {authorization for *_, authorization in other.asked} == {None}
    assert f"Bearer {TOKEN}" in {authorization for *_, authorization in owner.hub.asked}


@pytest.mark.parametrize("moved", ["http://[bad", "https://elsewhere.example:99999/", "ftp://elsewhere.example/"])
def test_a_redirect_to_nowhere(owner: Owner, moved: str) -> None:
    owner.hub.moved = moved
    assert re.fullmatch(".* redirects to .*: unset HF_ENDPOINT, or ask its owner", owner.provide()["error"])


def test_a_redirect_keeps_the_encryption() -> None:
    assert hub_client._target("https://hub.example/a", "/b") == "https://hub.example/b"
    with pytest.raises(StackError, match=r"the hub redirects to 'http://hub\.example/b'"):
        hub_client._target("https://hub.example/a", "http://hub.example/b")


def test_a_size_without_end() -> None:
    size = "9" * 4000
    file = {"rfilename": "model.safetensors", "size": int(size), "blobId": "1" * 40}
    with pytest.raises(StackError, match=r"the hub names no hash or size of model\.safetensors"):
        hub_client._read({"sha": COMMIT, "siblings": [file]}, REPOSITORY, COMMIT)


def test_a_token_that_cannot_be_sent_is_not_shown(owner: Owner) -> None:
    """A token read from a file with Windows line ends has a carriage return at its end."""
    owner.more["HF_TOKEN"] = f"{TOKEN}\r"
    assert owner.provide()["model"]["revision"] == COMMIT
    assert f"Bearer {TOKEN}" in {authorization for *_, authorization in owner.hub.asked}
    owner.more |= {"HF_TOKEN": f"{TOKEN}\rX", "HF_HOME": f"{owner.folder}2"}
    error = owner.provide()["error"]
    assert error.startswith("the API key or token has a blank or a special character")
    assert TOKEN not in error


@pytest.mark.parametrize("name", ["tokenizer.json", next(iter(LARGE))])
def test_a_damaged_cache_is_mended(owner: Owner, name: str) -> None:
    model = owner.provide()["model"]
    blob = owner.blobs / hashed(name)
    data = bytearray(blob.read_bytes())
    data[1] ^= 1
    blob.write_bytes(data)
    owner.more["HF_HUB_OFFLINE"] = "1"
    assert "is damaged, and HF_HUB_OFFLINE is set" in owner.provide(model)["error"]
    del owner.more["HF_HUB_OFFLINE"]
    owner.hub.asked.clear()
    assert owner.provide(model)["model"]["revision"] == COMMIT
    assert owner.hub.downloads() == [name]
    assert owner.is_whole()


@pytest.mark.parametrize("name", ["tokenizer.json", next(iter(LARGE))])
def test_a_damaged_blob_of_another_revision_is_mended(owner: Owner, name: str) -> None:
    """It has the right size, and no file of this revision leads to it yet."""
    owner.blobs.mkdir(parents=True)
    (owner.blobs / hashed(name)).write_bytes(bytes(len(FILES[name])))
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()


def test_a_part_that_is_missing_is_downloaded(owner: Owner) -> None:
    owner.provide()
    name = list(LARGE)[1]
    (owner.snapshot / name).unlink()
    (owner.blobs / hashed(name)).unlink()
    owner.hub.asked.clear()
    owner.provide()
    assert owner.hub.downloads() == [name]
    assert owner.is_whole()


@pytest.mark.parametrize("room", range(0, 700_000, 140_000))
def test_a_full_disk(owner: Owner, room: int) -> None:
    owner.more["FULL"] = str(room)
    assert (
        owner.provide().get("error", "").startswith("the disk is full: make room, then run the command again")
        or owner.is_whole()
    )
    del owner.more["FULL"]
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()


LOCAL = "from huggingface_hub import snapshot_download as get; print(get({!r}, revision={!r}, allow_patterns={}, local_files_only={}))"


def hugging_face(owner: Owner, *, local: bool) -> str:
    """The folder in which Hugging Face's own library finds the model."""
    code = LOCAL.format(REPOSITORY, COMMIT, ["*.json", "*.safetensors"], local)
    _, env = owner.command()
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_other_programs_find_what_was_downloaded(owner: Owner) -> None:
    owner.provide()
    owner.hub.asked.clear()
    assert Path(hugging_face(owner, local=True)) == owner.snapshot
    hugging_face(owner, local=False)
    assert not {*owner.hub.downloads()} & {*LARGE, *SMALL}


def test_what_other_programs_have_downloaded_is_used(owner: Owner) -> None:
    hugging_face(owner, local=False)
    owner.hub.asked.clear()
    assert owner.provide()["model"]["folder"] == str(owner.snapshot)
    assert owner.hub.asked == []


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(owner: Owner) -> None:
    """Twelve kills in a row at growing moments, then to the end: the model is whole."""
    for moment in range(12):
        command, env = owner.command()
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.3 + moment * 0.05)
        process.kill()
        process.wait()
    assert owner.provide()["model"]["revision"] == COMMIT
    assert owner.is_whole()
