# SPDX-License-Identifier: Apache-2.0
"""Pull an image into an OCI layout, with its attestations, without changing its digest.

If skopeo writes a layout itself, it converts Docker manifests to OCI manifests, which have another digest.
"""

import tempfile
from pathlib import Path

from stack.base.errors import StackError
from stack.images import attached, bundle, image, layout, referrers, skopeo
from stack.images.image import Image
from stack.images.layout import INDEX, MANIFEST, Descriptor
from stack.images.reference import Reference
from stack.images.registry_client import RegistryClient
from stack.store import cache

TAG = "image"


def pull(where: Reference, folder: Path, *, tls: bool = True) -> Reference:
    """Pull an image into a new layout.

    Raises:
        StackError: the folder exists, the image cannot be pulled, or its digest differs from the reference's.

    """
    return _written(folder, {TAG: _fetched(where, folder, tls)})


def save(where: Reference, folder: Path, *, tls: bool = True) -> Reference:
    """Pull an image and its attestations into a new layout that can be verified without a registry.

    Raises:
        StackError: as with `pull`, or the image has no attestations.

    """
    found = image.read(where, tls=tls)
    images = {TAG: _fetched(where, folder, tls)} | _bundles(found, folder, tls)
    tag = attached.attestations(found.digest)
    try:
        images[tag] = _fetched(where.tagged(tag), folder, tls, more=True)
    except skopeo.Absent:
        if len(images) == 1:
            raise
    return _written(folder, images)


def _bundles(found: Image, folder: Path, tls: bool) -> dict[str, Descriptor]:
    """Keep the bundles of an image, and an index of them under the tag that registries without referrers have."""
    with RegistryClient(Reference(found.reference.place), tls=tls) as client:
        kept: list[Descriptor] = []

        def manifest(name: str, _: int) -> bytes:
            data = client.manifest(name).data
            kept.append(layout.put(folder, data, MANIFEST, artifactType=bundle.TYPE))
            return data

        read = referrers.bundles(referrers.listed(client, found.digest), manifest, client.blob)
    for item in read:
        layout.put(folder, item.data, bundle.TYPE)
    layout.put(folder, b"{}", referrers.EMPTY)
    names = {item.digest for item in read}
    entries = [entry for entry in kept if entry["digest"] in names]
    if not entries:
        return {}
    index = layout.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})
    return {referrers.tag(found.digest): layout.put(folder, index, INDEX)}


def _written(folder: Path, images: dict[str, Descriptor]) -> Reference:
    layout.finish(folder, images)
    return Reference(str(folder), TAG, layout=True)


def _fetched(where: Reference, folder: Path, tls: bool, *, more: bool = False) -> Descriptor:
    """Download every file of an image as a blob named by its hash, and return the manifest's descriptor."""
    if folder.exists() and not more:
        raise StackError(f"{folder} exists", "name a new folder")
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as place:
        skopeo.download(where, Path(place), tls=tls)
        manifest = (Path(place) / "manifest.json").read_bytes()
        for file in Path(place).iterdir():
            file.rename(blobs / cache.hash_of(file))
    actual = skopeo.digest(manifest)
    if where.digest is not None and actual != where.digest:
        raise StackError(
            f"{where.shown} has another digest ({actual})", "the registry returns a different image: do not use it"
        )
    return {"mediaType": image.kind(manifest, where), "digest": actual, "size": len(manifest)}
