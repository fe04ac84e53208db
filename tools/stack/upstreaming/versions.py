# SPDX-License-Identifier: Apache-2.0
"""Keep earlier versions of a branch under tags, and show the changes since the last one."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stack.model.ids import CommitId
from stack.store import git
from stack.upstreaming import pr_sidecar_files
from stack.upstreaming.branches import Branch
from stack.upstreaming.proposal import Proposal

_VERSION = re.compile(r"refs/tags/(?P<branch>.+)/v(?P<number>[1-9][0-9]{0,5})")
_SUFFIX = ".range-diff"
_BASES = ("refs/remotes/upstream", "refs/stack/git", "refs/stack/grafted", "refs/stack/archive", "refs/stack/commits")
"""Prefixes of refs to upstream trees; commits of a branch that none of them reaches are ours."""


def tag(branch: str, commit: CommitId, known: Iterable[tuple[str, CommitId]]) -> str:
    """Return the tag that keeps a commit as an earlier version of a branch: an existing one, else the next number.

    Args:
        branch: the branch's name.
        commit: its earlier tip.
        known: tags of the store and of the fork; a version that exists anywhere never gets another meaning.

    """
    highest = 0
    for ref, tagged in known:
        match = _VERSION.fullmatch(ref)
        if match is None or match["branch"] != branch:
            continue
        if tagged == commit:
            return ref
        highest = max(highest, int(match["number"]))
    return f"refs/tags/{branch}/v{highest + 1}"


def changes(store: Path, old: CommitId, new: Branch) -> str:
    """Run `git range-diff` from an earlier tip to a branch, each on its own base, as text for a description."""
    ours = git.text(
        ["rev-list", "--first-parent", old, "--not", new.base, *(f"--glob={ref}/*" for ref in _BASES)], env=_at(store)
    ).splitlines()
    now = f"{new.base}..{new.tip}"
    if not ours:  # `git range-diff` refuses an empty range; print new commits in its format
        return git.text(["log", "--reverse", "--format=-:  ------- > %h %s", now], env=_at(store)) + "\n"
    return git.text(["range-diff", "--no-color", f"{ours[-1]}^..{old}", now], env=_at(store)) + "\n"


def keep(root: Path, proposal: Proposal, text: str) -> Path:
    """Write the range-diff to a file next to the proposal's description, and return the file's path.

    Raises:
        StackError: the file cannot be written.

    """
    return pr_sidecar_files.put(root, proposal, _SUFFIX, text)


def file_of(root: Path, proposal: Proposal) -> Path:
    """Return the path of the file with the range-diff since a proposal's last version."""
    return pr_sidecar_files.file(root, proposal, _SUFFIX)


def _at(store: Path) -> Mapping[str, str]:
    return {"GIT_DIR": str(store)}
