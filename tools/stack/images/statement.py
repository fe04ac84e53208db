# SPDX-License-Identifier: Apache-2.0
"""Attestations of an image: in-toto statements with SLSA's predicates, SBOMs and verdicts."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import labels, layout
from stack.images.base import MADE_HERE
from stack.images.image import Image
from stack.model.document import Table
from stack.model.ids import Sha256
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.validation import gates
from stack.validation.gates import Gate

TYPE = "https://in-toto.io/Statement/v1"
_TYPES = rf"{re.escape(TYPE)}|https://in-toto\.io/Statement/v0\.1"
"""cosign writes the earlier version, whose fields are the same."""
PROVENANCE = "https://slsa.dev/provenance/v1"
SUMMARY = "https://slsa.dev/verification_summary/v1"
CYCLONEDX = "https://cyclonedx.org/bom"
SPDX = "https://spdx.dev/Document"
VERDICT = "urn:stack:verdict:1"
BUILD = "urn:stack:image-build:1"
GATE = "urn:stack:gate:"
"""Followed by a gate's name: the policy of a summary."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: a `predicate` of the type `kind` about the digests of `subjects`."""

    kind: str
    subjects: tuple[str, ...]
    predicate: Mapping[str, Any]


def make(image: Image, name: str, kind: str, predicate: Mapping[str, Any]) -> bytes:
    """Encode a statement about a published image: about its index and every platform's image.

    Raises:
        StackError: the predicate does not have its type's form.

    """
    digests = dict.fromkeys((image.digest, *(item.digest for item in image.platforms)))
    subjects = [{"name": name, "digest": {"sha256": item.removeprefix("sha256:")}} for item in digests]
    data = layout.encode({"_type": TYPE, "subject": subjects, "predicateType": kind, "predicate": predicate})
    read(data)
    return data


def read(data: bytes) -> Statement:
    """Parse a statement whose signature was checked before.

    Raises:
        StackError: it is not a statement.

    """
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"an attestation is not valid JSON ({str(bad)[:120]})", "publish the image again") from bad
    if not isinstance(top, dict):
        raise StackError("an attestation is not an in-toto statement: it is not a JSON object", "publish the image again")
    table = Table(top, file=Path("attestation"))
    table.text("_type", pattern=_TYPES, meaning=TYPE)
    subjects = [item.table("digest").optional_text("sha256", pattern=r"[0-9a-f]{64}") for item in table.tables("subject")]
    if not subjects:
        raise table.error("subject", "is empty", "a statement is about something")
    kind, predicate = table.text("predicateType"), table.table("predicate")
    if not tuple(predicate):
        raise table.error("predicate", "is empty", "a statement says something")
    if kind == SUMMARY:
        predicate.tables("inputAttestations")
    digests = tuple(f"sha256:{item}" for item in subjects if item is not None)
    return Statement(kind, digests, top["predicate"])


def provenance(image: Image, stack: Stack, builder: str) -> dict[str, Any]:
    """Make SLSA provenance v1: the pins that the image was built from, as its labels say and the stack confirms."""
    platforms = [
        {"name": platform.name, "digest": platform.digest, "created": platform.created} for platform in image.platforms
    ]
    return {
        "buildDefinition": {
            "buildType": BUILD,
            "externalParameters": {
                "stack": image.platforms[0].labels[labels.STACK],
                "platforms": platforms,
                **({} if stack.lane is None else {"lane": stack.lane}),
            },
            "resolvedDependencies": dependencies(stack),
        },
        "runDetails": {"builder": {"id": builder}},
    }


def dependencies(stack: Stack) -> list[dict[str, Any]]:
    """Convert the pins to SLSA's resolved dependencies: upstream commits and the base image."""
    resolved = [_dependency(pin) for pin in stack.pins]
    base = stack.pins.base
    if base is not None and base.digest is not None:
        digest = {"sha256": base.digest.removeprefix("sha256:")}
        uri = f"urn:stack:debian:{base.tag}" if base.image == MADE_HERE else f"docker://{base.image}:{base.tag}"
        resolved.append({"name": "base", "uri": uri, "digest": digest})
    return resolved


def _dependency(pin: Pin) -> dict[str, Any]:
    archive = pin.archive
    resolved: dict[str, Any] = {"name": pin.upstream, "uri": f"git+{pin.git}", "digest": {"gitCommit": pin.commit}}
    if archive is not None and archive.sha256 is not None:
        resolved["annotations"] = {"archive": f"{archive.package} {archive.version}", "archive.sha256": archive.sha256}
    return resolved


def summary(name: str, stack: Sha256, gate: Gate, verdicts: Sequence[str], verifier: str, time: str) -> dict[str, Any]:
    """Make SLSA's verification summary: this stack passed this gate with these verdicts (their digests, `sha256:…`)."""
    return {
        "verifier": {"id": verifier},
        "timeVerified": time,
        "resourceUri": f"docker://{name}",
        "policy": {"uri": f"{GATE}{gate.name}", "digest": {"sha256": str(gates.digest(gate))}},
        "inputAttestations": [{"uri": VERDICT, "digest": {"sha256": digest.removeprefix("sha256:")}} for digest in verdicts],
        "verificationResult": "PASSED",
        "verifiedLevels": ["SLSA_BUILD_LEVEL_1"],
        "slsaVersion": "1.0",
        "stack_digest": stack,
    }


def bom(file: Path) -> tuple[str, dict[str, Any]]:
    """Read a software bill of materials in JSON, with its predicate type.

    Raises:
        StackError: the file is neither CycloneDX nor SPDX.

    """
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as bad:
        raise StackError(f"{file} is not a bill of materials in JSON", "name a CycloneDX or SPDX file in JSON") from bad
    if isinstance(found, dict) and found.get("bomFormat") == "CycloneDX":
        return CYCLONEDX, found
    if isinstance(found, dict) and str(found.get("spdxVersion", "")).startswith("SPDX-"):
        return SPDX, found
    raise StackError(f"{file} is neither CycloneDX nor SPDX", "name a file of one of them in JSON")
