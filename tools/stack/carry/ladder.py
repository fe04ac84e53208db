# SPDX-License-Identifier: Apache-2.0
"""Find the rungs between two bases: the releases in between, over which a patch is carried one by one.

So each upstream change meets the patch at the release that brought it.
"""

from dataclasses import dataclass

from stack.model.ids import CommitId

AUTO = "auto"
"""Given instead of rungs: all releases in between, by the versions of their tags."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A base to which patches are carried; `name` is the user's name for it, a tag or a commit."""

    name: str
    commit: CommitId
