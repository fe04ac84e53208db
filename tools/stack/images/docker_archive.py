# SPDX-License-Identifier: Apache-2.0
"""Write an image of a layout as the archive that `docker load` and `podman load` read (Docker Image Specification v1.2).

Layers stay compressed as they are, and each is compared with its digest as it is written.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import IO

from stack.base.errors import StackError
from stack.images import layout
from stack.images.image import Layer, Platform

_CHUNK = 1 << 20


class _Checked(io.RawIOBase):
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.hash = file, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hash.update(data)
        return data


def write(folder: Path, platform: Platform, name: str, out: IO[bytes]) -> None:
    """Write an image under a name into a stream. The file that names the layers comes last, so a broken image is never loaded.

    Raises:
        StackError: A blob is missing or does not match its digest.
        OSError: The stream cannot be written.

    """
    config = layout.blob(folder, platform.config)
    config_name = f"{platform.config.removeprefix('sha256:')}.json"
    names = [f"{layer.digest.removeprefix('sha256:')}.tar" for layer in platform.layers]
    listed = [{"Config": config_name, "RepoTags": [name], "Layers": names}]
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as archive:
        _add(archive, config_name, config)
        for path, layer in dict(zip(names, platform.layers, strict=True)).items():
            _add_layer(archive, path, folder, layer)
        _add(archive, "manifest.json", json.dumps(listed).encode())


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_member(name, len(data)), io.BytesIO(data))


def _add_layer(archive: tarfile.TarFile, name: str, folder: Path, layer: Layer) -> None:
    try:
        file = layout.place(folder, layer.digest).open("rb")
    except OSError as failed:
        raise StackError(f"oci:{folder} lacks the layer {layer.digest} ({failed.strerror})", "copy the image again") from failed
    with file:
        if file.seek(0, io.SEEK_END) != layer.size:
            raise StackError(f"oci:{folder}: the layer {layer.digest} is incomplete", "copy the image again")
        file.seek(0)
        checked = _Checked(file)
        archive.addfile(_member(name, layer.size), checked)
        if f"sha256:{checked.hash.hexdigest()}" != layer.digest:
            raise StackError(f"oci:{folder}: the layer {layer.digest} does not match its digest", "copy the image again")


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member
