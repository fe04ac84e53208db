# SPDX-License-Identifier: Apache-2.0
"""Sigstore bundles among an image's referrers: their form, what is refused, and other writers."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sigstore_models.bundle.v1 import Bundle as Model

from stack.base.errors import StackError
from stack.images import (
    attached,
    bundle,
    envelope,
    image,
    layout,
    pulling,
    referrers,
    registry_client,
    skopeo,
    statement,
    verify,
)
from stack.images.image import Image
from stack.images.layout import INDEX, MANIFEST
from stack.images.publish import publish
from stack.images.reference import Reference
from stack.images.registry_client import RegistryClient

from . import newer
from .proxy import Answer, Between, standing
from .registry import Registry, environment
from .world import World

OTHER = "sha256:" + "b" * 64


def key(world: World) -> "envelope.SSlibKey":
    return envelope.public(world.root / "release.pub.pem")


def client(found: Image) -> RegistryClient:
    return RegistryClient(Reference(found.reference.place))


def pushed(world: World, name: str) -> Image:
    """An image in the registry that has no attestations."""
    world.image({"name": name.encode()})
    skopeo.copy(Reference(str(world.layout), "latest", layout=True), world.name(name))
    return image.read(world.name(name))


def stated(found: Image, number: int = 1) -> bytes:
    return statement.make(found, "it", "urn:test", {"number": number})


def signed(world: World, found: Image, number: int = 1) -> bytes:
    return bundle.make(world.signer.sign(stated(found, number)), key(world))


def attach(world: World, name: str, data: bytes, found: Image) -> None:
    with RegistryClient(Reference(world.name(name).place)) as opened:
        referrers.attach(opened, found, [data])


def index(found: Image) -> list[dict[str, Any]]:
    with client(found) as opened:
        entries: list[dict[str, Any]] = json.loads(opened.manifest(referrers.tag(found.digest)).data)["manifests"]
    return entries


@contextmanager
def between(world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch, one: Between) -> Iterator[World]:
    folder = Path(registry.environment["SSL_CERT_FILE"]).parent
    with standing(registry, world.root, one):
        for variable, value in environment(folder, registry.host, one.host).items():
            monkeypatch.setenv(variable, value)
        yield replace(world, host=one.host)


def test_a_bundle_has_sigstores_form(offline: World) -> None:
    made = bundle.make(offline.signer.sign(b"{}"), key(offline))
    model = Model.from_json(made)
    assert model.media_type == bundle.TYPE
    assert model.dsse_envelope is not None
    assert model.dsse_envelope.payload_type == envelope.PAYLOAD
    assert model.verification_material.public_key is not None
    assert model.verification_material.public_key.hint == bundle.hint(key(offline))
    read = bundle.read(made)
    assert envelope.signed_by(read.envelope, key(offline))
    assert bundle.make(read.envelope, key(offline)) == made


@pytest.mark.parametrize(
    "change",
    [
        {"mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.2"},
        {"verificationMaterial": {}},
        {"verificationMaterial": {"publicKey": {"hint": ""}, "certificate": {"rawBytes": ""}}},
        {"verificationMaterial": []},
        {"dsseEnvelope": {"payload": "", "payloadType": "", "signatures": []}},
        {"dsseEnvelope": {"payload": "", "payloadType": "", "signatures": [{"sig": "a"}, {"sig": "b"}]}},
        {"dsseEnvelope": None, "messageSignature": {}},
    ],
)
def test_a_bundle_of_another_form_is_refused(offline: World, change: dict[str, Any]) -> None:
    made = json.loads(bundle.make(offline.signer.sign(b"{}"), key(offline)))
    assert bundle.read(layout.encode(made))
    with pytest.raises(StackError, match="not a Sigstore bundle"):
        bundle.read(layout.encode(made | change))


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"[" * 100000])
def test_what_is_no_bundle_is_refused(data: bytes) -> None:
    with pytest.raises(StackError, match="not a Sigstore bundle"):
        bundle.read(data)


def put(found: Image, data: bytes, **changed: Any) -> None:
    """Attach a bundle by an artifact with changed fields."""
    manifest, entry = referrers.artifact(found, data)
    fields = json.loads(manifest) | changed
    made = layout.encode({name: value for name, value in fields.items() if value is not None})
    with client(found) as opened:
        for blob in (b"{}", data):
            opened.put_blob(blob)
        name = skopeo.digest(made)
        opened.put_manifest(name, made, MANIFEST)
        referrers.enlist(opened, found.digest, [entry | {"digest": name, "size": len(made)}])


def changed_bundle(data: bytes, **material: Any) -> bytes:
    made = json.loads(data)
    return layout.encode(made | {"verificationMaterial": {"tlogEntries": [], **material}})


LIES: dict[str, tuple[Callable[[World, Image], None], str]] = {
    "a statement about another image": (
        lambda world, found: put(found, signed(world, replace(found, digest=OTHER, platforms=()))),
        f"subject: one is for {OTHER}",
    ),
    "an artifact of another image": (
        lambda world, found: put(found, signed(world, found), subject={**found.descriptor, "digest": OTHER}),
        f"bundles: one is attached to {OTHER}",
    ),
    "an artifact of no image": (
        lambda world, found: put(found, signed(world, found), subject=None),
        "bundles: one is attached to None",
    ),
    "a list that names another predicate": (
        lambda world, found: put(found, signed(world, found), annotations={referrers.PREDICATE: statement.SUMMARY}),
        "bundles: one is listed as",
    ),
    "a bundle that names another key": (
        lambda world, found: put(found, changed_bundle(signed(world, found), publicKey={"hint": "b3RoZXI="})),
        "bundles: one signed with this key names another",
    ),
    "a bundle with a certificate": (
        lambda world, found: put(found, changed_bundle(signed(world, found), certificate={"rawBytes": "AA=="})),
        "bundles: one signed with this key has a certificate",
    ),
}


@pytest.mark.parametrize("what", LIES)
def test_a_bundle_that_contradicts_the_statement_inside_is_refused(world: World, what: str) -> None:
    """The right key has signed each statement."""
    name = f"lies-{what.replace(' ', '-')}:1.0"
    world.publish(name, world.verdict(world.image({"lie": what.encode()})))
    found = image.read(world.name(name))
    put(found, signed(world, found))  # the control: as it should be
    assert verify.published(world.name(name), key(world)).holds
    lie, refused = LIES[what]
    lie(world, found)
    problems = verify.published(world.name(name), key(world)).problems
    assert any(one.startswith(refused) for one in problems), problems


def test_a_bundle_by_another_key_counts_for_nothing(world: World) -> None:
    """It names the right key, and another has signed it."""
    world.publish("claimed:1.0", world.verdict(world.image()))
    found = image.read(world.name("claimed:1.0"))
    put(found, bundle.make(envelope.signer(world.root / "other.pem").sign(stated(found)), key(world)))
    report = verify.published(world.name("claimed:1.0"), key(world))
    assert report.holds, report.problems
    assert report.claims.foreign == 1


NONE: dict[str, Callable[[World, Image], None]] = {
    "another type": lambda world, found: put(found, signed(world, found, 2), artifactType="application/other"),
    "no type": lambda world, found: put(found, signed(world, found, 2), artifactType=None),
    "two layers": lambda world, found: put(found, signed(world, found, 2), layers=[layout.described(b"{}", bundle.TYPE)] * 2),
    "no bundle": lambda world, found: put(found, signed(world, found, 2), layers=[layout.described(b"{}", bundle.TYPE)]),
}


@pytest.mark.parametrize("what", NONE)
def test_artifacts_that_are_none_are_passed_over(world: World, what: str) -> None:
    found = pushed(world, f"none-{what.replace(' ', '-')}:1.0")
    put(found, signed(world, found))
    NONE[what](world, found)
    assert len(index(found)) == 2
    assert len(verify.claims(found, key(world)).statements) == 1


def test_an_entry_without_an_artifact_is_passed_over(offline: World) -> None:
    """Somebody has deleted it."""
    offline.image()
    found = image.read(Reference(str(offline.layout), "latest", layout=True))
    data = {number: signed(offline, found, number) for number in (1, 2)}
    made = {number: referrers.artifact(found, one) for number, one in data.items()}
    blobs = {made[1][1]["digest"]: made[1][0], skopeo.digest(data[1]): data[1]}

    def blob(name: str, size: int) -> bytes:
        if name not in blobs:
            raise skopeo.Absent("it does not exist")
        return blobs[name]

    (one,) = referrers.bundles([made[2][1], made[1][1]], blob, blob)
    assert one.data == data[1]


def test_sizes_have_bounds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pushed(world, "large:1.0")
    put(found, signed(world, found))
    assert len(verify.claims(found, key(world)).statements) == 1
    for bound, most in (("BLOB_LIMIT", 100), ("MANIFEST_LIMIT", 100)):
        with monkeypatch.context() as patched:
            patched.setattr(registry_client, bound, most)
            with pytest.raises(StackError, match="more than 100"):
                verify.claims(found, key(world))
    for bound, most in (("_TOTAL", 100), ("_MOST", 0)):
        with monkeypatch.context() as patched:
            patched.setattr(referrers, bound, most)
            with pytest.raises(StackError, match=f"more than {most}"):
                verify.claims(found, key(world))


def test_a_blob_that_is_longer_than_it_says_is_not_read_to_its_end(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pushed(world, "longer:1.0")
    put(found, signed(world, found))
    # `answer` gets more than the manifest says, of another digest.
    one = Between(answer=lambda method, path, body: body + b" " * 1000 if method == "GET" and "/blobs/" in path else body)
    with between(world, registry, monkeypatch, one) as there:
        opened = RegistryClient(Reference(there.name("longer").place))
        with opened, pytest.raises(StackError, match="more than"):
            opened.blob(skopeo.digest(signed(world, found)), 10)


def test_a_saved_image_keeps_its_bundles(world: World, tmp_path: Path) -> None:
    digest = world.image()
    world.publish("kept:1.0", world.verdict(digest))
    saved = pulling.save(world.name("kept:1.0"), tmp_path / "saved")
    # Without the earlier form.
    entries = json.loads((tmp_path / "saved/index.json").read_bytes())
    entries["manifests"] = [one for one in entries["manifests"] if not one["annotations"][layout.NAME].endswith(".att")]
    (tmp_path / "saved/index.json").write_bytes(layout.encode(entries))
    report = verify.verify(saved, world.stack, key(world))
    assert report.holds, report.problems
    assert (report.claims.bundled, report.claims.earlier) == (4, 0)


def test_an_image_that_was_published_without_bundles_gets_them_without_new_signatures(world: World) -> None:
    digest = world.image()
    world.publish("older:1.0", world.verdict(digest))
    found = image.read(world.name("older:1.0"))
    first = attached.fetch(found)
    empty = layout.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": []})
    with client(found) as opened:
        opened.put_manifest(referrers.tag(digest), empty, INDEX)
    report = verify.published(world.name("older:1.0"), key(world))
    assert report.holds
    assert (report.claims.bundled, report.claims.earlier) == (0, 4)
    assert world.publish("older:1.0", world.root / "v.json").new
    claims = verify.claims(found, key(world))
    assert (claims.bundled, claims.earlier, len(claims.statements)) == (4, 4, 4)
    assert attached.fetch(found) == first


def test_a_statement_that_is_too_large_for_kyverno_has_the_earlier_form_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.image()
    monkeypatch.setattr(bundle, "LARGEST", 1000)
    world.publish("large-one:1.0", world.verdict(digest))
    claims = verify.claims(image.read(world.name("large-one:1.0")), key(world))
    assert len(claims.statements) == claims.earlier == 4
    assert 0 < claims.bundled < 4
    assert claims.unbundled == 0
    assert not world.publish("large-one:1.0", world.root / "v.json").new
    monkeypatch.setattr(bundle, "LARGEST", 10**6)
    assert world.publish("large-one:1.0", world.root / "v.json").new
    assert verify.claims(image.read(world.name("large-one:1.0")), key(world)).bundled == 4


def test_a_second_run_adds_nothing(world: World) -> None:
    digest = world.image()
    world.publish("twice:1.0", world.verdict(digest))
    found = image.read(world.name("twice:1.0"))
    before = skopeo.raw(world.name(f"twice:{referrers.tag(digest)}"))
    assert not world.publish("twice:1.0", world.root / "v.json").new
    assert skopeo.raw(world.name(f"twice:{referrers.tag(digest)}")) == before
    assert len(index(found)) == 4


def foreign(number: int) -> dict[str, Any]:
    return {
        **layout.described(b"%d" % number, MANIFEST),
        "artifactType": "application/theirs",
        "annotations": {"n": str(number)},
    }


def overwrite(found: Image, entries: list[dict[str, Any]]) -> None:
    """Another writer, who has read the index earlier: puts its entries over what is there."""
    data = layout.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries, "annotations": {"by": "others"}})
    with client(found) as opened:
        opened.put_manifest(referrers.tag(found.digest), data, INDEX)


def theirs(found: Image, number: int) -> dict[str, Any]:
    """An artifact of another writer in the registry; its entry."""
    data = layout.encode({**json.loads(referrers.artifact(found, THEIRS)[0]), "annotations": {"n": str(number)}})
    with client(found) as opened:
        opened.put_blob(b"{}")
        opened.put_blob(THEIRS)
        opened.put_manifest(skopeo.digest(data), data, MANIFEST)
    return layout.described(data, MANIFEST, artifactType="application/theirs", annotations={"n": str(number)})


THEIRS = b""


@pytest.fixture(autouse=True)
def _theirs(request: pytest.FixtureRequest) -> None:
    if "world" in request.fixturenames:
        world = request.getfixturevalue("world")
        global THEIRS  # noqa: PLW0603
        payload = {"_type": statement.TYPE, "subject": [{"digest": {"sha256": "a" * 64}}], "predicateType": "urn:x"}
        THEIRS = bundle.make(world.signer.sign(layout.encode({**payload, "predicate": {"a": 1}})), key(world))


@pytest.mark.parametrize("step", range(1, 9))
def test_another_writers_referrers_are_kept_at_any_step(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """After request number `step` for the index another writer replaces it by its own, without what we have written."""
    found = pushed(world, f"writers-{step}:1.0")
    old, new = theirs(found, 1), theirs(found, 2)
    overwrite(found, [old])
    left = step

    def after(method: str, path: str) -> None:
        nonlocal left
        if path.endswith(f"/manifests/{referrers.tag(found.digest)}"):
            left -= 1
            if left == 0:
                overwrite(found, [old, new])

    with between(world, registry, monkeypatch, Between(after=after)) as there:
        attach(there, f"writers-{step}", signed(world, found), found)
    entries = index(found)
    assert old in entries
    assert [one["artifactType"] for one in entries].count(bundle.TYPE) == 1 or left == 0
    if left > 0:
        assert step > 3  # we were ready before
    elif step != 1:
        assert new in entries
    # The first request reads the index; without a registry that compares, what comes in right after it is replaced.


def test_a_registry_that_compares_keeps_what_came_between_reading_and_writing(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pushed(world, "compares:1.0")
    old, new = theirs(found, 1), theirs(found, 2)
    overwrite(found, [old])
    came = False

    def after(method: str, path: str) -> None:
        nonlocal came
        if method == "GET" and path.endswith(f"/manifests/{referrers.tag(found.digest)}") and not came:
            came = True
            overwrite(found, [old, new])

    def instead(method: str, path: str, headers: Any) -> Answer | None:
        if method != "PUT" or not path.endswith(f"/manifests/{referrers.tag(found.digest)}"):
            return None
        now = skopeo.digest(skopeo.raw(world.name(f"compares:{referrers.tag(found.digest)}")))
        assert headers["If-Match"]
        return None if headers["If-Match"].strip('"') == now else (412, {}, b"")

    with between(world, registry, monkeypatch, Between(after=after, instead=instead)) as there:
        attach(there, "compares", signed(world, found), found)
    entries = index(found)
    assert old in entries
    assert new in entries
    assert len(entries) == 3


def test_writers_at_the_same_time_lose_nothing(world: World) -> None:
    found = pushed(world, "race:1.0")
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with client(found) as opened:
                made = signed(world, found, number)
                referrers.attach(opened, found, [made])
                attached.attach(opened, found, [world.signer.sign(stated(found, 100 + number))])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    claims = verify.claims(found, key(world))
    assert (claims.bundled, claims.earlier) == (4, 4)


def test_a_registry_that_lists_referrers_gets_no_index(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a registry with the referrers API, in two pages."""
    known: list[dict[str, Any]] = []

    def instead(method: str, path: str, headers: Any) -> Answer | None:
        if "/referrers/" not in path:
            return None
        place, _, page = path.partition("?page=")
        half = known[:2] if not page else known[2:]
        more = {} if page else {"Link": f'<{place}?page=2>; rel="next"'}
        body = layout.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": half})
        return 200, {"Content-Type": INDEX, **more}, body

    digest = world.image()
    one = Between(instead=instead)

    def learn(method: str, path: str) -> None:
        """Remember each manifest that names a subject."""
        name = path.rpartition("/")[2]
        if method == "PUT" and "/manifests/sha256:" in path:
            manifest = json.loads(data := skopeo.raw(world.name(f"native@{name}")))
            if "subject" in manifest:
                known.append(layout.described(data, MANIFEST, artifactType=manifest["artifactType"]))

    one.after = learn
    with between(world, registry, monkeypatch, one) as there:
        there.publish("native:1.0", world.verdict(digest))
        report = verify.published(there.name("native:1.0"), key(world))
        assert report.holds, report.problems
        assert (report.claims.bundled, report.claims.earlier) == (4, 4)
    with pytest.raises(skopeo.Absent):
        skopeo.raw(world.name(f"native:{referrers.tag(digest)}"))


