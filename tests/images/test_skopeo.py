# SPDX-License-Identifier: Apache-2.0
"""skopeo against a real registry: what is there, absent, refused and out of reach."""

import os
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import layout, reference, skopeo
from tests import system
from tests.images import factories
from tests.images.registry import Registry, environment, free_port


def test_a_copy_keeps_its_digest_and_comes_back(registry: Registry, tmp_path: Path) -> None:
    made = factories.image(tmp_path / "image", {"a": "b"})
    name, written = f"{registry.host}/some/copied", tmp_path / "digest"
    skopeo.copy(f"oci:{tmp_path / 'image'}", f"{name}@{made}", digest_file=written)
    assert written.read_text() == made
    with pytest.raises(skopeo.Absent):
        skopeo.tags(name)  # pushed by its digest, it has no tag
    skopeo.copy(f"{name}@{made}", f"{name}:1.0")
    assert skopeo.tags(name) == ("1.0",)
    assert skopeo.digest(skopeo.raw(f"docker://{name}:1.0")) == made
    assert b'"Labels":{"a":"b"}' in skopeo.config(f"{name}:1.0")


def test_an_index_is_copied_with_all_its_images(registry: Registry, tmp_path: Path) -> None:
    made, platforms = factories.multi(tmp_path / "image", {})
    name = f"{registry.host}/index"
    skopeo.copy(f"oci:{tmp_path / 'image'}", f"{name}:both", all_=True)
    assert skopeo.digest(skopeo.raw(f"{name}:both")) == made
    for one in platforms:
        assert skopeo.digest(skopeo.raw(f"{name}@{one}")) == one


def test_absent_is_told_from_refused_and_from_out_of_reach(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factories.image(tmp_path / "image", {})
    skopeo.copy(f"oci:{tmp_path / 'image'}", f"{registry.host}/there:1")
    for name in ("there:2", "there:unauthorized", "never:1", f"there@sha256:{'0' * 64}"):
        with pytest.raises(skopeo.Absent, match="does not exist"):
            skopeo.raw(f"{registry.host}/{name}")
    nobody = f"127.0.0.1:{free_port()}/there:1"
    with pytest.raises(skopeo.Unreachable, match="connection refused"):
        skopeo.raw(nobody)
    for key, value in environment(tmp_path, registry.host, password="wrong-horse").items():
        if key != "SSL_CERT_FILE":
            monkeypatch.setenv(key, value)
    with pytest.raises(skopeo.Refused, match="skopeo login") as refused:
        skopeo.raw(f"{registry.host}/there:1")
    assert "wrong-horse" not in str(refused.value)
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    with pytest.raises(skopeo.Unreachable, match="certificate"):
        skopeo.raw(f"{registry.host}/there:1")


def test_without_tls_verification_only_when_asked(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = factories.image(tmp_path / "image", {})
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    skopeo.copy(f"oci:{tmp_path / 'image'}", f"{registry.host}/loose:1", tls=False)
    assert skopeo.digest(skopeo.raw(f"{registry.host}/loose:1", tls=False)) == made
    assert skopeo.tags(f"{registry.host}/loose", tls=False) == ("1",)


@pytest.mark.images
def test_a_layout_is_read_without_a_registry(tmp_path: Path) -> None:
    system.demand("skopeo")
    made = factories.image(tmp_path / "image", {})
    assert skopeo.digest(skopeo.raw(f"oci:{tmp_path / 'image'}")) == made
    with pytest.raises(skopeo.Absent):
        skopeo.raw(f"oci:{tmp_path / 'image'}:other")


def test_without_skopeo_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="apt-get install skopeo"):
        skopeo.raw("host/name:tag")


@pytest.mark.parametrize(
    "text",
    [
        "--tls-verify=false",
        "docker://--help",
        "host/name tag",
        "user:secret@host/name:1",
        "dir:/etc",
        "docker-archive:/tmp/x",
        "host/NAME:1",
        "host/name@sha256:12",
        "host/../name:1",
        "oci:a:b:c",
        "host/name:tag\n",
        "",
    ],
)
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(StackError, match="names no image"):
        reference.parse(text)


def test_a_tag_beside_a_digest_would_be_overlooked() -> None:
    with pytest.raises(StackError, match="a tag and a digest"):
        reference.parse(f"host/name:1@sha256:{'a' * 64}")


@pytest.mark.parametrize("text", ["a b", "", ".x", "a" * 129, "sha256-" + "a" * 64, "-f", "x/y"])
def test_what_is_no_tag_is_refused(text: str) -> None:
    with pytest.raises(StackError):
        reference.tag(text)


@pytest.mark.parametrize(
    "text",
    ["ubuntu:24.04", "host:5000/a/b_c:1.0", f"[::1]:5000/x@sha256:{'a' * 64}", "docker.io/library/debian", "oci:/a b/c:1"],
)
def test_references_are_written_as_they_are_read(text: str) -> None:
    assert reference.parse(text).shown == text
    assert reference.parse(str(reference.parse(text))) == reference.parse(text)


@pytest.mark.parametrize("name", ["sha256:../../../etc/passwd", "../x", "md5:" + "a" * 64])
def test_a_digest_that_is_none_names_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(StackError, match="is not a digest"):
        layout.blob(tmp_path, name)


def test_a_blob_that_was_changed_is_not_read(tmp_path: Path) -> None:
    name = str(layout.put(tmp_path, b"data", "text/plain")["digest"])
    assert layout.blob(tmp_path, name) == b"data"
    layout.place(tmp_path, name).write_bytes(b"Data")
    with pytest.raises(StackError, match="does not match its digest"):
        layout.blob(tmp_path, name)
