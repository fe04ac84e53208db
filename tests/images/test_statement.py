# SPDX-License-Identifier: Apache-2.0
"""Statements: what is made has the published message definitions' form, and what is read is not believed to have it."""

import json
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.predicates.vsa.v1 import vsa_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as Protocol

from stack.base.errors import StackError
from stack.images import image, statement
from stack.images.reference import Reference
from stack.model.ids import Sha256
from stack.validation import gates
from stack.wheels import provenance

from .world import World

DIGEST = "a" * 64


def check(data: bytes) -> None:
    """Hold a statement against the message definitions, which know every key and the type of its value."""
    made = json.loads(data)
    Protocol.copy_from_pb(json_format.ParseDict(made, statement_pb2.Statement())).validate()
    predicate = made["predicate"]
    if made["predicateType"] == statement.PROVENANCE:
        json_format.ParseDict(predicate, provenance_pb2.Provenance())
    if made["predicateType"] == statement.SUMMARY:
        assert predicate.pop("stack_digest")  # our own
        # in-toto-attestation 0.9.3 expects a string; the specification has a list.
        levels = predicate.pop("verifiedLevels")
        assert levels
        assert all(isinstance(level, str) for level in levels)
        json_format.ParseDict(predicate, vsa_pb2.VerificationSummary())


def test_an_images_statements_have_the_published_form(offline: World) -> None:
    offline.image()
    of = image.read(Reference(str(offline.layout), layout=True))
    gate = gates.load(offline.root / gates.FILE, "cpu")
    summary = statement.summary("x:1.0", Sha256(DIGEST), gate, [f"sha256:{DIGEST}"], "urn:me", "2026-11-21T21:40:00Z")
    for kind, predicate in (
        (statement.PROVENANCE, statement.provenance(of, offline.stack, "urn:me")),
        (statement.SUMMARY, summary),
    ):
        data = statement.make(of, "x:1.0", kind, predicate)
        check(data)
        read = statement.read(data)
        assert (read.kind, read.predicate) == (kind, predicate)
        assert set(read.subjects) == {of.digest, *(platform.digest for platform in of.platforms)}


def test_a_wheels_statement_has_the_published_form(offline: World) -> None:
    made = provenance.Made("vllm", "vllm", "1+a", "overlay", "vllm-1.whl", Sha256(DIGEST), ("vllm/a.py",))
    check(provenance.provenance(offline.stack, made, "vllm-1+a.whl", Sha256(DIGEST)))


GOOD: dict[str, Any] = {
    "_type": statement.TYPE,
    "subject": [{"name": "x", "digest": {"sha256": DIGEST}}],
    "predicateType": statement.SUMMARY,
    "predicate": {"inputAttestations": [{"digest": {"sha256": DIGEST}}]},
}


@pytest.mark.parametrize(
    "changed",
    [
        {"_type": "https://in-toto.io/Statement/v0.2"},
        {"_type": None},
        {"subject": []},
        {"subject": "x"},
        {"subject": [{"name": "x"}]},
        {"subject": [{"name": "x", "digest": {"sha256": "short"}}]},
        {"predicateType": ""},
        {"predicate": {}},
        {"predicate": [1]},
        {"predicate": {"inputAttestations": 1}},
        {"predicate": {"inputAttestations": [1]}},
    ],
    ids=str,
)
def test_a_statement_of_another_form_is_refused(changed: dict[str, Any]) -> None:
    assert statement.read(json.dumps(GOOD).encode()).subjects == (f"sha256:{DIGEST}",)
    with pytest.raises(StackError):
        statement.read(json.dumps({**GOOD, **changed}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"1", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_statement_is_one_line(data: bytes) -> None:
    with pytest.raises(StackError) as refused:
        statement.read(data)
    assert "\n" not in str(refused.value)
