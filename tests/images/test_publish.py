# SPDX-License-Identifier: Apache-2.0
"""Publishing to a real registry, and what cosign says of it."""

import json
import subprocess
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import attached, bundle, envelope, image, labels, layout, pulling, referrers, skopeo, statement, verify
from stack.images.envelope import Signer
from stack.images.publish import NotAdmittedError, publish
from stack.images.reference import Reference

from ..validation.factories import VERSIONS
from . import factories, newer
from .world import World

KINDS = (statement.PROVENANCE, statement.SUMMARY, statement.CYCLONEDX, statement.VERDICT)


def key(world: World, name: str = "release") -> "envelope.SSlibKey":
    return envelope.public(world.root / f"{name}.pub.pem")


COSIGNS = {
    "cosign 2": ("trixie", ()),
    "cosign 2 with bundles": ("trixie", ("--new-bundle-format", "--trusted-root=roots.json")),
    "cosign 3": ("forky", ("--trusted-root=roots.json",)),
}
"""Debian's suite with a version of cosign, and its options. Without roots of trust in a file, cosign asks for those of sigstore.dev."""
NO_ROOTS = '{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}'


def cosigned(
    world: World, name: str, kind: str, pem: str = "release.pub.pem", version: str = "cosign 2"
) -> subprocess.CompletedProcess[str]:
    """cosign's word on an attestation; there is no transparency log here."""
    suite, more = COSIGNS[version]
    options = ["--key", str(world.root / pem), "--type", kind, "--insecure-ignore-tlog=true", *more]
    program = newer.program("cosign", suite) / "usr/bin/cosign"
    command = [str(program), "verify-attestation", *options, f"{world.host}/{name}"]
    (world.root / "roots.json").write_text(NO_ROOTS)
    return subprocess.run(command, cwd=world.root, capture_output=True, text=True, check=False)


def test_what_is_published_verifies(world: World) -> None:
    digest = world.image()
    published = world.publish("one:1.0", world.verdict(digest), moves=("latest",))
    assert published.digest == digest
    assert published.new
    report = verify.verify(world.name("one:1.0"), world.stack, key(world))
    assert report.holds, report.problems
    assert report.claims.gates == ("cpu",)
    assert report.claims.names == (f"{world.host}/one:1.0",)
    assert {one.kind for one in report.claims.statements} == {*KINDS}
    assert image.read(world.name("one:latest")).digest == digest
    again = world.publish("one:1.0", world.root / "v.json", moves=("latest",))
    assert not again.new
    assert len(verify.claims(report.image, key(world)).statements) == len(KINDS)


def test_the_attested_verdict_is_the_judged_one(world: World) -> None:
    """Somebody edits the verdict's file after it was judged."""
    file = world.verdict(world.image({"edited": b"late"}))
    judged = json.loads(file.read_bytes())

    def edit(step: str) -> None:
        if step == "look at the registry":
            file.write_bytes(b"{}")

    publish(world.asked("edited:1.0", file), world.stack, world.signer, edit)
    report = verify.verify(world.name("edited:1.0"), world.stack, key(world))
    assert report.holds, report.problems
    assert [one.predicate for one in report.claims.of(statement.VERDICT)] == [judged]


@pytest.mark.parametrize("pem", ["release", "edwards"])
def test_cosign_verifies_what_is_published(world: World, pem: str) -> None:
    digest = world.image({"key": pem.encode()})
    signer = envelope.signer(world.root / f"{pem}.pem")
    publish(world.asked(f"cosigned-{pem}:1.0", world.verdict(digest)), world.stack, signer, lambda _: None)
    for version in COSIGNS:
        for kind in KINDS:
            good = cosigned(world, f"cosigned-{pem}:1.0", kind, f"{pem}.pub.pem", version)
            assert good.returncode == 0, f"{version}: {good.stderr}"
            assert json.loads(good.stdout.splitlines()[0])["payloadType"] == envelope.PAYLOAD
        bad = cosigned(world, f"cosigned-{pem}:1.0", statement.PROVENANCE, "other.pub.pem", version)
        assert bad.returncode != 0
        none = cosigned(world, f"cosigned-{pem}:1.0", statement.SPDX, f"{pem}.pub.pem", version)
        assert none.returncode != 0


def test_referrers_are_listed_by_the_tag_schema(world: World) -> None:
    digest = world.image()
    world.publish("referred:1.0", world.verdict(digest))
    index = json.loads(skopeo.raw(world.name(f"referred:{referrers.tag(digest)}")))
    bundled = index["manifests"]
    assert {each["annotations"][referrers.PREDICATE] for each in bundled} == {*KINDS}
    for entry in bundled:
        artifact = json.loads(skopeo.raw(world.name(f"referred@{entry['digest']}")))
        assert artifact["artifactType"] == entry["artifactType"] == bundle.TYPE
        assert artifact["annotations"] == entry["annotations"]
        assert artifact["subject"]["digest"] == digest
        assert [layer["mediaType"] for layer in artifact["layers"]] == [bundle.TYPE]
    earlier = json.loads(skopeo.raw(world.name(f"referred:{attached.attestations(digest)}")))
    assert {each["annotations"]["predicateType"] for each in earlier["layers"]} == {*KINDS}


