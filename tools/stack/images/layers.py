# SPDX-License-Identifier: Apache-2.0
"""The layers of an image in a layout: they are what the manifest names, and nothing in them leaves the image's root."""

import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from stack.base.errors import StackError
from stack.images import layout
from stack.images.image import Image, Layer, Platform

_CHUNK = 1 << 20
_MOST, _LARGEST = 10_000, 64 << 20
"""Files of a stack's source, and their bytes."""
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
            with _opened(Path(image.reference.place), layer) as archive:
                for _ in _inside(layer, archive):
                    pass


def read(folder: Path, platform: Platform, below: PurePosixPath) -> dict[PurePosixPath, bytes]:
    """The files below a folder of an image in a layout, by their paths there.

    Raises:
        StackError: a layer is not what it should be, or the files are more than the source of a stack.

    """
    found: dict[PurePosixPath, bytes] = {}
    left = _LARGEST
    for layer in platform.layers:
        with _opened(folder, layer) as archive:
            for member in _inside(layer, archive):
                path = PurePosixPath("/", member.name)
                if member.isfile() and path.is_relative_to(below):
                    opened = archive.extractfile(member)
                    assert opened is not None
                    data = opened.read(left + 1)
                    found[path.relative_to(below)] = data
                    left -= len(data)
                    if len(found) > _MOST or left < 0:
                        raise StackError(f"{below} of oci:{folder} is too much for a stack", "do not use this image")
    return found


@contextmanager
def _opened(folder: Path, layer: Layer) -> Iterator[tarfile.TarFile]:
    """A layer as an archive, once it is known to be what its digest says."""
    mode = _MODES.get(layer.media_type)
    if mode is None:
        raise StackError(
            f"the layer {layer.digest} is {layer.media_type!r:.80}", "build the image with gzip or without packing"
        )
    try:
        with layout.place(folder, layer.digest).open("rb") as file:
            _demand_digest(folder, layer, file)
            file.seek(0)
            with tarfile.open(fileobj=file, mode=mode) as archive:
                yield archive
    except OSError as failed:
        raise StackError(f"oci:{folder} lacks the layer {layer.digest} ({failed.strerror})", "copy the image again") from failed
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as bad:
        raise StackError(f"the layer {layer.digest} is no whole archive ({bad})", "build the image again") from bad


def _demand_digest(folder: Path, layer: Layer, file: IO[bytes]) -> None:
    found, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        found.update(chunk)
        size += len(chunk)
    if f"sha256:{found.hexdigest()}" != layer.digest or size != layer.size:
        raise StackError(f"oci:{folder}: the layer {layer.digest} is not what its name says", "copy the image again")


def _inside(layer: Layer, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members of a layer, each once it is known to stay in the image."""
    for member in archive:
        # A symbolic link is resolved inside the container; a hard link when the layer is unpacked.
        for name in (member.name, member.linkname if member.islnk() else ""):
            if name.startswith("/") or ".." in name.split("/"):
                raise StackError(f"the layer {layer.digest} writes outside the image ({name!r:.100})", "do not use it")
        yield member
