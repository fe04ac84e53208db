# SPDX-License-Identifier: Apache-2.0
"""Move tags such as `latest` and `0.32` to a published image, and back. A tag that an image was published as never moves.

The registry keeps a tag's earlier target under the tag's name with `.previous` appended.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.images import image, reference, skopeo, verify
from stack.images.claims import claims
from stack.images.reference import BEFORE, Reference
from stack.images.trust import Trusted


@dataclass(frozen=True, slots=True)
class Move:
    """A tag's move; `before` is None if the tag is new, and equal to `after` if nothing had to be done."""

    tag: str
    before: str | None
    after: str


def digest_of(where: Reference, *, tls: bool = True) -> str | None:
    """Return the digest that a tag points to; None if the tag does not exist.

    Raises:
        StackError: the registry does not answer.

    """
    try:
        return skopeo.digest(skopeo.raw(where, tls=tls))
    except skopeo.Absent:
        return None


def put(repository: Reference, digest: str, tag: str, *, tls: bool = True) -> None:
    """Point a tag at a digest, and check the result.

    Raises:
        StackError: the registry refuses, or the tag points elsewhere afterwards.

    """
    skopeo.copy(repository.at(digest), repository.tagged(tag), all_=True, tls=tls)
    actual = digest_of(repository.tagged(tag), tls=tls)
    if actual != digest:
        raise StackError(
            f"{repository.tagged(tag).shown} was put at {digest} but points at {actual}",
            "somebody else writes there, or the registry lies: check it before anyone pulls it",
        )


def promote(
    where: Reference, tags: Sequence[str], trusted: Trusted, gate: str | None = None, *, tls: bool = True
) -> tuple[Move, ...]:
    """Point moving tags at a published image of any stack, after verifying the image.

    Raises:
        StackError: the image was not published, or a tag must not move; no tag has moved then.

    """
    if where.layout or not (where.tag or where.digest):
        raise StackError(f"{where.shown} is not an image in a registry", "write HOST/NAME:TAG or HOST/NAME@sha256:DIGEST")
    names = [reference.tag(name) for name in dict.fromkeys(tags)]
    report = verify.published(where, trusted, gate, tls=tls)
    verify.demand(report)
    return move(Reference(where.place), report.image.digest, names, tls=tls)


def move(repository: Reference, digest: str, tags: Sequence[str], *, tls: bool = True) -> tuple[Move, ...]:
    """Point moving tags at a verified digest.

    Raises:
        StackError: a tag must not move; no tag has moved then.

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
    """Refuse to move a tag that an image was published as, except to the digest `unless`.

    The attestations read here need no valid signature, because they can only cause a refusal.

    Raises:
        StackError: an image was published as this tag, or the registry does not answer.

    """
    try:
        tagged = image.read(where, tls=tls)
        names = claims(tagged, None, tls=tls).names
    except skopeo.Absent:
        return
    if tagged.digest != unless and where.shown in names:
        raise StackError(f"{where.shown} was published under this tag, which never moves", "use a moving tag, such as latest")


def rollback(where: Reference, trusted: Trusted, *, tls: bool = True) -> Move:
    """Point a moving tag at its earlier target; a second call reverses the first.

    Raises:
        StackError: there is no earlier target, or it does not verify; the tag has not moved then.

    """
    if where.layout or where.tag is None:
        raise StackError(f"{where.shown} is not a tag in a registry", "write HOST/NAME:TAG")
    repository, tag = Reference(where.place), reference.tag(where.tag)
    now = digest_of(where, tls=tls)
    if now is None:
        raise StackError(f"{where.shown} does not exist", "stack image list shows the existing tags")
    before = digest_of(repository.tagged(f"{tag}{BEFORE}"), tls=tls)
    if before is None or before == now:
        raise StackError(f"{where.shown} has no earlier target", "stack image promote points it at any published image")
    demand_moving(where, tls=tls)
    verify.demand(verify.published(repository.at(before), trusted, tls=tls))
    put(repository, before, tag, tls=tls)
    put(repository, now, f"{tag}{BEFORE}", tls=tls)
    return Move(tag, now, before)
