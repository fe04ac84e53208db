# SPDX-License-Identifier: Apache-2.0
"""The base image: named with its digest, and fetched as exactly that."""

import re
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.images import reference, skopeo
from stack.images.engine import Engine
from stack.images.reference import DIGEST, Reference
from stack.model.pins import Base


@dataclass(frozen=True, slots=True)
class BaseImage:
    """A base image: where it is, and the digest of its manifest or index."""

    place: Reference
    digest: str

    @property
    def name(self) -> str:
        """As labels name it; of a layout only that it was one, since its folder is this machine's."""
        return "oci-layout" if self.place.layout else self.place.shown

    def pulled(self, engine: Engine, platform: str | None) -> str:
        """Its id or name in an engine's storage.

        Raises:
            StackError: it cannot be had, or is another one.

        """
        if not self.place.layout:
            return engine.pull(str(self.place.at(self.digest)), platform)
        found = skopeo.digest(skopeo.raw(self.place))
        if found != self.digest:
            raise StackError(f"{self.place.shown} has the digest {found}, not {self.digest}", "name the digest that it has")
        name = f"localhost/stack/base:{self.digest.removeprefix('sha256:')}"
        return engine.load(str(self.place), name, platform)


def given(text: str) -> BaseImage:
    """The base image that `IMAGE@sha256:…` or `oci:FOLDER@sha256:…` names.

    Raises:
        StackError: it names none, or no digest.

    """
    place, _, digest = text.rpartition("@")
    if not re.fullmatch(DIGEST, digest):
        raise StackError(f"--base {text!r:.200} has no digest", "write IMAGE@sha256:…: a tag is another image tomorrow")
    return BaseImage(reference.parse(place), digest)


def pinned(base: Base | None) -> BaseImage:
    """The base image of pins.toml.

    Raises:
        StackError: there is none, or its digest was never resolved.

    """
    if base is None or base.digest is None:
        raise StackError(
            "pins.toml names no base image with a digest", "`stack pins set base IMAGE:TAG` resolves it, or give --base"
        )
    return BaseImage(reference.parse(base.image), base.digest)


def resolved(text: str) -> Base:
    """The base image that `IMAGE:TAG` names, with the digest that its registry's bytes have: of the index where there is one.

    Raises:
        StackError: it names no tag in a registry, or the registry does not have it.

    """
    place = reference.parse(text)
    if place.layout or place.tag is None:
        raise StackError(f"{text!r:.200} names no tag in a registry", "write IMAGE:TAG, such as HOST/NAME:13.0-devel")
    return Base(place.place, place.tag, skopeo.digest(skopeo.raw(place)))
