# SPDX-License-Identifier: Apache-2.0
"""Copy the objects of a clone that the user has, so that they are not downloaded again. The clone is only read."""

from pathlib import Path

from stack.base.errors import StackError
from stack.store import git, plain_view, users_clone

REFS = "refs/reference/"
"""Refs below this point at copied commits while a fetch runs: git tells the server that it has them."""

_KINDS = ("heads", "remotes", "tags")
_QUIET = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
# A partial clone would ask its own remote for what it lacks, one file after the other.
_PARTIAL = ("--upload-pack", "git -c uploadpack.allowFilter=true upload-pack", "--filter=blob:none")


def copy_objects(place: Path, clone: Path) -> None:
    """Copy the commits of a clone's branches and tags, with trees and files, into the repository `place`.

    Of a partial clone only commits and trees are copied. The copy does not depend on the clone afterwards.

    Raises:
        StackError: `clone` is not a repository, or is a shallow one.

    """
    place_of_clone = clone.absolute()
    check(place_of_clone)
    specs = [f"+refs/{kind}/*:{REFS}{kind}/*" for kind in _KINDS]
    filtered = _PARTIAL if users_clone.is_partial(place_of_clone) else ()
    # Git starts another git in the repository that it fetches from: in the view, that one finds no program to run.
    with plain_view.view(place_of_clone) as seen:
        git.run(["fetch", *_QUIET, *filtered, str(seen.repository), *specs], env={"GIT_DIR": str(place)})


def check(clone: Path) -> None:
    """Refuse a clone from which no objects can be copied.

    Raises:
        StackError: It is not a repository, or is a shallow one.

    """
    shallow = plain_view.bounded(["rev-parse", "--is-shallow-repository"], clone, accept=(0, 128))
    if shallow is None:
        raise StackError(f"{clone} is not a git repository", "name your clone with --reference, or leave it out")
    if shallow.strip() == b"true":
        raise StackError(
            f"{clone} is a shallow clone, which has no history to lend", "run `git fetch --unshallow` there, or leave it out"
        )
