# SPDX-License-Identifier: Apache-2.0
"""The patches of an upstream as commits on their base, each naming its series and patch file in trailers."""

from collections.abc import Sequence
from dataclasses import dataclass

from stack.carry import links
from stack.carry.export import export
from stack.carry.trailers import PATCH, SERIES, with_trailers
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.model.patch import Patch, files
from stack.store.objects import Identity, Objects


@dataclass(frozen=True, slots=True)
class Chain:
    """The commits of an upstream's patches, the oldest first.

    `base` is the commit below the first one; `real` says that others can have it, too: upstream's own history has it.
    """

    base: CommitId
    patches: tuple[Patch, ...]
    commits: tuple[CommitId, ...]
    real: bool = False

    @property
    def tip(self) -> CommitId:
        """The last commit; the base of an empty chain."""
        return self.commits[-1] if self.commits else self.base


def of_pin(stores: Stores, upstream: str, *, plain: bool) -> Chain:
    """Write the commits of an upstream's patches into its store, on the pinned commit.

    Raises:
        DoesNotApply: a patch does not apply.
        StackError: a patch adds a link that leads out of the tree, or the pinned source cannot be obtained.

    """
    return write(stores.objects(upstream), stores.base(upstream), stores.stack.order(upstream), plain=plain)


def write(objects: Objects, base: CommitId, patches: Sequence[Patch], *, plain: bool) -> Chain:
    """Write the commits of patches on a base; no reference is moved. `plain` leaves out the trailers.

    Raises:
        DoesNotApply: a patch does not apply.
        StackError: a patch adds a link that leads out of the tree.

    """
    chain = [base]
    for patch, commit in zip(patches, links.checked_chain(objects, base, patches), strict=True):
        author = Identity(patch.author.name, patch.author.mail, patch.author.date)
        added = {} if plain else {SERIES: patch.ref.series, PATCH: patch.ref.file}
        message = with_trailers(patch.message, added) if added else patch.message
        chain.append(objects.write_commit(objects.tree_of(commit), (chain[-1],), message, author))
    objects.flush()
    return Chain(base, tuple(patches), tuple(chain[1:]))


def mails(objects: Objects, chain: Chain) -> tuple[bytes, ...]:
    """Return the commits as mails, as `git format-patch` writes them."""
    return export(objects, chain.base, chain.commits)


def needs_git(patch: Patch) -> bool:
    """Tell whether only git can apply a patch: `patch` knows no binary files and no submodules."""
    return any(file.binary or 0o160000 in (file.old_mode, file.new_mode) for file in files(patch))
