# SPDX-License-Identifier: Apache-2.0
"""The layers of an image in a layout: they are what the manifest names, and nothing in them leaves the image's root."""

import hashlib
import tarfile
import zlib
from pathlib import Path
from typing import IO, Literal

from stack.images import layout
from stack.images.image import Image, Layer
from stack.model.errors import StackError

_CHUNK = 1 << 20
_MODES: dict[str, Literal["r|", "r|gz"]] = {
    "application/vnd.oci.image.layer.v1.tar": "r|",
    "application/vnd.oci.image.layer.v1.tar+gzip": "r|gz",
    "application/vnd.docker.image.rootfs.diff.tar": "r|",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "r|gz",
}


def check(image: Image) -> None:
    """Read every layer of an image in a layout.

    Raises:
        StackError: one is missing, not what its digest says, or would write outside the image.

    """
    seen: set[str] = set()
    for layer in (layer for platform in image.platforms for layer in platform.layers):
        if layer.digest not in seen:
            seen.add(layer.digest)
            _check(Path(image.reference.place), layer)


def _check(folder: Path, layer: Layer) -> None:
    mode = _MODES.get(layer.media_type)
    if mode is None:
        raise StackError(
            f"the layer {layer.digest} is {layer.media_type!r:.80}", "build the image with gzip or without packing"
        )
    try:
        with layout.place(folder, layer.digest).open("rb") as file:
            _demand_digest(folder, layer, file)
            file.seek(0)
            _demand_inside(layer, file, mode)
    except OSError as failed:
        raise StackError(f"oci:{folder} lacks the layer {layer.digest} ({failed.strerror})", "copy the image again") from failed


def _demand_digest(folder: Path, layer: Layer, file: IO[bytes]) -> None:
    found, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        found.update(chunk)
        size += len(chunk)
    if f"sha256:{found.hexdigest()}" != layer.digest or size != layer.size:
        raise StackError(f"oci:{folder}: the layer {layer.digest} is not what its name says", "copy the image again")


def _demand_inside(layer: Layer, file: IO[bytes], mode: Literal["r|", "r|gz"]) -> None:
    try:
        with tarfile.open(fileobj=file, mode=mode) as archive:
            for member in archive:
                # A symbolic link is resolved inside the container; a hard link when the layer is unpacked.
                for name in (member.name, member.linkname if member.islnk() else ""):
                    if name.startswith("/") or ".." in name.split("/"):
                        raise StackError(f"the layer {layer.digest} writes outside the image ({name!r:.100})", "do not use it")
    except (tarfile.TarError, zlib.error, EOFError) as bad:
        raise StackError(f"the layer {layer.digest} is no whole archive ({bad})", "build the image again") from bad
