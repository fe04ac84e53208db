# SPDX-License-Identifier: Apache-2.0
"""OCI layouts: images as files, named by their digests. What is read is compared with its digest."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.images import reference
from stack.images.reference import DIGEST
from stack.images.skopeo import Absent, digest
from stack.store import cache

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
NAME = "org.opencontainers.image.ref.name"

LIMIT = 256 << 20
"""Bytes of the largest blob that is read at once: attestations and configurations; the SBOM of a large image takes 20 MiB."""

Descriptor = dict[str, Any]


def encode(value: object) -> bytes:
    """JSON as this project writes it into registries: the same value gives the same bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def place(folder: Path, blob_digest: str) -> Path:
    """Where a blob lies.

    Raises:
        StackError: the digest is none; others would name files elsewhere.

    """
    if not re.fullmatch(DIGEST, blob_digest):
        raise StackError(f"{blob_digest!r:.100} is no digest", "do not use this image")
    return folder / "blobs" / "sha256" / blob_digest.removeprefix("sha256:")


def blob(folder: Path, blob_digest: str) -> bytes:
    """A blob's bytes.

    Raises:
        StackError: it is missing, too large or another one.

    """
    file = place(folder, blob_digest)
    try:
        with file.open("rb") as opened:
            data = opened.read(LIMIT + 1)
    except OSError as failed:
        raise StackError(f"oci:{folder} lacks {blob_digest} ({failed.strerror})", "copy the image again") from failed
    if len(data) > LIMIT or digest(data) != blob_digest:
        raise StackError(f"oci:{folder}: {blob_digest} is not what its name says", "copy the image again")
    return data


def manifest(folder: Path, tag: str | None) -> bytes:
    """The manifest or index that a tag names in a layout; without a tag its only one, beside what is attested of it.

    skopeo 1.9 finds none of Docker's kind under a tag.

    Raises:
        Absent: there is none.
        StackError: it is no layout, or has several where no tag says which.

    """
    entries = listed(folder)
    named = [((one.get("annotations") or {}).get(NAME), one) for one in entries]
    attested = tag is None and len(entries) > 1
    fitting = [
        one
        for name, one in named
        if (name == tag if tag is not None else not (attested and str(name).startswith(reference.ATTESTED)))
    ]
    if not fitting:
        raise Absent(f"oci:{folder}{f':{tag}' if tag else ''} does not exist", "check the name")
    if len(fitting) > 1:
        raise StackError(f"oci:{folder} has {len(fitting)} images", "say which: oci:FOLDER:TAG")
    return blob(folder, str(fitting[0].get("digest")))


def listed(folder: Path) -> list[Descriptor]:
    """What a layout's index lists.

    Raises:
        Absent: it is not there.
        StackError: it is no layout.

    """
    try:
        entries = json.loads((folder / "index.json").read_bytes())["manifests"]
    except OSError as failed:
        raise Absent(f"oci:{folder} is no OCI layout ({failed.strerror})", "check the folder") from failed
    except (ValueError, LookupError, TypeError, RecursionError) as bad:
        raise StackError(f"oci:{folder} has no sound index.json", "copy the image again") from bad
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise StackError(f"oci:{folder} has no sound index.json", "copy the image again")
    return entries


def put(folder: Path, data: bytes, media_type: str, **more: object) -> Descriptor:
    """Add a blob; returns its descriptor, with the keys of `more` in it."""
    name = digest(data)
    file = place(folder, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    cache.put(file, data)
    return {"mediaType": media_type, "digest": name, "size": len(data), **more}


def finish(folder: Path, images: Mapping[str, Descriptor]) -> None:
    """Make the folder a layout that has these images, by their tags."""
    cache.put(folder / "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    entries: Sequence[Descriptor] = [{**one, "annotations": {NAME: tag}} for tag, one in images.items()]
    cache.put(folder / "index.json", encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))


def blobs(folder: Path) -> Iterator[str]:
    """The digests of all blobs that are there, in order."""
    with os.scandir(folder / "blobs" / "sha256") as entries:
        yield from sorted(f"sha256:{entry.name}" for entry in entries if re.fullmatch(r"[0-9a-f]{64}", entry.name))
