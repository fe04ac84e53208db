# SPDX-License-Identifier: Apache-2.0
"""Bring an image to the engine by its digest, after its attestations were verified."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.images import envelope, reference, skopeo, verify
from stack.images import image as images
from stack.images.reference import DIGEST, Reference
from stack.owner import caches
from stack.owner.engine import Engine
from stack.owner.state import Image

_KEPT = "localhost/stack-server"
"""The repository of the tags that keep an image: an engine's prune removes images without a tag."""
_LOCAL = "localhost/"
"""Images of this name are in the engine's storage only: `stack image load` puts them there."""
_LAYER = re.compile(r"Pulling fs layer|Copying blob")
_DONE = re.compile(r"Pull complete|Already exists|done")
NAMELESS = "name it with --image or in STACK_IMAGE; to build one: stack image build --recipe {recipe}"


def bring(engine: Engine, name: str, key: Path | None, tell: Progress) -> Image:
    """Bring an image to the engine, and return it with its digest.

    Args:
        engine: The engine.
        name: The image's name: `HOST/NAME:TAG`, `HOST/NAME@sha256:…` or `oci:DIR`.
        key: The public key that its attestations have to be signed with; None: nothing is verified.
        tell: Gets the progress.

    Raises:
        StackError: It does not exist, is not verified, or cannot be pulled.

    """
    where = reference.parse(name)
    if where.layout:
        return _from_layout(engine, where, key, tell)
    if is_local(where):
        return local(engine, where, key)
    digest = where.digest
    if key is not None:
        tell(f"verifying {where.shown}")
        digest = _verified(where, key)
    if digest is None:
        digest = _pulled_by_tag(engine, where, tell)
    pinned = where.at(digest)
    found = engine.image(pinned.shown)
    if found is None:
        _pull(engine, pinned, tell)
        found = engine.image(pinned.shown)
    if found is None:
        raise StackError(f"{engine.name} has pulled {pinned.shown} and does not find it", "run the command again")
    return _kept(engine, _image(where.shown, digest, found["Id"], key))


def have(engine: Engine, image: Image) -> bool:
    """Return whether the engine still has an image."""
    return engine.image(image.id) is not None


def keep(engine: Engine, image: Image) -> None:
    """Give an image a tag, so that the engine does not prune it.

    Raises:
        StackError: The engine does not have the image.

    """
    engine.run("tag", image.id, f"{_KEPT}:{image.digest.removeprefix('sha256:')[:12]}")


def forget(engine: Engine, images: Iterable[Image]) -> None:
    """Remove the tags that keep images, and the names by which these images were pulled; without a name, the engine removes an image.

    Raises:
        StackError: The engine does not list its tags.

    """
    tags = engine.run("image", "ls", "--format={{.Repository}}:{{.Tag}}", f"--filter=reference={_KEPT}").split()
    pulled = [name for image in images for name in _names(image)]
    for name in dict.fromkeys((*tags, *pulled)):
        with contextlib.suppress(StackError):  # it has gone, or a container that somebody else has started uses it
            engine.run("rmi", name)


def _names(image: Image) -> tuple[str, ...]:
    where = reference.parse(image.name)
    if where.layout or is_local(where):  # that one is the owner's own
        return ()
    return (where.shown, where.at(image.digest).shown)


def again(engine: Engine, image: Image, tell: Progress) -> None:
    """Bring an image that ran before to the engine again, by its digest, if the engine has lost it.

    Raises:
        StackError: It is not to be had any more.

    """
    if have(engine, image):
        return
    where = reference.parse(image.name)
    if where.layout or is_local(where):
        raise StackError(
            f"{engine.name} has lost the image {image.name}", "build or copy it again, then spark-stack up RECIPE --image IMAGE"
        )
    _pull(engine, where.at(image.digest), tell)


def _kept(engine: Engine, image: Image) -> Image:
    keep(engine, image)
    return image


def is_local(where: Reference) -> bool:
    """Return whether an image is in an engine's storage only."""
    return not where.layout and where.place.startswith(_LOCAL)


def local(engine: Engine, where: Reference, key: Path | None) -> Image:
    """Return an image that the engine has under a local name.

    Raises:
        StackError: It has not, or there is a key that such an image cannot be verified with.

    """
    if key is not None:
        raise StackError(f"{where.shown} has no attestations: it was built here", "leave --key and STACK_KEY out")
    found = engine.image(where.shown)
    if found is None:
        raise StackError(
            f"{engine.name} has no image {where.shown}", f"load it: stack image load, or {engine.name} load -i FILE"
        )
    return _kept(engine, _image(where.shown, digest_of(found, where.place) or found["Id"], found["Id"], None))


def _verified(where: Reference, key: Path) -> str:
    """Verify an image's attestations, and return its digest.

    Raises:
        StackError: Something does not hold; the message says what.

    """
    report = verify.published(where, envelope.public(key))
    if not report.holds:
        raise StackError(
            f"{where.shown} is not verified ({report.problems[0]})",
            f"do not run it; see stack image verify {where.shown} --key {key}",
        )
    return report.image.digest


def _pulled_by_tag(engine: Engine, where: Reference, tell: Progress) -> str:
    """Pull what a tag names now, and return its digest."""
    _pull(engine, where, tell)
    digest = digest_of(engine.image(where.shown), where.place)
    if digest is None:
        raise StackError(f"{engine.name} names no digest of {where.shown}", "name the image by its digest: HOST/NAME@sha256:…")
    return digest


def digest_of(described: Mapping[str, Any] | None, place: str) -> str | None:
    """Return the digest that an image has in a repository, as the engine has recorded it at the pull."""
    for name in (described or {}).get("RepoDigests") or ():
        repository, _, digest = str(name).partition("@")
        # An engine writes docker.io/library/ in front of short names.
        if (repository == place or repository.endswith(f"/{place}")) and re.fullmatch(DIGEST, digest):
            return digest
    return None


def _pull(engine: Engine, where: Reference, tell: Progress) -> None:
    step = f"downloading the image {where.shown}"
    tell(step)
    layers = done = 0

    def take(line: str) -> None:
        nonlocal layers, done
        layers += bool(_LAYER.search(line))
        done += bool(_DONE.search(line))
        tell(step, min(done, layers), max(layers, 1))

    engine.lines("pull", where.shown, each=take)


def _from_layout(engine: Engine, where: Reference, key: Path | None, tell: Progress) -> Image:
    """Load an image of an OCI layout under a tag that names its digest."""
    found = images.read(where)
    if key is not None:
        tell(f"verifying {where.shown}")
        _verified(where, key)
    tag = f"{_KEPT}:{found.digest.removeprefix('sha256:')[:12]}"
    described = engine.image(tag)
    # Any user of the engine can give another image this tag, so a verified layout is loaded again.
    if described is None or key is not None:
        tell(f"loading the image {where.shown}")
        storage = "docker-daemon" if engine.name == "docker" else "containers-storage"
        skopeo.load(where, f"{storage}:{tag}")
        described = engine.image(tag)
    if described is None:
        raise StackError(f"{engine.name} has loaded {where.shown} and does not find it", "run the command again")
    return _image(str(where), found.digest, described["Id"], key)


def _image(name: str, digest: str, id_: str, key: Path | None) -> Image:
    return Image(name, digest, id_, str(key.absolute()) if key is not None else None, caches.name(digest, key))