def test_an_index_is_published_when_each_platform_has_passed(world: World) -> None:
    whole, platforms = factories.multi(world.layout, labels.of(world.stack))
    first, second = (
        world.verdict(one, f"{place}.json", versions=VERSIONS | {"place": str(place)}) for place, one in enumerate(platforms)
    )
    with pytest.raises(NotAdmittedError, match="linux/arm64"):
        world.publish("multi:1.0", first)
    with pytest.raises(NotAdmittedError, match="it is for the image"):
        world.publish("multi:1.0", first, second, world.verdict(whole, "whole.json"))
    world.publish("multi:1.0", first, second)
    report = verify.verify(world.name("multi:1.0"), world.stack, key(world))
    assert report.holds, report.problems
    assert [one.name for one in report.image.platforms] == ["linux/amd64", "linux/arm64"]
    # The statements are on each platform's image, too.
    assert all({whole, *platforms} == {*one.subjects} for one in report.claims.statements)


def test_dockers_manifests_keep_their_digest(world: World, tmp_path: Path) -> None:
    digest = factories.image(world.layout, labels.of(world.stack), {"a": b"docker"}, docker=True)
    world.publish("docker:1.0", world.verdict(digest))
    saved = pulling.save(world.name("docker:1.0"), tmp_path / "saved")
    report = verify.verify(saved, world.stack, key(world))
    assert report.holds, report.problems
    assert report.image.digest == digest


def test_a_saved_image_verifies_without_its_registry(world: World, tmp_path: Path) -> None:
    digest = world.image()
    world.publish("saved:1.0", world.verdict(digest))
    saved = pulling.save(world.name("saved:1.0"), tmp_path / "saved")
    assert verify.verify(saved, world.stack, key(world)).holds
    with pytest.raises(StackError, match="saved exists"):
        pulling.save(world.name("saved:1.0"), tmp_path / "saved")
    for blob in layout.blobs(tmp_path / "saved"):
        data = layout.blob(tmp_path / "saved", blob)
        if b"payloadType" in data:
            layout.place(tmp_path / "saved", blob).write_bytes(data.replace(b'"sig":"', b'"sig":"A'))
    with pytest.raises(StackError, match="does not match its digest"):
        verify.verify(saved, world.stack, key(world))


def test_a_second_gate_is_attested_beside_the_first(world: World) -> None:
    digest = world.image()
    world.publish("gates:1.0", world.verdict(digest))
    asked = world.asked("gates:1.0", world.verdict(digest))
    made = publish(
        type(asked)(asked.name, asked.source, "spark", asked.verdicts, asked.policy), world.stack, world.signer, print
    )
    assert made.new
    report = verify.verify(world.name("gates:1.0"), world.stack, key(world))
    assert report.holds, report.problems
    assert report.claims.gates == ("cpu", "spark")


def test_a_tag_never_changes(world: World) -> None:
    first = world.image({"a": b"1"})
    world.publish("fixed:1.0", world.verdict(first), moves=("latest",))
    second = world.image({"a": b"2"})
    with pytest.raises(StackError, match="tags never change"):
        world.publish("fixed:1.0", world.verdict(second))
    world.publish("fixed:1.1", world.root / "v.json", moves=("latest",))
    assert image.read(world.name("fixed:1.0")).digest == first
    assert image.read(world.name("fixed:latest")).digest == second
    with pytest.raises(StackError, match="never moves"):
        world.publish("fixed:1.2", world.root / "v.json", moves=("1.0",))
    with pytest.raises(skopeo.Absent):
        skopeo.raw(world.name("fixed:1.2"))


def test_without_a_key_nothing_is_verified(world: World) -> None:
    digest = world.image()
    world.publish("keyless:1.0", world.verdict(digest))
    report = verify.verify(world.name("keyless:1.0"), world.stack, None)
    assert not report.holds
    assert [one.name for one in report.checks if one.state is not verify.CheckState.HOLDS] == ["signature"]


def test_another_key_vouches_for_nothing(world: World) -> None:
    digest = world.image()
    world.publish("stranger:1.0", world.verdict(digest))
    report = verify.verify(world.name("stranger:1.0"), world.stack, key(world, "other"))
    assert not report.holds
    assert "none of 4 attestations is signed with this key" in report.problems[0]


def test_what_was_pushed_by_hand_is_no_published_image(world: World) -> None:
    world.image()
    skopeo.copy(Reference(str(world.layout), "latest", layout=True), world.name("hand:1.0"))
    report = verify.verify(world.name("hand:1.0"), world.stack, key(world))
    assert report.problems == ("attestations: there are none",)


@pytest.mark.parametrize("name", ["rsa.pem", "pins.toml", "missing.pem", "maintainer"])
def test_a_key_of_another_kind_is_refused_in_one_line(world: World, name: str) -> None:
    with pytest.raises(StackError, match=r"key|cannot be read"):
        envelope.signer(world.root / name)


def test_a_key_signs_and_another_does_not(world: World) -> None:
    signer: Signer = world.signer
    made = signer.sign(b"payload")
    assert envelope.payload(made) == b"payload"
    assert envelope.signed_by(made, signer.public)
    assert not envelope.signed_by(made, key(world, "other"))
    assert not envelope.signed_by(made.replace(b"intoto", b"other").replace(b"in-toto", b"in_toto"), signer.public)
    assert not envelope.signed_by(b"[]", signer.public)
    assert not envelope.signed_by(b'{"payload": "", "payloadType": "x", "signatures": [1]}', signer.public)