def test_cosign_as_the_other_writer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """cosign 3 adds a bundle of its own between two of our runs: each keeps what the other has attached."""
    program = str(newer.program("cosign", "forky") / "usr/bin/cosign")
    name = f"{world.host}/cosign-writes:1.0"
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    made = pushed(world, "cosign-writes:1.0")
    with client(made) as opened:
        referrers.attach(opened, made, [signed(world, made)])
    (world.root / "predicate.json").write_text('{"by": "cosign"}')
    (world.root / "signing.json").write_text('{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"}')
    (world.root / "roots.json").write_text('{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}')
    for command in (
        ["generate-key-pair"],
        [
            "attest",
            "--key",
            "cosign.key",
            "--signing-config",
            "signing.json",
            "--type",
            "urn:theirs",
            "--predicate",
            "predicate.json",
            name,
        ],
    ):
        done = subprocess.run([program, *command], cwd=world.root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    with client(made) as opened:
        referrers.attach(opened, made, [signed(world, made, 2)])
    claims = verify.claims(made, key(world))
    assert (claims.bundled, claims.foreign) == (2, 1)
    # Their bundle is read, too, and only their key counts for it.
    theirs = verify.claims(made, envelope.public(world.root / "cosign.pub"))
    assert (theirs.bundled, theirs.foreign, theirs.refused) == (1, 2, ())
    kinds = {str(one["digest"]): one["artifactType"] for one in index(made)}
    assert sorted(kinds.values()) == [bundle.TYPE, bundle.TYPE, referrers.EMPTY]  # the last is cosign's

    assert [one.kind for one in theirs.statements] == ["urn:theirs"]
    options = ["--key", "cosign.pub", "--type", "urn:theirs", "--insecure-ignore-tlog=true", "--trusted-root", "roots.json"]
    verified = subprocess.run(
        [program, "verify-attestation", *options, name], cwd=world.root, capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stderr


def test_what_another_writer_replaces_while_the_image_is_read_back_is_attached_again(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = world.image()
    lost = 0

    def tell(step: str) -> None:
        nonlocal lost
        if step == "read back" and not lost:
            lost = len(index(image.read(world.name(f"replaced@{digest}"))))
            overwrite(image.read(world.name(f"replaced@{digest}")), [])

    publish(world.asked("replaced:1.0", world.verdict(digest)), world.stack, world.signer, tell)
    assert lost == 4
    claims = verify.claims(image.read(world.name("replaced:1.0")), key(world))
    assert (claims.bundled, claims.earlier, len(claims.statements)) == (4, 4, 4)
