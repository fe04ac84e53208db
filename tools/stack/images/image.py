# SPDX-License-Identifier: Apache-2.0
"""An image as its place describes it: manifests and configurations, each compared with the digest that names it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stack.base.errors import StackError
from stack.images import layout, skopeo
from stack.images.layout import CONFIG, INDEX, MANIFEST, Descriptor
from stack.images.reference import DIGEST, Reference
from stack.model.document import Table

_INDEXES = (INDEX, "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_CONFIGS = (CONFIG, "application/vnd.docker.container.image.v1+json")
_MOST = 32
"""Platforms of an index; the largest official ones have ten."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as a manifest names it; `size` in bytes, packed."""

    digest: str
    size: int
    media_type: str


@dataclass(frozen=True, slots=True)
class Platform:
    """The image of one platform (`linux/arm64`); `entry` is what it starts before every command."""

    digest: str
    name: str
    labels: Mapping[str, str]
    created: str
    layers: tuple[Layer, ...]
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
        """As others name it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


def read(where: Reference, *, tls: bool = True) -> Image:
    """Look up an image.

    Raises:
        StackError: it is not there, not an image, or not what its digests say.

    """
    raw = layout.manifest(Path(where.place), where.tag) if where.layout else skopeo.raw(where, tls=tls)
    top = _object(raw, where)
    media_type = _kind(top, where)
    digest = skopeo.digest(raw)
    several = media_type in _INDEXES
    platforms = (
        tuple(_platform(where, one, tls) for one in _images(top, where)) if several else (_image(where, digest, raw, tls),)
    )
    if not platforms:
        raise StackError(f"{where.shown} has no image in it", "name another one")
    return Image(where, digest, media_type, len(raw), platforms)


def kind(manifest: bytes, where: Reference) -> str:
    """The media type of a manifest or index.

    Raises:
        StackError: it is none.

    """
    return _kind(_object(manifest, where), where)


def _images(top: Mapping[str, Any], where: Reference) -> tuple[str, ...]:
    """The digests of an index's images; other things in it (as BuildKit adds them) have no platform."""
    entries = Table(top, file=Path(where.shown)).tables("manifests")
    if len(entries) > _MOST:
        raise StackError(f"{where.shown} has {len(entries)} platforms", "name another image")
    found = []
    for entry in entries:
        platform = entry.optional_table("platform")
        if platform is not None and platform.optional_text("os") not in (None, "unknown"):
            found.append(entry.text("digest", pattern=DIGEST, meaning="a digest"))
    return tuple(found)


def _platform(where: Reference, digest: str, tls: bool) -> Platform:
    raw = layout.blob(Path(where.place), digest) if where.layout else skopeo.raw(where.at(digest), tls=tls)
    if _kind(_object(raw, where), where) not in _MANIFESTS:
        raise StackError(f"{where.shown}: {digest} is no image of a platform", "name another image")
    return _image(where, digest, raw, tls)


def _image(where: Reference, digest: str, raw: bytes, tls: bool) -> Platform:
    manifest = Table(_object(raw, where), file=Path(where.shown))
    named = manifest.table("config")
    media_type, config_digest = named.text("mediaType"), named.text("digest", pattern=DIGEST, meaning="a digest")
    if media_type not in _CONFIGS:
        raise StackError(f"{where.shown} is no image of a container ({media_type!r:.80})", "name an image")
    config = layout.blob(Path(where.place), config_digest) if where.layout else skopeo.config(where.at(digest), tls=tls)
    if skopeo.digest(config) != config_digest:
        raise StackError(f"the configuration of {where.shown} is not what its manifest names", "do not use this image")
    whole = _object(config, where)
    said = Table(whole, file=Path(where.shown))
    inner = said.optional_table("config")
    labels = inner.optional_table("Labels") if inner is not None and inner.given("Labels") else None
    return Platform(
        digest=digest,
        name=f"{said.text('os')}/{said.text('architecture')}",
        labels=MappingProxyType({key: labels.text(key, pattern=r"(?s).*") for key in labels} if labels is not None else {}),
        created=said.optional_text("created") or "",
        layers=tuple(
            Layer(one.text("digest", pattern=DIGEST, meaning="a digest"), one.whole("size"), one.text("mediaType"))
            for one in manifest.tables("layers")
        ),
        entry=_entry(whole.get("config") or {}, where),
    )


def _entry(config: Mapping[str, Any], where: Reference) -> tuple[str, ...]:
    """What an image starts before every command; its arguments may be alike, and empty."""
    said = config.get("Entrypoint") or []
    if not isinstance(said, list) or not all(isinstance(one, str) and "\0" not in one for one in said):
        raise StackError(f"the entry point of {where.shown} is no list of words", "do not use this image")
    return tuple(said)


def _kind(top: Mapping[str, Any], where: Reference) -> str:
    """What a manifest is; OCI's may leave it to its keys to say so."""
    given = top.get("mediaType") or (INDEX if "manifests" in top else MANIFEST if "layers" in top else None)
    if given not in (*_INDEXES, *_MANIFESTS) or ("manifests" in top and "layers" in top):
        raise StackError(f"{where.shown} is no image ({given!r:.80})", "name an image")
    return str(given)


def _object(data: bytes, where: Reference) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{where.shown} is described by something that is no JSON", "name an image") from bad
    if not isinstance(found, dict):
        raise StackError(f"{where.shown} is described by something else than an object", "name an image")
    return found
