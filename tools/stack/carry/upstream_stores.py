# SPDX-License-Identifier: Apache-2.0
"""Where the patches of each upstream stand: the commit of a pin in its store, and the patched chain on it."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from stack.base.errors import StackError
from stack.carry import links
from stack.model.ids import CommitId, TreeId
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.store import cache as places
from stack.store import git, sources
from stack.store.objects import FOLDER, Identity, Objects
from stack.store.sources import Progress, Source, SourceTree

_NOBODY = Identity("stack", "stack@localhost", "0 +0000")


@dataclass(frozen=True, slots=True)
class Place:
    """Where trees come from and where they are kept."""

    cache: Path
    source: Source = "archive"
    progress: Progress | None = None


class Stores:
    """The stores of a stack's upstreams, opened as they are needed. Use it as a context manager."""

    def __init__(self, stack: Stack, place: Place) -> None:
        git.require()
        self.stack = stack
        self.place = place
        self._open: dict[str, Objects] = {}
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._exit.close()

    def objects(self, upstream: str) -> Objects:
        """The objects of an upstream's store; a vendored upstream lives in the store of the one that holds it."""
        pin = self.stack.pins.get(upstream)
        name = pin.within.upstream if pin.within is not None else upstream
        if name not in self._open:
            self._open[name] = self._exit.enter_context(Objects(places.upstream_store(self.place.cache, name)))
        return self._open[name]

    def obtain(self, upstream: str, tag: str | None = None) -> SourceTree:
        """The source tree of a released upstream at a tag, the pinned one unless given.

        Raises:
            StackError: it cannot be had, or is not what the pin says.

        """
        return sources.obtain(
            self.stack.pins.get(upstream),
            tag,
            cache=self.place.cache,
            source=self.place.source,
            progress=self.place.progress,
            vendored=self.stack.pins.upstreams,
        )

    def tags(self, upstream: str) -> list[str]:
        """The names of an upstream's releases, wherever its trees come from.

        Raises:
            StackError: the registry or the remote cannot be asked.

        """
        return sources.known_tags(self.stack.pins.get(upstream), cache=self.place.cache, source=self.place.source)

    def newest(self, upstream: str) -> str:
        """What upstream has newest: the commit of its default branch, or the tag of the last archive, pre-releases among them.

        Raises:
            StackError: the registry or the remote cannot be asked, or has nothing.

        """
        return sources.newest(self.stack.pins.get(upstream), cache=self.place.cache, source=self.place.source)

    def resolve(self, upstream: str, revision: str) -> str:
        """What a tag, branch or commit stands for, as `obtain` takes it: a branch becomes the commit that it is now.

        Raises:
            StackError: the remote cannot be asked, or has no such thing.

        """
        return sources.resolve(self.stack.pins.get(upstream), revision, cache=self.place.cache, source=self.place.source)

    def tell(self, step: str) -> None:
        """Say what is being done, where it takes a while."""
        if self.place.progress is not None:
            self.place.progress(step, 0, None)

    def base(self, upstream: str) -> CommitId:
        """The commit that the patches of an upstream stand on at the pins.

        Raises:
            DoesNotApply: of a vendored upstream's holder a patch does not fit.

        """
        pin = self.stack.pins.get(upstream)
        if pin.within is None:
            return self.obtain(upstream).commit
        return vendored_base(self.objects(upstream), pin, self.tip(pin.within.upstream))

    def tip(self, upstream: str) -> CommitId:
        """The last commit of the patched chain of an upstream at the pins.

        Raises:
            DoesNotApply: a patch does not fit.

        """
        base = self.base(upstream)
        return (base, *links.checked_chain(self.objects(upstream), base, self.stack.order(upstream)))[-1]


def vendored_base(objects: Objects, pin: Pin, holder: CommitId) -> CommitId:
    """The vendored folder of the holder's tree as a commit of its own, under the vendored upstream's own paths.

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
    """(path, pinned id, found id) of the folders that a pin vouches for, below the upstream's own tree."""
    for path, wanted in pin.subtrees.items():
        entry = objects.entry(tree, path)
        yield path, wanted, entry.id if entry is not None else None


def changed_subtrees(objects: Objects, pin: Pin, tree: TreeId) -> Mapping[str, str | None]:
    """The folders that a pin vouches for and that are otherwise in `tree`, with what they are there."""
    return {path: found for path, wanted, found in subtrees(objects, pin, tree) if found != wanted}
