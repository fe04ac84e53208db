# SPDX-License-Identifier: Apache-2.0
"""Attestations beside their image: an OCI artifact that its tag `sha256-<hex>.att` names, as cosign looks for it, and the index
`sha256-<hex>`, by which registries without the referrers API list what refers to an image (OCI distribution 1.1, tag schema).

What others attached stays.
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
"""cosign wants this annotation on every layer; empty, since the envelope holds the signatures."""
_MOST = 256
"""Attestations of an image that are looked at."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is attached now, in a layout on disk: the artifact's digest and layers, and what else the index lists."""

    layers: tuple[Descriptor, ...]
    others: tuple[Descriptor, ...]


def referrers(digest: str) -> str:
    """The tag of the index of what refers to an image."""
    return digest.replace(":", "-")


def attestations(digest: str) -> str:
    """The tag of an image's attestations."""
    return f"{referrers(digest)}.att"


def fetch(image: Image, *, tls: bool = True) -> tuple[bytes, ...]:
    """The envelopes that are attached to an image; in a layout, those that lie beside it under the same tag.

    Raises:
        StackError: they cannot be read, or are not what their digests say.

    """
    tag = attestations(image.digest)
    if image.reference.layout:
        return _envelopes(Path(image.reference.place), tag)
    with tempfile.TemporaryDirectory(prefix="stack-attested-") as folder:
        found = _pulled(image.reference, tag, Path(folder), tls)
        return _envelopes(Path(folder), tag) if found is not None else ()


def _envelopes(folder: Path, tag: str) -> tuple[bytes, ...]:
    try:
        layers = _descriptors(layout.manifest(folder, tag), "layers", tag)
    except skopeo.Absent:
        return ()
    return tuple(layout.blob(folder, one["digest"]) for one in layers if one["mediaType"] == ENVELOPE)


def attach(image: Image, repository: Reference, envelopes: Sequence[bytes], *, tls: bool = True) -> None:
    """Add envelopes to what is attached to an image in a repository; first the index, then the tag that is looked for.

    Raises:
        StackError: the registry does not take them.

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
    added = [_layer(one, work) for one in envelopes]
    new = {one["digest"] for one in added}
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": PAYLOAD,
        "config": layout.put(work, b"{}", _EMPTY),
        "layers": [*(one for one in kept.layers if one["digest"] not in new), *added],
        "subject": image.descriptor,
    }
    # The index should repeat the type here, but skopeo 1.9 pushes no index that does: it takes the key for a change of its own.
    return layout.put(work, layout.encode(manifest), MANIFEST)


def _layer(envelope: bytes, work: Path) -> Descriptor:
    kind = statement.read(payload(envelope)).kind
    return layout.put(work, envelope, ENVELOPE, annotations={_COSIGN: "", "predicateType": kind})


def _kept(image: Image, repository: Reference, work: Path, tls: bool) -> _Kept:
    """What is there already. An index alone is what a publisher left who was killed, or others'."""
    artifact, index = attestations(image.digest), referrers(image.digest)
    now = _pulled(repository, artifact, work, tls)
    then = _pulled(repository, index, work, tls)
    return _Kept(
        _descriptors(now, "layers", artifact) if now is not None else (),
        tuple(
            one
            for one in (_descriptors(then, "manifests", index) if then is not None else ())
            if now is None or one["digest"] != skopeo.digest(now)
        ),
    )


def _pulled(place: Reference, tag: str, work: Path, tls: bool) -> bytes | None:
    """The manifest under a tag, with everything that it names in a layout on disk; None where it does not exist."""
    try:
        skopeo.copy(place.tagged(tag), Reference(str(work), tag, layout=True), all_=True, tls=tls)
        return layout.manifest(work, tag)
    except skopeo.Absent:
        return None


def _descriptors(data: bytes, key: str, where: str) -> tuple[Descriptor, ...]:
    try:
        top: Any = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{where} is no manifest", "publish the image again") from bad
    if not isinstance(top, dict):
        raise StackError(f"{where} is no manifest", "publish the image again")
    found = Table(top, file=Path(where)).tables(key)
    if len(found) > _MOST:
        raise StackError(f"{where} lists {len(found)} things", "clean it up")
    for one in found:
        one.text("digest", pattern=DIGEST, meaning="a digest")
        one.text("mediaType")
        one.whole("size")
    descriptors: list[Descriptor] = top.get(key, [])
    return tuple(descriptors)
