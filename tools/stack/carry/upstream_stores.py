# SPDX-License-Identifier: Apache-2.0
"""Open the upstreams' stores, and find the pinned commit of each upstream and the commits of its patches."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.carry import links
from stack.model.ids import CommitId, TreeId
from stack.model.pins import Pin, Source
from stack.model.stack import Stack
from stack.projects import known
from stack.store import cache as places
from stack.store import git, sources
from stack.store.objects import FOLDER, Identity, Objects
from stack.store.sources import SourceTree

_NOBODY = Identity("stack", "stack@localhost", "0 +0000")


@dataclass(frozen=True, slots=True)
class Place:
    """The cache that keeps trees, and where missing ones come from; None: each upstream's from the source that its pin names."""

    cache: Path
    source: Source | None = None
    progress: Progress = silent


class Stores:
    """The stores of a stack's upstreams, each opened when it is first needed. Use it as a context manager.

    Raises:
        StackError: git is not installed, or a plug-in that the stack names is not.

    """

    def __init__(self, stack: Stack, place: Place) -> None:
        git.require()
        known.require(stack.plugins)
        self.stack = stack
        self.place = place
        self._open: dict[str, Objects] = {}
        self._obtained: dict[tuple[str, str | None], SourceTree] = {}
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._exit.close()

    def objects(self, upstream: str) -> Objects:
        """Return the objects of an upstream's store; a vendored upstream shares the store of its holder."""
        pin = self.stack.pins.get(upstream)
        name = pin.within.upstream if pin.within is not None else upstream
        if name not in self._open:
            self._open[name] = self._exit.enter_context(Objects(places.upstream_store(self.place.cache, name)))
        return self._open[name]

    def source(self, upstream: str) -> Source:
        """Return where an upstream's trees come from; a vendored upstream's come with its holder's."""
        pin = self.stack.pins.get(upstream)
        holder = pin if pin.within is None else self.stack.pins.get(pin.within.upstream)
        return self.place.source or holder.source

    def obtain(self, upstream: str, tag: str | None = None, *, reference: Path | None = None) -> SourceTree:
        """Return the source tree of a released upstream at a tag, by default the pinned one.

        The store is asked once for each tag: one command asks for the same trees again and again. With `reference`, objects of
        that clone are copied instead of downloaded.

        Raises:
            StackError: it cannot be obtained, or differs from the pin.

        """
        known = self._obtained.get((upstream, tag))
        if known is None:
            known = self._obtained[upstream, tag] = sources.obtain(
                self.stack.pins.get(upstream),
                tag,
                cache=self.place.cache,
                source=self.place.source,
                progress=self.place.progress,
                vendored=self.stack.pins.upstreams,
                reference=reference,
            )
        return known

    def tags(self, upstream: str) -> list[str]:
        """Return the names of an upstream's releases, from the registry or the git remote.

        Raises:
            StackError: the registry or the remote cannot be reached.

        """
        return sources.known_tags(self.stack.pins.get(upstream), cache=self.place.cache, source=self.place.source)

    def newest(self, upstream: str) -> str:
        """Return upstream's newest revision: the commit of its default branch, or the tag of the newest archive.

        Archives of pre-releases count, too.

        Raises:
            StackError: the registry or the remote cannot be reached, or has no revision.

        """
        return sources.newest(self.stack.pins.get(upstream), cache=self.place.cache, source=self.place.source)

    def resolve(self, upstream: str, revision: str) -> str:
        """Resolve a tag, branch or commit for `obtain`: a branch becomes its current commit.

        Raises:
            StackError: the remote cannot be reached, or has no such revision.

        """
        return sources.resolve(self.stack.pins.get(upstream), revision, cache=self.place.cache, source=self.place.source)

    def tag_commits(self, upstream: str) -> dict[str, str]:
        """Return the commit of each tag of an upstream's remote.

        Raises:
            StackError: the remote cannot be reached.

        """
        return sources.tag_commits(self.stack.pins.get(upstream), cache=self.place.cache)

    def tell(self, step: str, done: int = 0, total: int | None = None, /) -> None:
        """Report progress."""
        self.place.progress(step, done, total)

    def base(self, upstream: str) -> CommitId:
        """Return the commit on which the patches of an upstream stand, at the current pins.

        Raises:
            DoesNotApply: the upstream is vendored, and a patch of its holder does not apply.

        """
        pin = self.stack.pins.get(upstream)
        if pin.within is None:
            return self.obtain(upstream).commit
        return vendored_base(self.objects(upstream), pin, self.tip(pin.within.upstream))

    def tip(self, upstream: str) -> CommitId:
        """Return the last commit of an upstream's patches, at the current pins.

        Raises:
            DoesNotApply: a patch does not apply.

        """
        base = self.base(upstream)
        return (base, *links.checked_chain(self.objects(upstream), base, self.stack.order(upstream)))[-1]


def past(tree: SourceTree) -> CommitId:
    """Return the commit with the history of a tree: with the git source, upstream's own commit without grafted folders."""
    return CommitId(tree.names_commit) if tree.source == "git" and tree.names_commit is not None else tree.commit


def vendored_base(objects: Objects, pin: Pin, holder: CommitId) -> CommitId:
    """Write a commit of the vendored folder alone, so that its paths are the vendored upstream's own.

    Raises:
        StackError: the holder has no such folder.

    """
    assert pin.within is not None
    entry = objects.entry(objects.tree_of(holder), pin.within.path)
    if entry is None or entry.mode != FOLDER:
        raise StackError(
            f"{pin.within.upstream} has no folder {pin.within.path}", f"correct {pin.upstream}.within in pins.toml"
        )
    return objects.write_commit(entry.id, (), f"{pin.upstream} as {pin.within.upstream} vendors it\n", _NOBODY)


def subtrees(objects: Objects, pin: Pin, tree: TreeId) -> Iterator[tuple[str, TreeId, str | None]]:
    """Yield (path, pinned id, id in `tree`) of the folders that a pin records; the last is None if the folder is missing."""
    for path, wanted in pin.subtrees.items():
        entry = objects.entry(tree, path)
        yield path, wanted, entry.id if entry is not None else None


def changed_subtrees(objects: Objects, pin: Pin, tree: TreeId) -> Mapping[str, str | None]:
    """Return the folders that differ from the ids that a pin records, with their ids in `tree`."""
    return {path: actual for path, pinned, actual in subtrees(objects, pin, tree) if actual != pinned}
