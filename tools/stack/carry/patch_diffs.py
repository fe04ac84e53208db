# SPDX-License-Identifier: Apache-2.0
"""The diffs of a stack: of one patch, of a series, or of an upstream from its pin to its last patch."""

from dataclasses import dataclass

from stack.base.did_you_mean import UnknownName, unknown_name
from stack.carry import patch_facts
from stack.carry.patch_facts import ChangedFile
from stack.carry.upstream_stores import Stores
from stack.model.diff import parse
from stack.model.ids import CommitId
from stack.model.patch_names import LISTER, find
from stack.model.stack import Stack
from stack.store import git
from stack.store.objects import Objects


@dataclass(frozen=True, slots=True)
class NamedDiff:
    """A diff and what it is of: a patch by its path, or all patches of an upstream (`patch` is None)."""

    upstream: str
    patch: str | None
    data: bytes

    @property
    def files(self) -> tuple[ChangedFile, ...]:
        """The files that it changes."""
        return tuple(map(patch_facts.changed, parse(self.data))) if self.data else ()


def of_patches(stack: Stack, name: str) -> tuple[NamedDiff, ...] | None:
    """Return the diffs of the patches that `name` names, a patch or a series; None if it names an upstream.

    Raises:
        StackError: Nothing has that name.

    """
    series = next((each for each in stack.series if each.name == name), None)
    if series is not None:
        return tuple(NamedDiff(ref.upstream, ref.path, stack.patches[ref].diff) for ref in series.patches)
    if name in stack.pins.names():
        return None
    try:
        ref = find(stack, name)
    except UnknownName:
        known = [ref.path.removesuffix(".patch") for ref in stack.patches]
        known = [*stack.pins.names(), *(each.name for each in stack.series), *known]
        raise unknown_name("patch, series or upstream", name, known, lister=LISTER) from None
    return (NamedDiff(ref.upstream, ref.path, stack.patches[ref].diff),)


def combined(stores: Stores, upstream: str | None = None) -> tuple[NamedDiff, ...]:
    """Return the diff from the pin to the last patch, of one upstream or of each that has patches.

    Raises:
        StackError: A source cannot be obtained, or a patch does not apply.

    """
    chosen = stores.stack.pins.names() if upstream is None else (stores.stack.pins.get(upstream).upstream,)
    return tuple(
        NamedDiff(name, None, between(stores.objects(name), stores.base(name), stores.tip(name)))
        for name in chosen
        if stores.stack.order(name)
    )


def between(objects: Objects, old: CommitId, new: CommitId) -> bytes:
    """Return git's diff of two commits, with renames."""
    show = ["diff", "-M", "--full-index", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", old, new]
    return git.run(["-c", "core.quotePath=false", *show], env={"GIT_DIR": str(objects.repository)}).stdout
