# SPDX-License-Identifier: Apache-2.0
"""Somebody who sits between publisher and registry, or who may write there, too."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.images import (
    attached,
    attestations,
    bundle,
    envelope,
    floating_tags,
    image,
    referrers,
    skopeo,
    statement,
    verify,
)
from stack.images.image import Image
from stack.images.reference import Reference
from stack.images.registry_client import RegistryClient
from stack.images.verify import Claims
from stack.model import verdict
from stack.model.ids import Sha256
from stack.validation import gates

from .proxy import Between, standing
from .registry import Registry, environment
from .world import GATES, World


@contextmanager
def attacked(world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch, between: Between) -> Iterator[World]:
    """The world, with somebody between it and the registry."""
    folder = Path(registry.environment["SSL_CERT_FILE"]).parent
    with standing(registry, world.root, between):
        for key, value in environment(folder, registry.host, between.host).items():
            monkeypatch.setenv(key, value)
        yield replace(world, host=between.host)


def key(world: World, name: str = "release") -> "envelope.SSlibKey":
    return envelope.public(world.root / f"{name}.pub.pem")


def other(world: World, name: str) -> tuple[Reference, str]:
    """Another image in the same repository, by its digest."""
    made = world.image({"evil": name.encode()})
    place = world.name(f"{name}@{made}")
    skopeo.copy(Reference(str(world.layout), "latest", layout=True), place)
    return place, made


def attach(found: Image, envelopes: list[bytes], signed_by: "envelope.SSlibKey", form: str = "") -> None:
    """Attach envelopes in one form, or in both."""
    with RegistryClient(Reference(found.reference.place)) as client:
        if form != "earlier":
            referrers.attach(client, found, [bundle.make(item, signed_by) for item in envelopes])
        if form != "bundle":
            attached.attach(client, found, envelopes)


def absent(world: World, name: str) -> bool:
    return floating_tags.digest_of(world.name(name)) is None


def test_somebody_between_who_does_nothing_changes_nothing(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the other tests here."""
    with attacked(world, registry, monkeypatch, Between()) as there:
        there.publish("quiet:1.0", world.verdict(world.image()))
        assert verify.verify(there.name("quiet:1.0"), world.stack, key(world)).holds


