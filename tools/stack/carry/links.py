# SPDX-License-Identifier: Apache-2.0
"""Refuse symbolic links in patches that lead out of the tree, since a working tree or a build would follow them."""

from collections.abc import Iterable, Iterator, Sequence

from stack.base.errors import StackError
from stack.carry import apply
from stack.model import paths
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.patch import files as files_of
from stack.store.objects import Objects

_LINK = 0o120000


def leaving(objects: Objects, tree: TreeId, patch: Patch) -> Iterator[str]:
    """Describe the links of a patch that lead out of the tree; `tree` has the patch applied."""
    return faults(objects, tree, [file.new for file in files_of(patch) if file.new is not None])


def faults(objects: Objects, tree: TreeId, changed: Iterable[str]) -> Iterator[str]:
    """Describe those of the changed files that are links out of the tree."""
    for path in changed:
        entry = objects.entry(tree, path)
        if entry is None or entry.mode != _LINK:
            continue
        name = path.encode("utf-8", "surrogateescape")
        if fault := paths.link_fault(name, objects.read(entry.id)):
            yield f"{path} is a link that {fault}"


def checked_chain(objects: Objects, base: CommitId, patches: Sequence[Patch]) -> tuple[CommitId, ...]:
    """Apply patches like `apply.chain`, and check their links, for a tree that will be written to disk.

    Raises:
        DoesNotApply: a patch does not apply.
        StackError: a patch adds a link that leads out of the tree.

    """
    commits = apply.chain(objects, base, patches)
    for patch, commit in zip(patches, commits, strict=True):
        for problem in leaving(objects, objects.tree_of(commit), patch):
            raise StackError(f"{patch.ref.path}: {problem}", "let the link point at something within the tree")
    return commits
