# SPDX-License-Identifier: Apache-2.0
"""Describe a wheel: its stack, a bill of materials, and a statement of how it was made."""

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
"""Namespace of bills' serial numbers: equal contents have equal serial numbers."""
_STATEMENT = "https://in-toto.io/Statement/v1"
_PROVENANCE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True, slots=True)
class Made:
    """A wheel to be written: name, version, mode (`overlay`), the input, and what was changed."""

    upstream: str
    name: str
    version: str
    mode: str
    base: str
    """The file that it is made from."""
    base_sha256: Sha256
    edited: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    """The versions of the tools besides this one, by name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that affect the result. They name paths of a machine, so they are in the statement but not in the wheel."""


def file_name(stack: Stack) -> str:
    """Return the name of the description in a wheel's dist-info folder."""
    return f"{stack.label}_stack.json"


def description(stack: Stack, made: Made) -> dict[str, Any]:
    """Describe a wheel's stack: digest, pins, files that its patches change, and what the wheel was made of and with.

    Patches' names and messages are only in the statement next to the wheel, because stacks of the same digest have the same
    wheels.
    """
    return {
        "format": FORMAT,
        "digest": digest.of(stack),
        **_lane(stack),
        "upstream": made.upstream,
        "version": made.version,
        "mode": made.mode,
        "base": {"file": made.base, "sha256": made.base_sha256},
        "pins": {pin.upstream: {"commit": pin.commit, "tree": pin.tree} for pin in stack.pins},
        "files": [
            {"upstream": name, "path": path, "mode": mode, "blob": blob}
            for name, changed in effect.of(stack).items()
            for path, mode, blob in effect.listed(changed)
        ],
        "edited": list(made.edited),
        "left_out": list(made.left_out),
        "tools": {"stack": __version__, **made.tools},
    }


def bill_of_materials(stack: Stack, made: Made) -> bytes:
    """Write a CycloneDX 1.6 document: the wheel, its input, and the changed files. Equal inputs give equal bytes."""
    from cyclonedx.model import HashAlgorithm, HashType, Property  # noqa: PLC0415 (takes a fifth of a second)
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
    text["metadata"].pop("timestamp", None)  # the document must not depend on the date
    return encoded(text)


def _lane(stack: Stack) -> dict[str, str]:
    """Return the lane of a stack as a key of a document; nothing for no lane, whose documents stay as they are."""
    return {} if stack.lane is None else {"lane": stack.lane}


def _hash(patch: Patch) -> Sha256:
    return Sha256(hashlib.sha256(patch.raw).hexdigest())


def provenance(stack: Stack, made: Made, filename: str, sha256: Sha256) -> bytes:
    """Make an in-toto statement with SLSA provenance for a finished wheel."""
    dependencies: list[Mapping[str, Any]] = [{"name": made.base, "digest": {"sha256": made.base_sha256}}]
    for pin in stack.pins:
        dependency: dict[str, Any] = {"name": pin.upstream, "digest": {"gitCommit": pin.commit}}
        dependencies.append(dependency | ({"uri": f"git+{pin.git}"} if pin.git else {}))
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
                    "externalParameters": {
                        "upstream": made.upstream,
                        "version": made.version,
                        "mode": made.mode,
                        **_lane(stack),
                    },
                    "internalParameters": {"digest": digest.of(stack), "environment": dict(made.environment)},
                    "resolvedDependencies": dependencies,
                },
                "runDetails": {"builder": {"id": "urn:stack", "version": {"stack": __version__, **made.tools}}},
            },
        }
    )


def encoded(value: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Encode JSON so that equal values give equal bytes."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()
