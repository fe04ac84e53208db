# SPDX-License-Identifier: Apache-2.0
"""Attestations in cosign's earlier form: envelopes as layers of an artifact under the tag `sha256-<hex>.att`."""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import layout, referrers, skopeo, statement
from stack.images.envelope import PAYLOAD, payload
from stack.images.image import Image
from stack.images.layout import MANIFEST, Descriptor
from stack.images.reference import DIGEST, Reference
from stack.images.registry_client import RegistryClient
from stack.model.document import Table

ENVELOPE = "application/vnd.dsse.envelope.v1+json"
_COSIGN = "dev.cosignproject.cosign/signature"
"""cosign requires this annotation on every layer; it is empty because the envelope contains the signatures."""
_MOST = 256
"""Maximal number of attestations of an image that are read."""


def attestations(digest: str) -> str:
    """Return the tag of an image's attestations."""
    return f"{referrers.tag(digest)}.att"


def fetch(image: Image, *, tls: bool = True) -> tuple[bytes, ...]:
    """Return the envelopes attached to an image; for a layout, those in the layout under the same tag.

    Raises:
        StackError: they cannot be read, or do not match their digests.

    """
    tag = attestations(image.digest)
    if image.reference.layout:
        return _envelopes(Path(image.reference.place), tag)
    with tempfile.TemporaryDirectory(prefix="stack-attested-") as folder:
        try:
            skopeo.copy(image.reference.tagged(tag), Reference(folder, tag, layout=True), all_=True, tls=tls)
        except skopeo.Absent:
            return ()
        return _envelopes(Path(folder), tag)


def _envelopes(folder: Path, tag: str) -> tuple[bytes, ...]:
    try:
        layers = _layers(layout.manifest(folder, tag), tag)
    except skopeo.Absent:
        return ()
    return tuple(layout.blob(folder, layer["digest"]) for layer in layers if layer["mediaType"] == ENVELOPE)


def attach(client: RegistryClient, image: Image, envelopes: Sequence[bytes]) -> None:
    """Attach further envelopes to an image.

    The tag is read again after it was written: another writer may have replaced it meanwhile. No index lists the artifact, since
    bundles are what refers to an image.

    Raises:
        StackError: the registry refuses them, or other writers keep replacing the tag.

    """
    # In one order: a run that goes on after another was killed makes the same manifest again.
    added = sorted((_layer(item) for item in envelopes), key=lambda layer: str(layer["digest"]))
    for data in (b"{}", *envelopes):
        client.put_blob(data)
    tag, settled, took = attestations(image.digest), False, 0.0
    for attempt in referrers.tries():
        began = time.monotonic()
        now = _now(client, tag)
        kept = _layers(now, tag) if now is not None else ()
        if now is not None and {item["digest"] for item in added} <= {item["digest"] for item in kept}:
            if settled:
                return
            settled = True
            time.sleep(max(referrers.SETTLED, 4 * took))
            continue
        settled = False
        client.put_manifest(tag, _manifest(kept, added), MANIFEST)
        took = max(took, time.monotonic() - began)
        referrers.pause(attempt)
    raise StackError(f"others, or the registry, keep replacing {tag}", "run the command again when they have finished")


def _manifest(kept: Sequence[Descriptor], added: Sequence[Descriptor]) -> bytes:
    new = {item["digest"] for item in added}
    return layout.encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": PAYLOAD,
            "config": layout.described(b"{}", referrers.EMPTY),
            "layers": [*(item for item in kept if item["digest"] not in new), *added],
        }
    )


def _layer(envelope: bytes) -> Descriptor:
    kind = statement.read(payload(envelope)).kind
    return layout.described(envelope, ENVELOPE, annotations={_COSIGN: "", "predicateType": kind})


def _now(client: RegistryClient, tag: str) -> bytes | None:
    try:
        return client.manifest(tag).data
    except skopeo.Absent:
        return None


def _layers(data: bytes, where: str) -> tuple[Descriptor, ...]:
    try:
        top: Any = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{where} is not a manifest", "publish the image again") from bad
    if not isinstance(top, dict):
        raise StackError(f"{where} is not a manifest", "publish the image again")
    entries = Table(top, file=Path(where)).tables("layers")
    if len(entries) > _MOST:
        raise StackError(f"{where} lists {len(entries)} entries, more than {_MOST}", "remove some of them")
    for entry in entries:
        entry.text("digest", pattern=DIGEST, meaning="a digest")
        entry.text("mediaType")
        entry.whole("size")
    descriptors: list[Descriptor] = top.get("layers", [])
    return tuple(descriptors)
