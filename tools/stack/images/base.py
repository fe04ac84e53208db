# SPDX-License-Identifier: Apache-2.0
"""The base image: named by its digest, and fetched by that digest."""

import re
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.images import reference, skopeo
from stack.images.engine import Engine
from stack.images.reference import DIGEST, Reference
from stack.model.pins import Base

MADE_HERE = "localhost/debian"
"""The name in `pins.toml` of a base that `stack image base` makes of Debian's packages: no registry has it."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """A base image: its place, and the digest of its manifest or index.

    `called`: its name in `pins.toml`, of a layout that `stack image base` made.
    """

    place: Reference
    digest: str
    called: str = "oci-layout"

    @property
    def name(self) -> str:
        """The name for labels; that of a layout is not its folder, which is meaningful on this machine only."""
        return self.called if self.place.layout else self.place.shown

    def pulled(self, engine: Engine, platform: str | None) -> str:
        """Pull the image into an engine's storage, and return its id or name there.

        Raises:
            StackError: it cannot be pulled, or has another digest.

        """
        if not self.place.layout:
            return engine.pull(str(self.place.at(self.digest)), platform)
        actual = skopeo.digest(skopeo.raw(self.place))
        if actual != self.digest:
            raise StackError(f"{self.place.shown} has the digest {actual}, not {self.digest}", "give the digest that it has")
        name = f"localhost/stack/base:{self.digest.removeprefix('sha256:')}"
        return engine.load(str(self.place), name, platform)


def given(text: str) -> BaseImage:
    """Parse a base image `IMAGE@sha256:…` or `oci:FOLDER@sha256:…`.

    Raises:
        StackError: the text is not an image with a digest.

    """
    place, _, digest = text.rpartition("@")
    if not re.fullmatch(DIGEST, digest):
        raise StackError(f"--base {text!r:.200} has no digest", "write IMAGE@sha256:…: a tag may name another image tomorrow")
    return BaseImage(reference.parse(place), digest)


def pinned(base: Base | None, cache: Path) -> BaseImage:
    """Return the base image that `pins.toml` names.

    Raises:
        StackError: there is none, its digest was not resolved, or `stack image base` has not made it on this machine yet.

    """
    if base is None or base.digest is None:
        raise StackError(
            "pins.toml names no base image with a digest", "`stack pins set base IMAGE:TAG` resolves it, or give --base"
        )
    if base.image != MADE_HERE:
        return BaseImage(reference.parse(base.image), base.digest)
    layout = made(cache, base.digest)
    if not (layout / "index.json").is_file():
        raise StackError(
            f"the base image {base.image}:{base.tag} is not on this machine",
            "make it: stack image base; or name one in a registry: stack pins set base IMAGE:TAG",
        )
    return BaseImage(Reference(str(layout), layout=True), base.digest, base.image)


def folder(cache: Path) -> Path:
    """Return the folder of the base images that were made on this machine."""
    return cache / "images" / "bases"


def made(cache: Path, digest: str) -> Path:
    """Return the layout of such a base image, by its digest."""
    return folder(cache) / digest.removeprefix("sha256:")


def resolved(text: str) -> Base:
    """Resolve `IMAGE:TAG` in its registry to the digest of its index, or of its manifest without an index.

    Raises:
        StackError: the text names no tag in a registry, or the registry does not have it.

    """
    place = reference.parse(text)
    if place.layout or place.tag is None:
        raise StackError(
            f"{text!r:.200} names no tag in a registry",
            "write IMAGE:TAG, such as docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04",
        )
    return Base(place.place, place.tag, skopeo.digest(skopeo.raw(place)))
