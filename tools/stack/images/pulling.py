# SPDX-License-Identifier: Apache-2.0
"""An image from a registry as an OCI layout, with what is attested of it: whatever its kind of manifest, its digest stays.

skopeo turns Docker's manifests into OCI's where it writes a layout itself, and another digest is another image.
"""

import tempfile
from pathlib import Path

from stack.base.errors import StackError
from stack.images import attached, image, layout, skopeo
from stack.images.layout import Descriptor
from stack.images.reference import Reference
from stack.store import cache

TAG = "image"


def pull(where: Reference, folder: Path, *, tls: bool = True) -> Reference:
    """Fetch an image into a new layout.

    Raises:
        StackError: the folder is there, or the image cannot be had, or is another one than the reference's digest says.

    """
    return _written(folder, {TAG: _fetched(where, folder, tls)})


def save(where: Reference, folder: Path, *, tls: bool = True) -> Reference:
    """Fetch an image and its attestations into a new layout, which can be verified without a registry.

    Raises:
        StackError: as with `pull`; or nothing is attested.

    """
    tag = attached.attestations(image.read(where, tls=tls).digest)
    found = {TAG: _fetched(where, folder, tls), tag: _fetched(where.tagged(tag), folder, tls, more=True)}
    return _written(folder, found)


def _written(folder: Path, images: dict[str, Descriptor]) -> Reference:
    layout.finish(folder, images)
    return Reference(str(folder), TAG, layout=True)


def _fetched(where: Reference, folder: Path, tls: bool, *, more: bool = False) -> Descriptor:
    """Every file of an image as a blob of the layout, named by what is in it; the descriptor of its manifest."""
    if folder.exists() and not more:
        raise StackError(f"{folder} is there", "name a new folder")
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder) as place:
        skopeo.download(where, Path(place), tls=tls)
        manifest = (Path(place) / "manifest.json").read_bytes()
        for file in Path(place).iterdir():
            file.rename(blobs / cache.hash_of(file))
    found = skopeo.digest(manifest)
    if where.digest is not None and found != where.digest:
        raise StackError(
            f"{where.shown} has another digest ({found})", "the registry gives what was not asked for: do not use it"
        )
    return {"mediaType": image.kind(manifest, where), "digest": found, "size": len(manifest)}
