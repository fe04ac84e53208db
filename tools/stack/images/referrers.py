# SPDX-License-Identifier: Apache-2.0
"""Read the artifacts that refer to an image in its repository (OCI distribution 1.1), and add Sigstore bundles.

A registry with the referrers API lists what it has. For the others each writer keeps an index under the tag `sha256-<hex>`. Two
writers can replace each other's index, so it is read again after it was written, until nothing is missing.
"""

import itertools
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from stack.base.errors import StackError
from stack.base.text import counted
from stack.images import bundle, envelope, layout, registry_client, statement
from stack.images.image import Image
from stack.images.layout import INDEX, MANIFEST, Descriptor
from stack.images.reference import DIGEST
from stack.images.registry_client import ChangedError, RegistryClient, Tagged
from stack.images.skopeo import Absent
from stack.model.document import Table

EMPTY = "application/vnd.oci.empty.v1+json"
PREDICATE = "dev.sigstore.bundle.predicateType"
_CONTENT = "dev.sigstore.bundle.content"
_MOST = 256
"""Maximal number of referrers of an image that are looked at."""
_TOTAL = 512 << 20
"""Maximal bytes of all bundles of an image together."""
_TRIES = 30
_PATIENCE = 120.0
"""Minimal tries, and minimal seconds of trying, before an error says that others keep replacing it."""
SETTLED = 0.5
"""Seconds after which an index is read once more, or four times as long as reading and writing it took here: another writer needs less
between the two."""
_PAUSE = 0.2
"""Maximal seconds before an index is written again that another writer has replaced, times the number of tries up to ten."""

Blob = Callable[[str, int], bytes]
"""Returns a blob or manifest by its digest, of at most this size."""


@dataclass(frozen=True, slots=True)
class Referrer:
    """A bundle that is attached to an image; `predicate` and `subject` are what its artifact says, unsigned."""

    digest: str
    data: bytes
    predicate: str | None
    subject: str | None


def tag(digest: str) -> str:
    """Return the tag of the index that lists what refers to an image."""
    return digest.replace(":", "-")


def artifact(image: Image, data: bytes) -> tuple[bytes, Descriptor]:
    """Make the manifest that attaches a bundle to an image, and the entry of it in an index."""
    kind = statement.read(envelope.payload(bundle.read(data).envelope)).kind
    annotations = {_CONTENT: "dsse-envelope", PREDICATE: kind}
    manifest = layout.encode(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": bundle.TYPE,
            "config": layout.described(b"{}", EMPTY),
            "layers": [layout.described(data, bundle.TYPE)],
            "subject": image.descriptor,
            "annotations": annotations,
        }
    )
    return manifest, layout.described(manifest, MANIFEST, artifactType=bundle.TYPE, annotations=annotations)


def listed(client: RegistryClient, digest: str) -> list[Mapping[str, Any]]:
    """Return the entries of everything that refers to an image.

    Raises:
        StackError: The registry does not answer, or lists too many.

    """
    pages = client.referrers(digest)
    if pages is None:
        try:
            pages = [client.manifest(tag(digest)).data]
        except Absent:
            return []
    entries = registry_client.descriptors(pages)
    if len(entries) > _MOST:
        raise StackError(f"{tag(digest)} lists {counted(len(entries), 'referrer')}, more than {_MOST}", "remove some of them")
    return entries


def bundles(entries: Sequence[Mapping[str, Any]], manifest: Blob, blob: Blob) -> tuple[Referrer, ...]:
    """Read the bundles among the entries of an index. Anybody may attach artifacts, so those of another form are passed over.

    Raises:
        StackError: An artifact cannot be read, or does not match its digest.

    """
    found: dict[str, Referrer] = {}
    total = 0
    for entry in entries:
        name, size, kind = entry.get("digest"), entry.get("size"), entry.get("artifactType")
        # cosign 3 names the type of the configuration instead, so what counts is the artifact.
        if kind not in (None, EMPTY, bundle.TYPE) or not isinstance(size, int):
            continue
        # What is no digest could name a tag, whose content nothing is compared with, or a place elsewhere.
        if not _is_digest(name) or name in found:
            continue
        # An artifact that is listed and was deleted is passed over, too.
        with suppress(_OtherError, Absent):
            parsed = _parsed(manifest(name, registry_client.MANIFEST_LIMIT), name)
            total += parsed.size
            if total > _TOTAL:
                raise StackError(f"the bundles of an image have more than {_TOTAL} bytes", "do not use this image")
            found[name] = Referrer(name, blob(parsed.blob, parsed.size), parsed.predicate, parsed.subject)
    return tuple(found.values())