def test_a_tag_that_is_pointed_elsewhere_between_push_and_tag_is_found(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil, evil_digest = other(world, "early")
    made = world.image()

    def after(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(".att"):
            skopeo.copy(evil, world.name("early:1.0"))

    with (
        attacked(world, registry, monkeypatch, Between(after=after)) as there,
        pytest.raises(StackError, match="tags never change"),
    ):
        there.publish("early:1.0", world.verdict(made))
    assert floating_tags.digest_of(world.name("early:1.0")) == evil_digest  # theirs: it was not ours to overwrite
    assert not verify.verify(world.name("early:1.0"), world.stack, key(world)).holds


def test_a_tag_that_is_pointed_elsewhere_right_after_it_was_put_is_found(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil, _ = other(world, "late")
    made = world.image()

    def after(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/manifests/1.0"):
            skopeo.copy(evil, world.name("late:1.0"))

    with attacked(world, registry, monkeypatch, Between(after=after)) as there, pytest.raises(StackError, match="points at"):
        there.publish("late:1.0", world.verdict(made))


def test_a_registry_that_hides_what_it_has_is_not_taken_at_its_word(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says "manifest unknown" of what it cannot give in an older form: a tag that is taken for free would be overwritten."""
    world.publish("hidden:1.0", world.verdict(world.image()))
    with attacked(world, registry, monkeypatch, Between(deaf=True)) as there:
        with pytest.raises(StackError, match="skopeo failed") as found:
            floating_tags.digest_of(there.name("hidden:1.0"))
        assert not isinstance(found.value, skopeo.Absent)
        assert absent(there, "hidden:2.0")


@pytest.mark.parametrize("what", ["manifest", "layer", "attestation", "tag"])
def test_a_registry_that_lies_about_a_digest_is_found(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The answer says the right digest in its header, and is something else."""
    name = f"liar-{what}"
    evil, _ = other(world, name)
    lie = skopeo.raw(evil)
    made = world.image()
    (platform,) = image.read(Reference(str(world.layout), layout=True)).platforms
    wanted = {
        "manifest": f"/manifests/{made}",
        "layer": f"/blobs/{platform.layers[0].digest}",
        "attestation": ".att",
        "tag": "/manifests/1.0",
    }[what]

    def answer(method: str, path: str, body: bytes) -> bytes:
        return lie if method == "GET" and path.endswith(wanted) and b"errors" not in body[:20] else body

    monkeypatch.setattr(referrers, "_PATIENCE", 0.0)
    between = Between(answer=answer)
    with attacked(world, registry, monkeypatch, between) as there, pytest.raises(StackError) as found:
        there.publish(f"{name}:1.0", world.verdict(made))
    words = {
        "manifest": "has another digest",
        "layer": "Digest did not match",
        "attestation": "keep replacing",
        "tag": "points at",
    }
    assert words[what] in str(found.value)
    assert any(method == "GET" and path.endswith(wanted) for method, path in between.seen)
    assert absent(world, f"{name}:1.0") or what == "tag"


@pytest.mark.parametrize("name", ["../../../../../etc/passwd", "a" * 63, f"{'A' * 64}"])
def test_attestations_that_name_files_elsewhere_are_not_read(
    world: World, registry: Registry, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = world.image()
    world.publish("traversal:1.0", world.verdict(made))

    def answer(method: str, path: str, body: bytes) -> bytes:
        if method == "GET" and path.endswith(".att"):
            manifest = json.loads(body)
            manifest["layers"][0]["digest"] = f"sha256:{name}"
            return json.dumps(manifest).encode()
        return body

    with attacked(world, registry, monkeypatch, Between(answer=answer)) as there, pytest.raises(StackError):
        verify.verify(there.name("traversal:1.0"), world.stack, key(world))


def test_attestations_that_were_moved_from_another_image_are_found(world: World) -> None:
    first = world.image({"a": b"1"})
    world.publish("moved:1.0", world.verdict(first))
    second = world.image({"a": b"2"})
    skopeo.copy(Reference(str(world.layout), "latest", layout=True), world.name("moved:2.0"))
    skopeo.copy(world.name(f"moved:{attached.attestations(first)}"), world.name(f"moved:{attached.attestations(second)}"))
    report = verify.verify(world.name("moved:2.0"), world.stack, key(world))
    assert not report.holds
    assert any(one.startswith("subject: one is for") for one in report.problems)
    # Neither does it move a tag, nor is it taken for published before.
    with pytest.raises(StackError, match="subject"):
        floating_tags.promote(world.name("moved:2.0"), ["latest"], key(world))
    assert absent(world, "moved:latest")


def test_a_rollback_to_what_was_never_published_does_not_move_the_tag(world: World) -> None:
    first = world.image()
    world.publish("back:1.0", world.verdict(first), moves=("latest",))
    place, now = Reference(world.name("back").place), world.name("back:latest")
    floating_tags.put(place, first, f"latest{floating_tags.BEFORE}")
    with pytest.raises(StackError, match="has no earlier target"):
        floating_tags.rollback(now, key(world))
    _, evil = other(world, "back")
    floating_tags.put(place, evil, f"latest{floating_tags.BEFORE}")
    with pytest.raises(StackError, match="is not verified"):
        floating_tags.rollback(now, key(world))
    assert floating_tags.digest_of(now) == first
    # The tag that it was published under stands where it is.
    (move,) = floating_tags.promote(world.name("back:1.0"), ["1.0"], key(world))
    assert (move.before, move.after) == (first, first)


def test_a_gate_that_is_weakened_after_publishing_is_found(world: World) -> None:
    world.publish("weakened:1.0", world.verdict(world.image()))
    (world.root / gates.FILE).write_text(GATES.replace("least = 2", "least = 1", 1))
    report = verify.verify(world.name("weakened:1.0"), world.stack, key(world))
    assert report.problems[0].startswith("gate cpu now: the gate has changed since then")


def test_a_stack_that_went_on_is_not_that_of_the_image(world: World) -> None:
    world.publish("gone-on:1.0", world.verdict(world.image()))
    pins = world.root / "pins.toml"
    pins.write_text(pins.read_text().replace("v1.0.0", "v1.0.1").replace("aaaaaaa", "aaaaaab"))
    report = verify.verify(world.name("gone-on:1.0"), world.stack, key(world))
    assert report.problems[0].startswith("pins: linux/amd64: its label stack.digest is")
    # It was published all the same: that is what moving tags ask.
    assert verify.published(world.name("gone-on:1.0"), key(world)).holds


def test_what_others_attach_stays_and_counts_for_nothing(world: World) -> None:
    name = "others"
    made = world.image()
    world.publish(f"{name}:1.0", world.verdict(made))
    found = image.read(world.name(f"{name}:1.0"))
    mine = attestations.fetch(found)
    theirs = envelope.signer(world.root / "other.pem").sign(envelope.payload(mine[0].envelope))
    attach(found, [theirs], key(world, "other"))
    report = verify.verify(world.name(f"{name}:1.0"), world.stack, key(world))
    assert report.holds, report.problems
    assert report.claims.foreign == 1
    assert not world.publish(f"{name}:1.0", world.root / "v.json").new
    assert len(attestations.fetch(found)) == len(mine) + 2


Stated = tuple[str, dict[str, Any]]
"""A type of predicate, and a predicate."""


def provenance(said: Claims, **changed: Any) -> list[Stated]:
    (one,) = said.of(statement.PROVENANCE)
    return [(statement.PROVENANCE, {**one.predicate, "buildDefinition": {**one.predicate["buildDefinition"], **changed}})]


def summary(said: Claims, **changed: Any) -> list[Stated]:
    (one,) = said.of(statement.SUMMARY)
    return [(statement.SUMMARY, {**one.predicate, **changed})]


def with_verdict(said: Claims, **changed: Any) -> list[Stated]:
    """A verdict that is another than what was judged, and a summary that names it."""
    (one,) = said.of(statement.VERDICT)
    as_json = verdict.as_json(replace(verdict.read(json.dumps(one.predicate).encode(), "it"), **changed))
    digest = str(as_json["digest"])
    named = [{"uri": statement.VERDICT, "digest": {"sha256": digest}}]
    return [(statement.VERDICT, as_json), *summary(said, inputAttestations=named)]


OTHER = "b" * 64
UNTRUE: dict[str, tuple[Callable[[Claims], list[Stated]], str]] = {
    "another kind of build": (lambda said: provenance(said, buildType="urn:other"), "it is for another kind of build"),
    "a build of another stack": (
        lambda said: provenance(said, externalParameters={"stack": OTHER, "platforms": []}),
        "provenance: it is for another stack",
    ),
    "a build of other pins": (lambda said: provenance(said, resolvedDependencies=[]), "its provenance names other pins"),
    "a gate that failed": (lambda said: summary(said, verificationResult="FAILED"), "its summary says that it was not passed"),
    "a gate that another stack passed": (lambda said: summary(said, stack_digest=OTHER), "its summary is for another stack"),
    "a gate without verdicts": (lambda said: summary(said, inputAttestations=[]), "its summary names no verdict"),
    "a verdict that is not there": (
        lambda said: summary(said, inputAttestations=[{"uri": statement.VERDICT, "digest": {"sha256": OTHER}}]),
        "is missing",
    ),
    "a verdict under another gate": (lambda said: with_verdict(said, gates={"cpu": Sha256(OTHER)}), "made under another gate"),
    "a verdict of another image": (lambda said: with_verdict(said, image=f"sha256:{OTHER}"), f"and the image sha256:{OTHER}"),
    "a verdict of another stack": (lambda said: with_verdict(said, stack=Sha256(OTHER)), f"is for the stack {OTHER}"),
}


@pytest.mark.parametrize("form", ["bundle", "earlier"])
@pytest.mark.parametrize("what", UNTRUE)
def test_what_the_right_key_has_signed_has_to_be_true(world: World, what: str, form: str) -> None:
    """Each stands beside true statements, under the key that counts."""
    change, refused = UNTRUE[what]
    name = f"untrue-{form}-{what.replace(' ', '-')}:1.0"
    world.publish(name, world.verdict(world.image()))
    found = image.read(world.name(name))
    said = verify.claims(found, key(world))
    assert verify.verify(world.name(name), world.stack, key(world)).holds
    signed = [
        world.signer.sign(statement.make(found, world.name(name).shown, kind, predicate)) for kind, predicate in change(said)
    ]
    attach(found, signed, key(world), form)
    problems = verify.verify(world.name(name), world.stack, key(world)).problems
    assert any(refused in one for one in problems), problems
    # That it was published asks for no stack, so it cannot compare the pins.
    assert verify.published(world.name(name), key(world)).holds is (what == "a build of other pins")
