# SPDX-License-Identifier: Apache-2.0
"""What a wheel says of itself: the stack that it is of, its parts as a bill of materials, and how it was made."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stack import __version__
from stack.model import digest
from stack.model.ids import Sha256
from stack.model.patch import Patch
from stack.model.stack import Stack

FORMAT = 1
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
    """The stack that a wheel is of: digest, pins, all patches, what it was made of and with."""
    titles = {ref: one.title for one in stack.series for ref in one.patches}
    return {
        "format": FORMAT,
        "digest": digest.of(stack),
        "upstream": made.upstream,
        "version": made.version,
        "mode": made.mode,
        "base": {"file": made.base, "sha256": made.base_sha256},
        "pins": {pin.upstream: {"tag": pin.tag, "commit": pin.commit, "tree": pin.tree} for pin in stack.pins},
        "patches": [
            {
                "series": ref.series,
                "title": titles[ref],
                "upstream": ref.upstream,
                "file": ref.file,
                "subject": patch.subject,
                "sha256": _hash(patch),
            }
            for ref, patch in stack.patches.items()
        ],
        "edited": list(made.edited),
        "left_out": list(made.left_out),
        "tools": {"stack": __version__, **made.tools},
    }


def bill_of_materials(stack: Stack, made: Made) -> bytes:
    """A CycloneDX 1.6 document: the wheel, what it was made of, and the patches in it. The same every time."""
    from cyclonedx.model import HashAlgorithm, HashType, Property, XsUri  # noqa: PLC0415  (a fifth of a second)
    from cyclonedx.model.bom import Bom, BomMetaData  # noqa: PLC0415
    from cyclonedx.model.component import Component, ComponentType, Diff, PatchClassification, Pedigree  # noqa: PLC0415
    from cyclonedx.model.component import Patch as Change  # noqa: PLC0415
    from cyclonedx.output.json import JsonV1Dot6  # noqa: PLC0415
    from packageurl import PackageURL  # noqa: PLC0415

    url = PackageURL("pypi", name=made.name, version=made.version)
    base = Component(
        name=made.base,
        type=ComponentType.FILE,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=made.base_sha256)],
        bom_ref=f"sha256:{made.base_sha256}",
    )
    own = [ref for ref in stack.patches if ref.upstream == made.upstream]
    diffs = [Diff(url=XsUri(f"stacks/{ref.path}")) for ref in own]
    pedigree = Pedigree(ancestors=[base], patches=[Change(type=PatchClassification.UNOFFICIAL, diff=diff) for diff in diffs])
    wheel = Component(
        name=made.name,
        version=made.version,
        type=ComponentType.LIBRARY,
        purl=url,
        bom_ref=str(url),
        pedigree=pedigree,
        properties=[Property(name=f"stack:sha256:{ref.path}", value=_hash(stack.patches[ref])) for ref in own],
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
    dependencies += [
        {"name": ref.path, "digest": {"sha256": _hash(patch)}}
        for ref, patch in stack.patches.items()
        if ref.upstream == made.upstream
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
