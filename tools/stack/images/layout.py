# SPDX-License-Identifier: Apache-2.0
"""OCI layouts: images as files named by their digests. Everything that is read is compared with its digest."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.base.text import counted
from stack.images import reference
from stack.images.reference import DIGEST
from stack.images.skopeo import Absent, digest
from stack.store import cache

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
NAME = "org.opencontainers.image.ref.name"

LIMIT = 256 << 20
"""Maximal bytes of a blob that is read at once, an attestation or configuration; a large image's SBOM has 20 MiB."""

Descriptor = dict[str, Any]


def encode(value: object) -> bytes:
    """Encode JSON for registries: equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def place(folder: Path, blob_digest: str) -> Path:
    """Return the path of a blob.

    Raises:
        StackError: the text is not a digest, and could name a file elsewhere.

    """
    if not re.fullmatch(DIGEST, blob_digest):
        raise StackError(f"{blob_digest!r:.100} is not a digest", "do not use this image")
    return folder / "blobs" / "sha256" / blob_digest.removeprefix("sha256:")


def blob(folder: Path, blob_digest: str, *, most: int = LIMIT) -> bytes:
    """Read a blob of at most `most` bytes.

    Raises:
        StackError: it is missing, too large, or does not match its digest.

    """
    file = place(folder, blob_digest)
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as failed:
        raise StackError(f"oci:{folder} lacks {blob_digest} ({failed.strerror})", "copy the image again") from failed
    if len(data) > most or digest(data) != blob_digest:
        raise StackError(f"oci:{folder}: {blob_digest} does not match its digest", "copy the image again")
    return data


def manifest(folder: Path, tag: str | None) -> bytes:
    """Read the manifest or index that a tag names in a layout; without a tag, the only one besides attestations.

    skopeo 1.9 finds no manifest of Docker's kind by a tag, so it is not used here.

    Raises:
        Absent: there is no such manifest.
        StackError: the folder is not a layout, or has several images and no tag was given.

    """
    entries = listed(folder)
    named = [((entry.get("annotations") or {}).get(NAME), entry) for entry in entries]
    attested = tag is None and len(entries) > 1
    fitting = [
        entry
        for name, entry in named
        if (name == tag if tag is not None else not (attested and str(name).startswith(reference.ATTESTED)))
    ]
    if not fitting:
        raise Absent(f"oci:{folder}{f':{tag}' if tag else ''} does not exist", "check the name")
    if len(fitting) > 1:
        raise StackError(f"oci:{folder} has {counted(len(fitting), 'image')}", "name one: oci:FOLDER:TAG")
    return blob(folder, str(fitting[0].get("digest")))


def listed(folder: Path) -> list[Descriptor]:
    """Return the entries of a layout's index.

    Raises:
        Absent: the index does not exist.
        StackError: the folder is not a layout.

    """
    try:
        entries = json.loads((folder / "index.json").read_bytes())["manifests"]
    except OSError as failed:
        raise Absent(f"oci:{folder} is not an OCI layout ({failed.strerror})", "check the folder") from failed
    except (ValueError, LookupError, TypeError, RecursionError) as bad:
        raise StackError(f"oci:{folder} has no valid index.json", "copy the image again") from bad
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise StackError(f"oci:{folder} has no valid index.json", "copy the image again")
    return entries


def described(data: bytes, media_type: str, **more: object) -> Descriptor:
    """Return the descriptor of a blob, with the keys of `more`."""
    return {"mediaType": media_type, "digest": digest(data), "size": len(data), **more}


def put(folder: Path, data: bytes, media_type: str, **more: object) -> Descriptor:
    """Add a blob, and return its descriptor with the keys of `more`."""
    descriptor = described(data, media_type, **more)
    file = place(folder, str(descriptor["digest"]))
    file.parent.mkdir(parents=True, exist_ok=True)
    cache.put(file, data)
    return descriptor


def finish(folder: Path, images: Mapping[str, Descriptor]) -> None:
    """Write the files that make a folder an OCI layout with these images, by their tags."""
    cache.put(folder / "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    entries: Sequence[Descriptor] = [{**descriptor, "annotations": {NAME: tag}} for tag, descriptor in images.items()]
    cache.put(folder / "index.json", encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))


def blobs(folder: Path) -> Iterator[str]:
    """Yield the digests of all blobs in a layout, in order."""
    with os.scandir(folder / "blobs" / "sha256") as entries:
        yield from sorted(f"sha256:{entry.name}" for entry in entries if re.fullmatch(r"[0-9a-f]{64}", entry.name))
