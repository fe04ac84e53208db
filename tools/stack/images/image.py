# SPDX-License-Identifier: Apache-2.0
"""Read an image's manifests and configurations, and compare each with its digest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stack.base.errors import StackError
from stack.base.text import counted
from stack.images import layout, skopeo
from stack.images.layout import CONFIG, INDEX, MANIFEST, Descriptor
from stack.images.reference import DIGEST, Reference
from stack.model.document import Table

_INDEXES = (INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_CONFIGS = (CONFIG, "application/vnd.docker.container.image.v1+json")
_MOST = 32
"""Maximal number of platforms in an index; the largest official images have ten."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in a manifest; `size` is its compressed size in bytes."""

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Platform:
    """The image of one platform (`linux/arm64`); `entry` is its entry point, which precedes every command.

    `config` is the digest of its configuration.
    """

    digest: str
    name: str
    labels: Mapping[str, str]
    created: str
    layers: tuple[Layer, ...]
    config: str
    entry: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """An image, or an index of the images of several platforms."""

    reference: Reference
    digest: str
    media_type: str
    size: int
    platforms: tuple[Platform, ...]

    @property
    def descriptor(self) -> Descriptor:
        """The OCI descriptor of the image."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


def read(where: Reference, *, tls: bool = True) -> Image:
    """Read an image.

    Raises:
        StackError: it does not exist, is not an image, or does not match its digests.

    """
    raw = layout.manifest(Path(where.place), where.tag) if where.layout else skopeo.raw(where, tls=tls)
    top = _object(raw, where)
    media_type = _kind(top, where)
    digest = skopeo.digest(raw)
    several = media_type in _INDEXES
    platforms = (
        tuple(_platform(where, image_digest, tls) for image_digest in _images(top, where))
        if several
        else (_image(where, digest, raw, tls),)
    )
    if not platforms:
        raise StackError(f"{where.shown} contains no image", "name another one")
    return Image(where, digest, media_type, len(raw), platforms)


def kind(manifest: bytes, where: Reference) -> str:
    """Return the media type of a manifest or index.

    Raises:
        StackError: the data is neither.

    """
    return _kind(_object(manifest, where), where)


def _images(top: Mapping[str, Any], where: Reference) -> tuple[str, ...]:
    """Return the digests of an index's images; other entries, such as BuildKit's attestations, have no platform."""
    entries = Table(top, file=Path(where.shown)).tables("manifests")
    if len(entries) > _MOST:
        raise StackError(f"{where.shown} has {counted(len(entries), 'platform')}", "name another image")
    digests = []
    for entry in entries:
        platform = entry.optional_table("platform")
        if platform is not None and platform.optional_text("os") not in (None, "unknown"):
            digests.append(entry.text("digest", pattern=DIGEST, meaning="a digest"))
    return tuple(digests)


def _platform(where: Reference, digest: str, tls: bool) -> Platform:
    raw = layout.blob(Path(where.place), digest) if where.layout else skopeo.raw(where.at(digest), tls=tls)
    if _kind(_object(raw, where), where) not in _MANIFESTS:
        raise StackError(f"{where.shown}: {digest} is not an image of a platform", "name another image")
    return _image(where, digest, raw, tls)


def _image(where: Reference, digest: str, raw: bytes, tls: bool) -> Platform:
    manifest = Table(_object(raw, where), file=Path(where.shown))
    named = manifest.table("config")
    media_type, config_digest = named.text("mediaType"), named.text("digest", pattern=DIGEST, meaning="a digest")
    if media_type not in _CONFIGS:
        raise StackError(f"{where.shown} is not an image of a container ({media_type!r:.80})", "name an image")
    config = layout.blob(Path(where.place), config_digest) if where.layout else skopeo.config(where.at(digest), tls=tls)
    if skopeo.digest(config) != config_digest:
        raise StackError(f"the configuration of {where.shown} does not match its digest", "do not use this image")
    whole = _object(config, where)
    table = Table(whole, file=Path(where.shown))
    inner = table.optional_table("config")
    labels = inner.optional_table("Labels") if inner is not None and inner.given("Labels") else None
    return Platform(
        digest=digest,
        name=f"{table.text('os')}/{table.text('architecture')}",
        labels=MappingProxyType({key: labels.text(key, pattern=r"(?s).*") for key in labels} if labels is not None else {}),
        created=table.optional_text("created") or "",
        layers=tuple(
            Layer(layer.text("digest", pattern=DIGEST, meaning="a digest"), layer.whole("size"), layer.text("mediaType"))
            for layer in manifest.tables("layers")
        ),
        config=config_digest,
        entry=_entry(whole.get("config") or {}, where),
    )


def _entry(config: Mapping[str, Any], where: Reference) -> tuple[str, ...]:
    """Return the entry point, which precedes every command."""
    words = config.get("Entrypoint") or []
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise StackError(f"the entry point of {where.shown} is not a list of strings", "do not use this image")
    return tuple(words)


def _kind(top: Mapping[str, Any], where: Reference) -> str:
    """Return a manifest's media type; OCI manifests may omit it, their keys determine it then."""
    given = top.get("mediaType") or (INDEX if "manifests" in top else MANIFEST if "layers" in top else None)
    if given not in (*_INDEXES, *_MANIFESTS) or ("manifests" in top and "layers" in top):
        raise StackError(f"{where.shown} is not an image ({given!r:.80})", "name an image")
    return str(given)


def _object(data: bytes, where: Reference) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"the manifest of {where.shown} is not valid JSON", "name an image") from bad
    if not isinstance(value, dict):
        raise StackError(f"the manifest of {where.shown} is not a JSON object", "name an image")
    return value
