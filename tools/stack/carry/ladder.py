# SPDX-License-Identifier: Apache-2.0
"""The rungs between two bases: a jump over several releases is climbed one by one, so that each change is met where it came."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stack.model.ids import CommitId

if TYPE_CHECKING:
    from packaging.version import Version

AUTO = "auto"
"""In place of rungs: all releases between, found by the versions of their tags."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A base on the way, by the name that the user knows: a tag, or a commit."""

    name: str
    commit: CommitId


def between(tags: Iterable[str], low: str, high: str) -> list[str]:
    """The release tags between two, without them, in the order of their versions.

    Candidates and other pre-releases are left out, unless an end is one itself. Empty where an end is no version.
    """
    ends = version(low), version(high)
    if ends[0] is None or ends[1] is None:
        return []
    early = ends[0].is_prerelease or ends[1].is_prerelease
    known = {tag: found for tag in tags if (found := version(tag)) is not None and (early or not found.is_prerelease)}
    inside = [tag for tag, found in known.items() if ends[0] < found < ends[1]]
    return sorted(inside, key=lambda tag: known[tag])


def ordered(tags: Iterable[str]) -> list[str]:
    """The tags of final releases, in the order of their versions."""
    known = {tag: found for tag in tags if (found := version(tag)) is not None and not found.is_prerelease}
    return sorted(known, key=lambda tag: known[tag])


def version(tag: str) -> "Version | None":
    """The version that a tag stands for, None where it names none."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  (a jump to a named base needs no versions)

    try:
        return Version(tag)
    except InvalidVersion:
        return None
