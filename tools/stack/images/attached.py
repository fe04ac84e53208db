# SPDX-License-Identifier: Apache-2.0
"""Attach attestations to an image in its repository: an artifact for cosign, and an index for other tools.

The tag `sha256-<hex>.att` names the artifact, as cosign expects. The index `sha256-<hex>` lists what refers to an image, for
registries without the referrers API (OCI distribution 1.1, tag schema). What other tools attached is kept.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import layout, skopeo, statement
from stack.images.envelope import PAYLOAD, payload
from stack.images.image import Image
from stack.images.layout import INDEX, MANIFEST, Descriptor
from stack.images.reference import DIGEST, Reference
from stack.model.document import Table

ENVELOPE = "application/vnd.dsse.envelope.v1+json"
_EMPTY = "application/vnd.oci.empty.v1+json"
_COSIGN = "dev.cosignproject.cosign/signature"
"""cosign requires this annotation on every layer; it is empty because the envelope contains the signatures."""
_MOST = 256
"""Maximal number of attestations of an image that are read."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The artifacts attached now, read from a layout: the layers of ours, and the index's other entries."""

    layers: tuple[Descriptor, ...]
    others: tuple[Descriptor, ...]


def referrers(digest: str) -> str:
    """Return the tag of the index that lists what refers to an image."""
    return digest.replace(":", "-")


def attestations(digest: str) -> str:
    """Return the tag of an image's attestations."""
    return f"{referrers(digest)}.att"


def fetch(image: Image, *, tls: bool = True) -> tuple[bytes, ...]:
    """Return the envelopes attached to an image; for a layout, those in the layout under the same tag.

    Raises:
        StackError: they cannot be read, or do not match their digests.

    """
    tag = attestations(image.digest)
    if image.reference.layout:
        return _envelopes(Path(image.reference.place), tag)
    with tempfile.TemporaryDirectory(prefix="stack-attested-") as folder:
        manifest = _pulled(image.reference, tag, Path(folder), tls)
        return _envelopes(Path(folder), tag) if manifest is not None else ()


def _envelopes(folder: Path, tag: str) -> tuple[bytes, ...]:
    try:
        layers = _descriptors(layout.manifest(folder, tag), "layers", tag)
    except skopeo.Absent:
        return ()
    return tuple(layout.blob(folder, layer["digest"]) for layer in layers if layer["mediaType"] == ENVELOPE)


def attach(image: Image, repository: Reference, envelopes: Sequence[bytes], *, tls: bool = True) -> None:
    """Attach further envelopes to an image in a repository; the index is pushed first, then the tag that readers look for.

    Raises:
        StackError: the registry refuses them.

    """
    with tempfile.TemporaryDirectory(prefix="stack-attested-") as folder:
        work = Path(folder)
        kept = _kept(image, repository, work, tls)
        artifact = _artifact(image, kept, envelopes, work)
        index = layout.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": [*kept.others, artifact]})
        tags = {attestations(image.digest): artifact, referrers(image.digest): layout.put(work, index, INDEX)}
        layout.finish(work, tags)
        for tag in (referrers(image.digest), attestations(image.digest)):
            skopeo.copy(Reference(str(work), tag, layout=True), repository.tagged(tag), all_=True, tls=tls)


def _artifact(image: Image, kept: _Kept, envelopes: Sequence[bytes], work: Path) -> Descriptor:
    added = [_layer(item, work) for item in envelopes]
    new = {item["digest"] for item in added}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": PAYLOAD,
        "config": layout.put(work, b"{}", _EMPTY),
        "layers": [*(item for item in kept.layers if item["digest"] not in new), *added],
        "subject": image.descriptor,
    }
    # The index should repeat the artifact type, but skopeo 1.9 rejects such an index as changed.
    return layout.put(work, layout.encode(manifest), MANIFEST)


def _layer(envelope: bytes, work: Path) -> Descriptor:
    kind = statement.read(payload(envelope)).kind
    return layout.put(work, envelope, ENVELOPE, annotations={_COSIGN: "", "predicateType": kind})


def _kept(image: Image, repository: Reference, work: Path, tls: bool) -> _Kept:
    """Return what is attached already. An index without our artifact is from a killed publisher or from other tools."""
    artifact, index = attestations(image.digest), referrers(image.digest)
    now = _pulled(repository, artifact, work, tls)
    then = _pulled(repository, index, work, tls)
    return _Kept(
        _descriptors(now, "layers", artifact) if now is not None else (),
        tuple(
            entry
            for entry in (_descriptors(then, "manifests", index) if then is not None else ())
            if now is None or entry["digest"] != skopeo.digest(now)
        ),
    )


def _pulled(place: Reference, tag: str, work: Path, tls: bool) -> bytes | None:
    """Pull the manifest under a tag, with everything it names, into a layout; None if the tag does not exist."""
    try:
        skopeo.copy(place.tagged(tag), Reference(str(work), tag, layout=True), all_=True, tls=tls)
        return layout.manifest(work, tag)
    except skopeo.Absent:
        return None


def _descriptors(data: bytes, key: str, where: str) -> tuple[Descriptor, ...]:
    try:
        top: Any = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{where} is not a manifest", "publish the image again") from bad
    if not isinstance(top, dict):
        raise StackError(f"{where} is not a manifest", "publish the image again")
    entries = Table(top, file=Path(where)).tables(key)
    if len(entries) > _MOST:
        raise StackError(f"{where} lists {len(entries)} entries, more than {_MOST}", "remove some of them")
    for entry in entries:
        entry.text("digest", pattern=DIGEST, meaning="a digest")
        entry.text("mediaType")
        entry.whole("size")
    descriptors: list[Descriptor] = top.get(key, [])
    return tuple(descriptors)