def _is_digest(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and re.fullmatch(DIGEST, name) is not None


class _OtherError(Exception):
    """Raised for an artifact that is not a bundle's."""


@dataclass(frozen=True, slots=True)
class _Artifact:
    blob: str
    size: int
    predicate: str | None
    subject: str | None


def _parsed(manifest: bytes, name: str) -> _Artifact:
    try:
        top = json.loads(manifest)
        if not isinstance(top, dict) or top.get("artifactType") != bundle.TYPE:
            raise _OtherError
        table = Table(top, file=Path(name))
        (layer,) = table.tables("layers")
        subject, annotations = table.optional_table("subject"), table.optional_table("annotations")
        return _Artifact(
            layer.text("digest", pattern=DIGEST, meaning="a digest"),
            layer.whole("size"),
            annotations.optional_text(PREDICATE) if annotations is not None else None,
            subject.text("digest", pattern=DIGEST, meaning="a digest") if subject is not None else None,
        )
    except (ValueError, RecursionError, StackError) as other:
        raise _OtherError from other


def attach(client: RegistryClient, image: Image, made: Sequence[bytes]) -> None:
    """Attach bundles to an image.

    Raises:
        StackError: The registry refuses them, or other writers keep replacing its index.

    """
    client.put_blob(b"{}")
    entries = []
    for data in made:
        manifest, entry = artifact(image, data)
        client.put_blob(data)
        client.put_manifest(entry["digest"], manifest, MANIFEST)
        entries.append(entry)
    enlist(client, image.digest, entries)


def enlist(client: RegistryClient, subject: str, added: Sequence[Descriptor]) -> None:
    """Have entries listed as referrers of an image: nothing to do where the registry lists them by itself.

    The index keeps all entries of others. One that was seen here and has gone, although its artifact is there, was lost to
    another writer: it is written again.

    Args:
        client: The repository.
        subject: The image's digest.
        added: The entries.

    Raises:
        StackError: The registry refuses, or other writers keep replacing the index.

    """
    if client.referrers(subject) is not None:
        return
    seen: dict[str, Descriptor] = {str(entry["digest"]): dict(entry) for entry in added}
    there, settled, took = set(seen), False, 0.0
    for attempt in tries():
        began = time.monotonic()
        now = _index(client, tag(subject))
        present = _entries(now)
        seen |= present
        gone = seen.keys() - present.keys()
        if unknown := gone - there:  # asked before the index is read again: little time may pass until it is written
            there |= {name for name in unknown if _is_digest(name) and _index(client, name) is not None}
            seen = {name: entry for name, entry in seen.items() if name not in unknown - there}
            continue
        if not gone:
            if settled:
                return
            settled = True
            time.sleep(max(SETTLED, 4 * took))
            continue
        settled = False
        missing = [entry for name, entry in seen.items() if name in gone]
        with suppress(ChangedError):
            # The last tries are without a condition: some registries compare wrongly.
            before = now if attempt < _TRIES // 2 else None
            client.put_manifest(
                tag(subject),
                _encoded(now, [*present.values(), *missing], subject),
                INDEX,
                before=before,
            )
        took = max(took, time.monotonic() - began)
        pause(attempt)
    raise StackError(f"others, or the registry, keep replacing {tag(subject)}", "run the command again when they have finished")


def tries() -> Iterator[int]:
    """Count the tries, until there were enough of them for long enough."""
    began = time.monotonic()
    for attempt in itertools.count():
        if attempt >= _TRIES and time.monotonic() - began > _PATIENCE:
            return
        yield attempt


def pause(attempt: int) -> None:
    """Wait a random time, so that writers that wait for each other do not go on at the same moment."""
    time.sleep(random.uniform(0, _PAUSE * min(attempt, 10)))  # noqa: S311  (nothing secret)


def _encoded(now: Tagged | None, entries: Sequence[Descriptor], subject: str) -> bytes:
    index = layout.encode({**_top(now), "manifests": list(entries)})
    if len(index) > registry_client.MANIFEST_LIMIT or len(entries) > _MOST:
        raise StackError(f"{tag(subject)} lists more than {_MOST} referrers", "remove some of them")
    return index


def _index(client: RegistryClient, name: str) -> Tagged | None:
    try:
        return client.manifest(name)
    except Absent:
        return None


def _top(now: Tagged | None) -> dict[str, Any]:
    """Return an index without its entries, with the fields that another writer gave it."""
    fields = {"schemaVersion": 2, "mediaType": INDEX}
    if now is None:
        return fields
    return {key: value for key, value in json.loads(now.data).items() if key != "manifests"} | fields


def _entries(now: Tagged | None) -> dict[str, Descriptor]:
    """Return the entries of an index by their digests.

    Raises:
        StackError: It is not an index; it is not replaced, since it is not known whose it is.

    """
    if now is None:
        return {}
    try:
        top = json.loads(now.data)
        entries = top["manifests"]
        return {str(entry["digest"]): entry for entry in entries}
    except (ValueError, LookupError, TypeError, RecursionError) as bad:
        raise StackError("the index of referrers is not an OCI index", "look who has written that tag") from bad
