# SPDX-License-Identifier: Apache-2.0
"""What must not be published, and is refused before any registry is asked: there is none at the other end."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import image, labels, layers, layout, skopeo, statement, verify
from stack.images.publish import NotAdmittedError
from stack.images.reference import Reference
from stack.model import digest
from stack.model import stack as stacks
from stack.model.ids import Sha256
from stack.validation import bound, gates, signing

from .. import system
from ..validation.factories import ONE, TWO, answered, exact, failed
from . import factories, world
from .world import GATES, World


def refusal(offline: World, *verdicts: Path) -> tuple[str, ...]:
    with pytest.raises(NotAdmittedError) as refused:
        offline.publish("x:1.0", *verdicts)
    return tuple(problem.replace(f"{offline.root}/", "") for problem in refused.value.problems)


@pytest.mark.images
def test_what_is_admitted_goes_on_to_the_registry(offline: World) -> None:
    """The control of all other tests here: only the registry is missing."""
    system.demand("skopeo")
    with pytest.raises(skopeo.Unreachable):
        offline.publish("x:1.0", offline.verdict(offline.image()))


def test_a_verdict_of_another_image_counts_for_nothing(offline: World) -> None:
    other, this = offline.image({"a": b"1"}), offline.image({"a": b"2"})
    said = refusal(offline, offline.verdict(other))
    assert said[0] == f"v.json: it is for the image {other}, this is {this}"
    assert "linux/amd64: kernels/*: 0 passed, 2 are needed" in said


def test_the_labels_of_each_platform_count(offline: World) -> None:
    ours = labels.of(offline.stack)
    _, platforms = factories.multi(offline.layout, ours, second={**ours, labels.STACK: "b" * 64})
    said = refusal(offline, *(offline.verdict(one, f"{place}.json") for place, one in enumerate(platforms)))
    (other,) = (one for one in said if "its label" in one)
    assert other.startswith(f"linux/arm64: its label {labels.STACK} is '{'b' * 64}'")


def test_a_verdict_without_an_image_counts_for_nothing(offline: World) -> None:
    offline.image()
    assert "it is not for an image" in refusal(offline, offline.verdict(None))[0]


def test_an_edited_verdict_is_found(offline: World) -> None:
    path = offline.verdict(offline.image())
    path.write_bytes(path.read_bytes().replace(TWO.encode(), TWO.replace("e2m1", "e5m2").encode()))
    assert "was altered" in refusal(offline, path)[0]
    # Its digest made anew, the signature is of another file.
    content = json.loads(path.read_bytes())
    rest = {key: value for key, value in content.items() if key != "digest"}
    content["digest"] = skopeo.digest(
        json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    ).removeprefix("sha256:")
    path.write_text(json.dumps(content))
    assert any("does not hold" in one for one in refusal(offline, path))


@pytest.mark.parametrize("key", ["stranger", None])
def test_a_verdict_by_nobody_who_counts_is_refused(offline: World, key: str | None) -> None:
    path = offline.verdict(offline.image())
    if key is None:
        signing.place(path).unlink()
    else:
        signing.sign(path, offline.root / key)
    assert any("not signed by anyone" in one or "is not signed" in one for one in refusal(offline, path))


def test_a_gate_that_was_weakened_after_the_verdict_lets_nothing_out(offline: World) -> None:
    made = offline.image()
    bare = replace(offline_verdict(offline, exact(ONE), answered()), image=made, gates=gates_of(offline))
    path = offline.written(bare)
    assert "kernels/*: 1 passed, 2 are needed" in refusal(offline, path)[0]
    offline.policy.gates.write_text(GATES.replace("least = 2", "least = 1"))
    assert refusal(offline, path) == ("v.json: the gate cpu has changed since it was made: validate again",)


def test_a_failed_case_stops_an_image(offline: World) -> None:
    made = offline.image()
    one = offline_verdict(offline, *world.GOOD, failed("serve/tools"))
    assert "serve/tools failed" in refusal(offline, offline.written(replace(one, image=made, gates=gates_of(offline))))[0]


def test_a_verdict_of_another_stack_is_refused(offline: World) -> None:
    made = offline.image()
    other = replace(offline_verdict(offline, *world.GOOD), stack=Sha256("e" * 64))
    assert any(
        "is of the stack" in one
        for one in refusal(offline, offline.written(replace(other, image=made, gates=gates_of(offline))))
    )


def test_not_even_a_case_whose_inputs_are_the_same_counts_for_another_stacks_image(offline: World) -> None:
    """It would count for a machine. An image holds one stack."""
    made = offline.image()
    cases, listed = [], {}
    for case in world.GOOD:
        found = bound.of(offline.stack, case)
        listed |= {one.digest: one for one in found.values()}
        cases.append(replace(case, inputs={kind: one.digest for kind, one in found.items()}))
    own = replace(offline_verdict(offline, *cases), image=made, gates=gates_of(offline), inputs=listed)
    other = replace(own, stack=Sha256("e" * 64))
    gate, release = gates.load(offline.policy.gates, "cpu"), gates.release(offline.stack)
    [standing] = gates.judge_files(gate, release, [offline.written(replace(other, image=None))]).standing
    assert len(standing.counts) == len(cases)
    assert gates.judge_files(gate, release, [offline.written(other)]).standing == ()
    assert any(one.startswith("v.json: it is for the stack eeeeeeeeeeee") for one in refusal(offline, offline.written(other)))


@pytest.mark.parametrize("label", [labels.STACK, labels.PINS, labels.BASE_DIGEST])
def test_labels_that_say_something_else_than_the_pins_stop_an_image(offline: World, label: str) -> None:
    made = offline.image(**{label: "other"})
    assert refusal(offline, offline.verdict(made))[0].startswith(f"linux/amd64: its label {label} is 'other'")


def test_a_base_that_was_never_resolved_stops_an_image(offline: World) -> None:
    pins = offline.root / "pins.toml"
    pins.write_text("".join(line for line in pins.read_text().splitlines(keepends=True) if not line.startswith("digest")))
    assert offline.stack.pins.base is not None
    made = offline.image()
    assert refusal(offline, offline.verdict(made))[0] == "the pins have no base image with a digest"


@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "/etc/passwd", "usr/../../x"])
def test_a_layer_that_writes_outside_the_image_is_refused(offline: World, name: str) -> None:
    made = offline.image({"usr/good": b"", name: b"evil"})
    with pytest.raises(StackError, match="writes outside the image"):
        offline.publish("x:1.0", offline.verdict(made))


def test_a_hard_link_out_of_the_image_is_refused(offline: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factories, "layer", lambda files: factories.linked("usr/x", "../../etc/passwd"))
    made = offline.image()
    with pytest.raises(StackError, match="writes outside the image"):
        offline.publish("x:1.0", offline.verdict(made))


def tampered(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("change", [tampered, lambda data: data[:-9], lambda data: data + b"more"])
def test_a_layer_that_is_not_what_its_digest_says_is_refused(offline: World, change: Callable[[bytes], bytes]) -> None:
    made = offline.image()
    source = Reference(str(offline.layout), layout=True)
    (platform,) = image.read(source).platforms
    file = layout.place(offline.layout, platform.layers[0].digest)
    layers.check(image.read(source))
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(StackError, match="does not match its digest"):
        offline.publish("x:1.0", offline.verdict(made))


@pytest.mark.parametrize("place", ["config", "layers"])
def test_a_manifest_that_names_files_elsewhere_is_refused(offline: World, place: str) -> None:
    offline.image()
    (entry,) = layout.listed(offline.layout)
    manifest = json.loads(layout.blob(offline.layout, entry["digest"]))
    one = manifest["config"] if place == "config" else manifest["layers"][0]
    one["digest"] = "sha256:../../../../../../etc/passwd"
    layout.finish(offline.layout, {"latest": layout.put(offline.layout, layout.encode(manifest), layout.MANIFEST)})
    with pytest.raises(StackError, match="it has to be a digest"):
        offline.publish("x:1.0", offline.verdict(None))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"mediaType": "text/plain"}', b'{"layers": 1}', b'{"manifests": [], "layers": []}']
)
def test_what_is_no_image_is_one_line(offline: World, data: bytes) -> None:
    layout.finish(offline.layout, {"latest": layout.put(offline.layout, data, layout.MANIFEST)})
    with pytest.raises(StackError):
        offline.publish("x:1.0", offline.verdict(None))


def test_a_name_that_is_no_tag_is_refused(offline: World) -> None:
    offline.image()
    for name in ("x", "x@sha256:" + "a" * 64, "x:sha256-" + "a" * 64, "x:latest.previous"):
        with pytest.raises(StackError, match=r"not a tag|reserved for"):
            offline.publish(name, offline.verdict(None))


def test_a_bill_of_materials_that_is_none_is_refused(offline: World) -> None:
    for data in (b"{}", b"[", b"[]", b"[" * 100_000):
        (offline.root / "bom.json").write_bytes(data)
        with pytest.raises(StackError, match=r"bill of materials|neither"):
            statement.bom(offline.root / "bom.json")


def gates_of(offline: World) -> Mapping[str, Sha256]:
    return gates.digests(offline.root / gates.FILE)


def offline_verdict(offline: World, *cases: world.Case) -> world.Verdict:
    return world.of(offline.stack, *cases, machine=world.CPU)


def test_an_image_of_a_lane_is_that_lanes_only(offline: World) -> None:
    pins = offline.root / "pins.toml"
    pins.write_text(pins.read_text() + "\n[lane.same]\n[lane.twin]\n")
    main, same, twin = (stacks.load(offline.root, lane) for lane in (None, "same", "twin"))
    assert digest.of(main) == digest.of(same) == digest.of(twin)
    assert labels.of(main) == {key: value for key, value in labels.of(same).items() if key != labels.LANE}
    assert labels.differing(labels.of(same), main) == ("it is of the lane 'same': name it with --lane",)
    assert labels.differing(labels.of(main), same) == (f"it has no label {labels.LANE}",)
    assert labels.differing(labels.of(twin), same) == (f"its label {labels.LANE} is 'twin', the stack says 'same'",)
    # An image that was built without --lane has the label, but empty.
    assert labels.differing({**labels.of(main), labels.LANE: ""}, main) == ()
    for lane in (same, twin):
        assert labels.differing(labels.of(lane), lane) == ()


def test_an_image_of_a_lane_is_not_admitted_for_the_rest(offline: World) -> None:
    pins = offline.root / "pins.toml"
    pins.write_text(pins.read_text() + "\n[lane.same]\n")
    said = refusal(offline, offline.verdict(offline.image(**{labels.LANE: "same"})))
    assert said[0] == "linux/amd64: it is of the lane 'same': name it with --lane"


@pytest.mark.parametrize("lane", ["same", None, "twin"])
def test_the_provenance_names_the_lane(offline: World, lane: str | None) -> None:
    pins = offline.root / "pins.toml"
    pins.write_text(pins.read_text() + "\n[lane.same]\n[lane.twin]\n")
    carried, other = stacks.load(offline.root, lane), stacks.load(offline.root, "same")
    offline.image(**labels.of(other))
    found = image.read(Reference(str(offline.layout), layout=True))
    predicate = statement.provenance(found, carried, "me")
    claims = verify.Claims((statement.Statement(statement.PROVENANCE, (found.digest,), predicate),), 0)
    (check, *_) = verify._against(found, claims, other, None, None)
    wrong = "its provenance names another lane than this stack's"
    assert (wrong in check.said) == (lane != "same")
