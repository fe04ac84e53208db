# SPDX-License-Identifier: Apache-2.0
"""Check the layers of an image in a layout: they match their digests, and no file leaves the image's root."""

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
"""Maximal number of files in a stack's source, and of their bytes."""
_MODES: dict[str, Literal["r|", "r|gz"]] = {
    "application/vnd.oci.image.layer.v1.tar": "r|",
    "application/vnd.oci.image.layer.v1.tar+gzip": "r|gz",
    "application/vnd.docker.image.rootfs.diff.tar": "r|",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "r|gz",
}


def check(image: Image) -> None:
    """Read and check every layer of an image in a layout.

    Raises:
        StackError: a layer is missing, does not match its digest, or would write outside the image.

    """
    seen: set[str] = set()
    for layer in (layer for platform in image.platforms for layer in platform.layers):
        if layer.digest not in seen:
            seen.add(layer.digest)
            with _opened(Path(image.reference.place), layer) as archive:
                for _ in _inside(layer, archive):
                    pass


def read(folder: Path, platform: Platform, below: PurePosixPath) -> dict[PurePosixPath, bytes]:
    """Read the files below a folder of an image in a layout, by their relative paths.

    Raises:
        StackError: a layer is invalid, or the files are too large for a stack's source.

    """
    contents: dict[PurePosixPath, bytes] = {}
    left = _LARGEST
    for layer in platform.layers:
        with _opened(folder, layer) as archive:
            for member in _inside(layer, archive):
                path = PurePosixPath("/", member.name)
                if member.isfile() and path.is_relative_to(below):
                    opened = archive.extractfile(member)
                    assert opened is not None
                    data = opened.read(left + 1)
                    contents[path.relative_to(below)] = data
                    left -= len(data)
                    if len(contents) > _MOST or left < 0:
                        raise StackError(f"{below} of oci:{folder} is too large for a stack", "do not use this image")
    return contents


@contextmanager
def _opened(folder: Path, layer: Layer) -> Iterator[tarfile.TarFile]:
    """Open a layer as an archive, after checking its digest."""
    mode = _MODES.get(layer.media_type)
    if mode is None:
        raise StackError(
            f"the layer {layer.digest} is {layer.media_type!r:.80}", "build the image with gzip or without compression"
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
        raise StackError(f"the layer {layer.digest} is not a complete archive ({bad})", "build the image again") from bad


def _demand_digest(folder: Path, layer: Layer, file: IO[bytes]) -> None:
    hash_, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        hash_.update(chunk)
        size += len(chunk)
    if f"sha256:{hash_.hexdigest()}" != layer.digest or size != layer.size:
        raise StackError(f"oci:{folder}: the layer {layer.digest} does not match its digest", "copy the image again")


def _inside(layer: Layer, archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a layer, each after checking that it stays in the image."""
    for member in archive:
        # Only hard links matter: a symbolic link is resolved inside the container, but a hard link during unpacking.
        for name in (member.name, member.linkname if member.islnk() else ""):
            if name.startswith("/") or ".." in name.split("/"):
                raise StackError(f"the layer {layer.digest} writes outside the image ({name!r:.100})", "do not use it")
        yield member
