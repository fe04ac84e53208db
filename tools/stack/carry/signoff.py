# SPDX-License-Identifier: Apache-2.0
"""Sign off what nobody has signed off: the patches of an upstream, or the commits of a working tree."""

from collections.abc import Sequence
from dataclasses import replace

from stack.carry import links
from stack.carry.commits import WorktreeCommit
from stack.carry.export import export
from stack.carry.person import SIGNED, Person, is_signed
from stack.carry.trailers import with_trailers
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.model.series import PatchRef
from stack.store.objects import Identity, Objects


def signed(message: str, person: Person) -> str:
    """Return a commit message with the person's sign-off, unless somebody has signed it off already."""
    return message if is_signed(message) else with_trailers(message, {SIGNED: str(person)})


def sign_patches(stores: Stores, upstream: str, person: Person) -> dict[PatchRef, bytes]:
    """Return an upstream's patch files, those without a sign-off signed by a person; the others keep every byte.

    Raises:
        DoesNotApply: a patch does not apply, so that git cannot export it.

    """
    objects, base = stores.objects(upstream), stores.base(upstream)
    patches = stores.stack.order(upstream)
    chain: list[CommitId] = []
    for patch, commit in zip(patches, links.checked_chain(objects, base, patches), strict=True):
        author = Identity(patch.author.name, patch.author.mail, patch.author.date)
        parent = chain[-1] if chain else base
        chain.append(objects.write_commit(objects.tree_of(commit), (parent,), signed(patch.message, person), author))
    raws = export(objects, base, chain)
    return {patch.ref: patch.raw if is_signed(patch.message) else raw for patch, raw in zip(patches, raws, strict=True)}


def sign_commits(objects: Objects, base: CommitId, commits: Sequence[WorktreeCommit], person: Person) -> list[WorktreeCommit]:
    """Write the commits anew, from the first one without a sign-off on; no reference is moved."""
    result: list[WorktreeCommit] = []
    for commit in commits:
        message, parent = signed(commit.message, person), result[-1].id if result else base
        if message == commit.message and list(commits[: len(result)]) == result:
            result.append(commit)
            continue
        written = objects.write_commit(commit.tree, (parent,), message, commit.author)
        result.append(replace(commit, id=written, message=message))
    return result
