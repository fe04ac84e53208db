# SPDX-License-Identifier: Apache-2.0
"""List the published images of a repository, each once, with its tags and attestations."""

from dataclasses import dataclass

from stack.base.errors import StackError
from stack.images import labels, skopeo, verify
from stack.images.reference import Reference
from stack.images.trust import Trusted


@dataclass(frozen=True, slots=True)
class Listed:
    """A published image.

    `holds` is None without a key: nothing is known about the origin of the attestations then. `published` is the time in UTC,
    empty without attestations. `problem` says why the image cannot be read or does not verify.
    """

    digest: str
    tags: tuple[str, ...]
    platforms: tuple[str, ...]
    stack: str | None
    pins: str | None
    gates: tuple[str, ...]
    published: str
    holds: bool | None
    problem: str | None = None


def of(repository: Reference, trusted: Trusted | None, *, tls: bool = True) -> tuple[Listed, ...]:
    """List the images of a repository that have tags, the newest first.

    Raises:
        StackError: the repository does not exist, or its registry does not answer.

    """
    tags: dict[str, list[str]] = {}
    for tag in skopeo.tags(repository, tls=tls):
        if not tag.startswith("sha256-"):
            digest = skopeo.digest(skopeo.raw(repository.tagged(tag), tls=tls))
            tags.setdefault(digest, []).append(tag)
    images = [_listed(repository.at(digest), tuple(names), trusted, tls) for digest, names in tags.items()]
    return tuple(sorted(images, key=lambda listed: (listed.published, listed.tags), reverse=True))


def _listed(where: Reference, tags: tuple[str, ...], trusted: Trusted | None, tls: bool) -> Listed:
    digest = str(where.digest)
    try:
        report = verify.published(where, trusted, tls=tls)
    except StackError as refused:
        return Listed(digest, tags, (), None, None, (), "", None, str(refused))
    read, claims = report.image, report.claims
    first = read.platforms[0].labels
    wrong = [check for check in report.checks if check.state is verify.CheckState.FAILS]
    return Listed(
        digest,
        tags,
        tuple(platform.name for platform in read.platforms),
        first.get(labels.STACK),
        first.get(labels.PINS),
        claims.gates,
        claims.time,
        report.holds if trusted is not None else None,
        f"{wrong[0].name}: {wrong[0].said}" if wrong else None,
    )
