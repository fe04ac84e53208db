# SPDX-License-Identifier: Apache-2.0
"""Find the rungs between two bases: the releases in between, over which a patch is carried one by one.

So each upstream change meets the patch at the release that brought it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.model.ids import CommitId

if TYPE_CHECKING:
    from packaging.version import Version

AUTO = "auto"
"""Given instead of rungs: all releases in between, by the versions of their tags."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A base to which patches are carried; `name` is the user's name for it, a tag or a commit."""

    name: str
    commit: CommitId


def between(tags: Iterable[str], low: str, high: str) -> list[str]:
    """Return the release tags between two tags, without these, in the order of their versions.

    Pre-releases are left out, unless one of the two is a pre-release itself. Empty if one of the two is not a version.
    """
    ends = version(low), version(high)
    if ends[0] is None or ends[1] is None:
        return []
    early = ends[0].is_prerelease or ends[1].is_prerelease
    known = {tag: found for tag in tags if (found := version(tag)) is not None and (early or not found.is_prerelease)}
    inside = [tag for tag, found in known.items() if ends[0] < found < ends[1]]
    return sorted(inside, key=lambda tag: known[tag])


def ordered(tags: Iterable[str]) -> list[str]:
    """Return the tags of final releases, in the order of their versions."""
    known = {tag: found for tag in tags if (found := version(tag)) is not None and not found.is_prerelease}
    return sorted(known, key=lambda tag: known[tag])


def version(tag: str) -> "Version | None":
    """Return the version that a tag names, or None if it does not name one."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  (a jump to a named base needs no versions)

    try:
        return Version(tag)
    except InvalidVersion:
        return None
