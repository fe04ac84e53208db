# SPDX-License-Identifier: Apache-2.0
"""A patch file onto a tree, by `git apply`, without a working tree and strictly: no fuzz, no three-way merge.

git gets an index of the few files that the patch names instead of the whole tree: with 8,500 files, reading and writing the
index would take longer than applying the patch.
"""

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.errors import StackError
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.store import git
from stack.store.objects import EMPTY_TREE, Entry, Identity, Objects

_FAILED = re.compile(r"^error: patch failed: (.+):(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a patch does not apply: where, and git's own words. `line` is the hunk's line in the patch's old file."""

    path: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.reason}" if place else self.reason


class DoesNotApply(StackError):
    """A patch does not fit the tree that it is meant for."""

    def __init__(self, patch: Patch, misfit: Misfit) -> None:
        super().__init__(f"patch {patch.ref.path} does not apply to its base ({misfit})", "`stack lint` shows all that do not")
        self.patch = patch
        self.misfit = misfit


def chain(objects: Objects, base: CommitId, patches: Sequence[Patch]) -> tuple[CommitId, ...]:
    """One commit a patch, each on the one before, the first on `base`.

    Raises:
        DoesNotApply: a patch does not fit.

    """
    commits: list[CommitId] = []
    parent = base
    for patch in patches:
        tree = apply(objects, objects.tree_of(parent), patch)
        if isinstance(tree, Misfit):
            raise DoesNotApply(patch, tree)
        parent = commit(objects, tree, parent, patch)
        commits.append(parent)
    return tuple(commits)


def commit(objects: Objects, tree: TreeId, parent: CommitId, patch: Patch) -> CommitId:
    """The commit of a patch on a parent; the same for everyone, since committer and date are the author's."""
    author = Identity(patch.author.name, patch.author.mail, patch.author.date)
    return objects.write_commit(tree, (parent,), patch.message, author)


def apply(objects: Objects, tree: TreeId, patch: Patch) -> TreeId | Misfit:
    """The tree after a patch, or why it does not fit."""
    paths = touched(patch)
    known = {path: entry for path in paths if (entry := objects.entry(tree, path)) is not None}
    before = objects.replaced(EMPTY_TREE, known)
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        place = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.run(["read-tree", before], env=place)
        done = git.run(["apply", "--cached", "--whitespace=nowarn", "-"], stdin=patch.diff, env=place, accept=(0, 1, 128))
        if done.returncode != 0:
            return _misfit(done.stderr.decode("utf-8", "replace"))
        after = TreeId(git.run(["write-tree"], env=place).stdout.decode("ascii").strip())
    changes: dict[str, Entry | None] = {path: new for path, _, new in objects.difference(before, after)}
    blocked = [path for path in changes if path not in known and _taken(objects, tree, path)]
    if blocked:
        return Misfit(blocked[0], None, "already exists")
    return objects.replaced(tree, changes)


def touched(patch: Patch) -> tuple[str, ...]:
    """The paths that a patch reads or writes.

    Raises:
        StackError: the diff cannot be parsed, or names a path outside of the tree.

    """
    import unidiff  # noqa: PLC0415  (heavy; only here)

    try:
        files = unidiff.PatchSet(patch.diff.decode("utf-8"))
    except unidiff.UnidiffParseError as bad:
        raise StackError(f"{patch.ref.path} holds a diff that cannot be parsed ({bad})", "export it with git again") from bad
    paths = {_bare(name) for file in files for name in (file.source_file, file.target_file) if name and name != "/dev/null"}
    for path in paths:
        if path.startswith("/") or not {"..", ".git", ""}.isdisjoint(path.lower().split("/")):
            raise StackError(f"{patch.ref.path} changes {path!r}, which is outside of the tree", "refuse this patch")
    return tuple(sorted(paths))


def _bare(name: str) -> str:
    return name[2:] if name.startswith(("a/", "b/")) else name


def _taken(objects: Objects, tree: TreeId, path: str) -> bool:
    """Whether a new file at `path` would stand where a file, a folder or a file's inside already is."""
    parts = path.split("/")
    return objects.entry(tree, path) is not None or any(
        (entry := objects.entry(tree, "/".join(parts[:depth]))) is not None and entry.mode != 0o040000
        for depth in range(1, len(parts))
    )


def _misfit(stderr: str) -> Misfit:
    failed = _FAILED.search(stderr)
    if failed:
        return Misfit(failed[1], int(failed[2]), "the lines that it changes are not there")
    lines: Iterable[str] = (line.removeprefix("error: ").removeprefix("fatal: ") for line in stderr.splitlines())
    said = next((line for line in lines if line.strip()), "git apply failed")
    path, colon, reason = said.partition(": ")
    return Misfit(path, None, reason) if colon else Misfit("", None, said)
