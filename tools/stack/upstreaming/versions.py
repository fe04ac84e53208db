# SPDX-License-Identifier: Apache-2.0
"""Earlier versions of a branch, kept under tags, and what changed since the last one."""

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
"""Below these stand upstream trees; what a branch has beyond them is ours."""


def tag(branch: str, commit: CommitId, known: Iterable[tuple[str, CommitId]]) -> str:
    """The tag that keeps a commit as an earlier version of a branch: the one that does, else the next number.

    Args:
        branch: the branch's name.
        commit: its earlier tip.
        known: tags of the store and of the fork: nobody's version gets another meaning.

    """
    highest = 0
    for ref, there in known:
        found = _VERSION.fullmatch(ref)
        if found is None or found["branch"] != branch:
            continue
        if there == commit:
            return ref
        highest = max(highest, int(found["number"]))
    return f"refs/tags/{branch}/v{highest + 1}"


def changes(store: Path, old: CommitId, new: Branch) -> str:
    """`git range-diff` from an earlier tip to a branch, as a description can quote it; both stand on their own bases."""
    ours = git.text(
        ["rev-list", "--first-parent", old, "--not", new.base, *(f"--glob={ref}/*" for ref in _BASES)], env=_at(store)
    ).splitlines()
    now = f"{new.base}..{new.tip}"
    if not ours:  # git compares no empty ranges; this is how it shows commits that are new
        return git.text(["log", "--reverse", "--format=-:  ------- > %h %s", now], env=_at(store)) + "\n"
    return git.text(["range-diff", "--no-color", f"{ours[-1]}^..{old}", now], env=_at(store)) + "\n"


def keep(root: Path, proposal: Proposal, text: str) -> Path:
    """Write what changed beside the proposal's description; returns the file.

    Raises:
        StackError: it cannot be written.

    """
    return pr_sidecar_files.put(root, proposal, _SUFFIX, text)


def file_of(root: Path, proposal: Proposal) -> Path:
    """Where it stands what changed in a proposal's branch since its last version."""
    return pr_sidecar_files.file(root, proposal, _SUFFIX)


def _at(store: Path) -> Mapping[str, str]:
    return {"GIT_DIR": str(store)}
