# SPDX-License-Identifier: Apache-2.0
"""What a wheel says of itself: the stack that it is of, its parts as a bill of materials, and how it was made."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stack import __version__
from stack.model import digest, effect
from stack.model.ids import Sha256
from stack.model.patch import Patch
from stack.model.stack import Stack

FORMAT = 2
_NAMESPACE = uuid.UUID("a9f4c1a2-54a5-4d0e-8f0b-0a0d6f3f2b71")
"""Of the serial numbers of bills of materials: the same content has the same one."""
_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, slots=True)
class Made:
    """A wheel that is about to be written: its name and version, how it is made (`overlay`), of what, and what was changed."""

    upstream: str
    name: str
    version: str
    mode: str
    base: str
    """The file that it is made of."""
    base_sha256: Sha256
    edited: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    """What it is made with, beside this tool: versions by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that decided what came out. They name places of a machine: the statement has them, the wheel has not."""


def file_name(stack: Stack) -> str:
    """The name of the description in a wheel's dist-info folder."""
    return f"{stack.label}_stack.json"


def description(stack: Stack, made: Made) -> dict[str, Any]:
    """Describe the stack that a wheel is of: digest, pins, the files that its patches change, what it was made of and with.

    Names and messages of patches are in the statement beside the wheel: stacks of the same digest have the same wheels.
    """
    return {
        "format": FORMAT,
        "digest": digest.of(stack),
        "upstream": made.upstream,
        "version": made.version,
        "mode": made.mode,
        "base": {"file": made.base, "sha256": made.base_sha256},
        "pins": {pin.upstream: {"commit": pin.commit, "tree": pin.tree} for pin in stack.pins},
        "files": [
            {"upstream": name, "path": path, "mode": mode, "blob": blob}
            for name, one in effect.of(stack).items()
            for path, mode, blob in effect.listed(one)
        ],
        "edited": list(made.edited),
        "left_out": list(made.left_out),
        "tools": {"stack": __version__, **made.tools},
    }


def bill_of_materials(stack: Stack, made: Made) -> bytes:
    """Write a CycloneDX 1.6 document: the wheel, what it was made of, and the changed files. The same every time."""
    from cyclonedx.model import HashAlgorithm, HashType, Property  # noqa: PLC0415  (a fifth of a second)
    from cyclonedx.model.bom import Bom, BomMetaData  # noqa: PLC0415
    from cyclonedx.model.component import Component, ComponentType, Pedigree  # noqa: PLC0415
    from cyclonedx.output.json import JsonV1Dot6  # noqa: PLC0415
    from packageurl import PackageURL  # noqa: PLC0415

    url = PackageURL("pypi", name=made.name, version=made.version)
    base = Component(
        name=made.base,
        type=ComponentType.FILE,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=made.base_sha256)],
        bom_ref=f"sha256:{made.base_sha256}",
    )
    own = effect.of(stack).get(made.upstream)
    changed = effect.listed(own) if own is not None else ()
    wheel = Component(
        name=made.name,
        version=made.version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=str(url),
        pedigree=Pedigree(ancestors=[base]),
        properties=[
            Property(name=f"stack:file:{path}", value=f"{mode} {blob}" if blob else "gone") for path, mode, blob in changed
        ],
    )
    serial = uuid.uuid5(_NAMESPACE, json.dumps(description(stack, made), sort_keys=True))
    bom = Bom(metadata=BomMetaData(component=wheel), serial_number=serial)
    text = json.loads(JsonV1Dot6(bom).output_as_string())
    text["metadata"].pop("timestamp", None)  # the document is the same on another day
    return encoded(text)


def _hash(patch: Patch) -> Sha256:
    return Sha256(hashlib.sha256(patch.raw).hexdigest())


def provenance(stack: Stack, made: Made, filename: str, sha256: Sha256) -> bytes:
    """An in-toto statement with SLSA provenance for a finished wheel."""
    dependencies: list[Mapping[str, Any]] = [{"name": made.base, "digest": {"sha256": made.base_sha256}}]
    for pin in stack.pins:
        found: dict[str, Any] = {"name": pin.upstream, "digest": {"gitCommit": pin.commit}}
        dependencies.append(found | ({"uri": f"git+{pin.git}"} if pin.git else {}))
    held = {made.upstream, *(pin.upstream for pin in stack.pins.vendored_in(made.upstream))}
    dependencies += [
        {"name": ref.path, "digest": {"sha256": _hash(patch)}, "annotations": {"subject": patch.subject}}
        for ref, patch in stack.patches.items()
        if ref.upstream in held
    ]
    return encoded(
        {
            "_type": _STATEMENT,
            "subject": [{"name": filename, "digest": {"sha256": sha256}}],
            "predicateType": _PROVENANCE,
            "predicate": {
                "buildDefinition": {
                    "buildType": f"urn:stack:wheel:{made.mode}:{FORMAT}",
                    "externalParameters": {"upstream": made.upstream, "version": made.version, "mode": made.mode},
                    "internalParameters": {"digest": digest.of(stack), "environment": dict(made.environment)},
                    "resolvedDependencies": dependencies,
                },
                "runDetails": {"builder": {"id": "urn:stack", "version": {"stack": __version__, **made.tools}}},
            },
        }
    )


def encoded(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """JSON, always the same bytes."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
