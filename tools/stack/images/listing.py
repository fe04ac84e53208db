# SPDX-License-Identifier: Apache-2.0
"""What is published in a repository: each image once, with its tags and what is attested of it."""

from dataclasses import dataclass

from securesystemslib.signer import SSlibKey

from stack.base.errors import StackError
from stack.images import labels, skopeo, verify
from stack.images.reference import Reference


@dataclass(frozen=True, slots=True)
class Listed:
    """An image: `holds` is None without a key, which leaves open who said all this.

    `published` is the time in UTC, empty where nothing is attested; `problem` says why it cannot be read or does not hold.
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


def of(repository: Reference, key: SSlibKey | None, *, tls: bool = True) -> tuple[Listed, ...]:
    """The images of a repository that have tags, the newest first.

    Raises:
        StackError: the repository is not there, or its registry does not answer.

    """
    tags: dict[str, list[str]] = {}
    for tag in skopeo.tags(repository, tls=tls):
        if not tag.startswith("sha256-"):
            found = skopeo.digest(skopeo.raw(repository.tagged(tag), tls=tls))
            tags.setdefault(found, []).append(tag)
    images = [_listed(repository.at(digest), tuple(names), key, tls) for digest, names in tags.items()]
    return tuple(sorted(images, key=lambda one: (one.published, one.tags), reverse=True))


def _listed(where: Reference, tags: tuple[str, ...], key: SSlibKey | None, tls: bool) -> Listed:
    digest = str(where.digest)
    try:
        report = verify.published(where, key, tls=tls)
    except StackError as refused:
        return Listed(digest, tags, (), None, None, (), "", None, str(refused))
    found, said = report.image, report.claims
    first = found.platforms[0].labels
    wrong = [one for one in report.checks if one.state is verify.State.FAILS]
    return Listed(
        digest,
        tags,
        tuple(one.name for one in found.platforms),
        first.get(labels.STACK),
        first.get(labels.PINS),
        said.gates,
        said.time,
        report.holds if key is not None else None,
        f"{wrong[0].name}: {wrong[0].said}" if wrong else None,
    )
