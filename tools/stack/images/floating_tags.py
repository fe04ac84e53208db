# SPDX-License-Identifier: Apache-2.0
"""Tags that move (`latest`, `0.32`): to what is published, and back. A tag that something was published as never moves.

Where a tag pointed before stands in the registry, under the tag's name with `.previous` behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from securesystemslib.signer import SSlibKey

from stack.base.errors import StackError
from stack.images import image, reference, skopeo, verify
from stack.images.reference import BEFORE, Reference


@dataclass(frozen=True, slots=True)
class Move:
    """A tag's move; `before` is None where it is new, and the same as `after` where nothing was to be done."""

    tag: str
    before: str | None
    after: str


def digest_of(where: Reference, *, tls: bool = True) -> str | None:
    """The digest that a tag stands for; None where it does not exist.

    Raises:
        StackError: the registry does not say.

    """
    try:
        return skopeo.digest(skopeo.raw(where, tls=tls))
    except skopeo.Absent:
        return None


def put(repository: Reference, digest: str, tag: str, *, tls: bool = True) -> None:
    """Point a tag at a digest, and look that it does.

    Raises:
        StackError: the registry refuses, or the tag points elsewhere afterwards.

    """
    skopeo.copy(repository.at(digest), repository.tagged(tag), all_=True, tls=tls)
    found = digest_of(repository.tagged(tag), tls=tls)
    if found != digest:
        raise StackError(
            f"{repository.tagged(tag).shown} was put at {digest} and points at {found}",
            "somebody else writes there, or the registry lies: look before anyone pulls it",
        )


def promote(
    where: Reference, tags: Sequence[str], key: SSlibKey, gate: str | None = None, *, tls: bool = True
) -> tuple[Move, ...]:
    """Point moving tags at a published image of whatever stack, after it was verified.

    Raises:
        StackError: the image was not published, or a tag is one that does not move; then none has moved.

    """
    if where.layout or not (where.tag or where.digest):
        raise StackError(f"{where.shown} is no image in a registry", "write HOST/NAME:TAG or HOST/NAME@sha256:DIGEST")
    names = [reference.tag(one) for one in dict.fromkeys(tags)]
    report = verify.published(where, key, gate, tls=tls)
    verify.demand(report)
    return move(Reference(where.place), report.image.digest, names, tls=tls)


def move(repository: Reference, digest: str, tags: Sequence[str], *, tls: bool = True) -> tuple[Move, ...]:
    """Point moving tags at a digest that was verified.

    Raises:
        StackError: one of them does not move; then none has moved.

    """
    present = {tag: digest_of(repository.tagged(tag), tls=tls) for tag in tags}
    for tag in tags:
        demand_moving(repository.tagged(tag), tls=tls, unless=digest)
    for tag, before in present.items():
        if before == digest:
            continue
        if before is not None:
            put(repository, before, f"{tag}{BEFORE}", tls=tls)
        put(repository, digest, tag, tls=tls)
    return tuple(Move(tag, before, digest) for tag, before in present.items())


def demand_moving(where: Reference, *, tls: bool = True, unless: str | None = None) -> None:
    """Refuse to move a tag that its image was published as; `unless` is a digest where it may stay.

    What is said there need not be signed: it only ever refuses.

    Raises:
        StackError: it was, or the registry does not say.

    """
    try:
        found = image.read(where, tls=tls)
        names = verify.claims(found, None, tls=tls).names
    except skopeo.Absent:
        return
    if found.digest != unless and where.shown in names:
        raise StackError(f"{where.shown} was published under this tag, which never moves", "take a moving tag, such as latest")


def rollback(where: Reference, key: SSlibKey, *, tls: bool = True) -> Move:
    """Point a moving tag at what it pointed at before it was moved last; a second time takes that back.

    Raises:
        StackError: nothing was before, or what was does not verify; then the tag has not moved.

    """
    if where.layout or where.tag is None:
        raise StackError(f"{where.shown} is no tag in a registry", "write HOST/NAME:TAG")
    repository, tag = Reference(where.place), reference.tag(where.tag)
    now = digest_of(where, tls=tls)
    if now is None:
        raise StackError(f"{where.shown} does not exist", "stack image list shows what does")
    before = digest_of(repository.tagged(f"{tag}{BEFORE}"), tls=tls)
    if before is None or before == now:
        raise StackError(f"{where.shown} was nowhere else before", "stack image promote points it at any published image")
    demand_moving(where, tls=tls)
    verify.demand(verify.published(repository.at(before), key, tls=tls))
    put(repository, before, tag, tls=tls)
    put(repository, now, f"{tag}{BEFORE}", tls=tls)
    return Move(tag, now, before)
