# SPDX-License-Identifier: Apache-2.0
"""Small images, as OCI layouts."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from stack.images import layout
from stack.images.skopeo import digest

CREATED = "2026-11-21T21:40:00Z"
DOCKER = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.container.image.v1+json",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
)


def layer(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def linked(name: str, target: str) -> bytes:
    """A layer with a hard link."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = tarfile.LNKTYPE, target
        archive.addfile(member)
    return made.getvalue()


def manifest(
    folder: Path,
    labels: Mapping[str, str],
    files: Mapping[str, bytes],
    architecture: str = "amd64",
    docker: bool = False,
    entry: object = None,
) -> layout.Descriptor:
    """An image of one layer, added to a layout; returns its descriptor."""
    content = layer(files)
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": {"Labels": dict(labels), "Entrypoint": entry},
        "rootfs": {"type": "layers", "diff_ids": [digest(content)]},
    }
    packed = gzip.compress(content, mtime=0)
    kinds = DOCKER if docker else (layout.MANIFEST, layout.CONFIG, "application/vnd.oci.image.layer.v1.tar+gzip")
    data = layout.encode(
        {
            "schemaVersion": 2,
            "mediaType": kinds[0],
            "config": layout.put(folder, layout.encode(config), kinds[1]),
            "layers": [layout.put(folder, packed, kinds[2])],
        }
    )
    return layout.put(folder, data, kinds[0])


def image(folder: Path, labels: Mapping[str, str], files: Mapping[str, bytes] | None = None, *, docker: bool = False) -> str:
    """A layout with one image, with OCI's kind of manifest or Docker's; returns its digest."""
    made = manifest(folder, labels, files or {"usr/bin/serve": b"#!/bin/sh\n"}, docker=docker)
    layout.finish(folder, {"latest": made})
    return str(made["digest"])


def multi(folder: Path, labels: Mapping[str, str], *, second: Mapping[str, str] | None = None) -> tuple[str, tuple[str, ...]]:
    """A layout with an index of two platforms' images; returns its digest, and theirs. `second`: other labels of the second."""
    made = [
        {**manifest(folder, said, {"arch": name.encode()}, name), "platform": {"os": "linux", "architecture": name}}
        for name, said in (("amd64", labels), ("arm64", labels if second is None else second))
    ]
    data = layout.encode({"schemaVersion": 2, "mediaType": layout.INDEX, "manifests": made})
    whole = layout.put(folder, data, layout.INDEX)
    layout.finish(folder, {"latest": whole})
    return str(whole["digest"]), tuple(str(one["digest"]) for one in made)
