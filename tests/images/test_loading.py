# SPDX-License-Identifier: Apache-2.0
"""`stack image load`: an image gets into podman, an archive or a layout unchanged, or not at all."""

import gzip
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import image, loading, reference, skopeo
from stack.images.reference import Reference

from .. import system
from ..carry.world import home, template, world
from ..cli.conftest import Stack, stack
from . import bases, factories

__all__ = ["home", "stack", "template", "world"]

VERSION = {"org.opencontainers.image.version": "0.32.0+sm121.g1234"}
NAME = "localhost/stack:0.32.0-sm121.g1234"


@pytest.fixture
def layout(tmp_path: Path) -> Reference:
    factories.image(tmp_path / "image", VERSION, {"usr/bin/serve": b"#!/bin/sh\n"}, docker=True)
    return Reference(str(tmp_path / "image"), layout=True)


def archive(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as opened:
        return {member.name: opened.extractfile(member).read() for member in opened}  # type: ignore[union-attr]


def test_an_archive_has_the_layers_the_configuration_and_the_name(stack: Stack, layout: Reference, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    ran = stack("image", "load", "--image", str(layout), "--to", f"docker-archive:{file}", "--json")
    digest = skopeo.digest(image.layout.manifest(tmp_path / "image", None))
    assert json.loads(ran.out) == {
        "schema": "stack/image-load/1",
        "name": NAME,
        "digest": digest,
        "platform": "linux/amd64",
        "to": f"docker-archive:{file}",
    }
    found = archive(file)
    [listed] = json.loads(found["manifest.json"])
    assert [*found][-1] == "manifest.json"
    assert listed["RepoTags"] == [NAME]
    config = json.loads(found[listed["Config"]])
    assert [skopeo.digest(gzip.decompress(found[name])) for name in listed["Layers"]] == config["rootfs"]["diff_ids"]


def test_of_an_index_it_takes_one_platform(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (amd64, arm64) = factories.multi(tmp_path / "index", VERSION)
    source = f"oci:{tmp_path / 'index'}"
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    for options, digest in (((), arm64), (("--platform", "linux/amd64"), amd64)):
        target = tmp_path / f"one-{len(options)}"
        ran = stack("image", "load", "--image", source, "--to", f"oci:{target}", "--name", "localhost/stack:x", *options)
        assert f"digest {digest}" in ran.out.splitlines(), ran.err
        found = image.read(reference.parse(f"oci:{target}:x"))
        assert found.digest == digest
        assert len(list((target / "blobs/sha256").iterdir())) == 3
    refused = stack("image", "load", "--image", source, "--platform", "linux/s390x").refused()
    assert "has no image for linux/s390x: it has linux/amd64, linux/arm64" in refused


def test_a_damaged_layer_is_not_loaded(stack: Stack, layout: Reference, tmp_path: Path) -> None:
    [platform] = image.read(layout).platforms
    blob = tmp_path / "image/blobs/sha256" / platform.layers[0].digest.removeprefix("sha256:")
    whole = blob.read_bytes()
    file = tmp_path / "image.tar"
    for damaged, said in ((whole[:-1] + b"x", "does not match its digest"), (whole[:-1], "is incomplete")):
        blob.write_bytes(damaged)
        assert said in stack("image", "load", "--image", str(layout), "--to", f"docker-archive:{file}").refused()
        assert not file.exists()
    blob.unlink()
    assert "lacks the layer" in stack("image", "load", "--image", str(layout), "--to", f"docker-archive:{file}").refused()


def test_refusals(stack: Stack, layout: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*options: str) -> str:
        return stack("image", "load", "--image", str(layout), *options).refused()

    assert "is not a place for an image: write docker, podman," in refused("--to", "oci:")
    assert "is not a name with a tag" in refused("--name", "localhost/stack", "--to", "oci:x")
    assert "names no image" in refused("--name", "--help", "--to", "oci:x")
    assert "exists" in refused("--to", str(layout))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "podman cannot be started" in refused("--to", "podman")
    assert "neither docker nor podman is on PATH" in refused()


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}")
    (folder / name).chmod(0o755)


def test_what_a_program_says_is_shown_and_its_layers_are_compared(
    layout: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    [platform] = image.read(layout).platforms
    program(tmp_path / "bin", "docker", "echo no space left; exit 1\n")
    with pytest.raises(StackError, match="docker load failed: no space left: check that docker works"):
        loading.load(layout, platform, NAME, "docker", lambda _: None)
    program(tmp_path / "bin", "docker", """[ "$1" = load ] && exec cat > /dev/null\necho '["sha256:00"]'\n""")
    with pytest.raises(StackError, match="docker has another image"):
        loading.load(layout, platform, NAME, None, lambda _: None)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    system.demand("podman", "runc")
    with bases.storage(tmp_path / "engine") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.parametrize("docker", [True, False])
def test_podman_has_the_same_image(stack: Stack, storage: None, tmp_path: Path, docker: bool) -> None:
    factories.image(tmp_path / "image", VERSION, {"usr/bin/serve": b"#!/bin/sh\n"}, docker=docker)
    ran = stack("image", "load", "--image", f"oci:{tmp_path / 'image'}", "--to", "podman")
    assert ran.out.splitlines()[0] == f"{NAME} (linux/amd64) is in podman", ran.err
    assert ran.out.splitlines()[-2:] == [
        f"to serve: spark-stack up RECIPE --image {NAME} --engine podman",
        f"or: STACK_IMAGE={NAME} podman compose -f docker/compose.yml up",
    ]
    inspected = subprocess.run(["podman", "image", "inspect", NAME], check=True, capture_output=True, text=True).stdout
    [platform] = image.read(Reference(str(tmp_path / "image"), layout=True)).platforms
    assert json.loads(inspected)[0]["Id"] == platform.config.removeprefix("sha256:")
