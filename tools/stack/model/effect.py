# SPDX-License-Identifier: Apache-2.0
"""The effect of a stack: the files that its patches change, each with the mode and the blob id that come out.

`git format-patch --full-index` writes both ids of a file into each patch, so the effect can be read from the patches alone: no
source is needed. Who edits a patch by hand can make these lines untrue. `stack.carry.effects` compares them with the sources.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stack.model.diff import FileDiff
from stack.model.ids import OBJECT
from stack.model.patch import Patch, files
from stack.model.pins import Pin
from stack.model.stack import Stack

_BASE = "base:"


@dataclass(frozen=True, slots=True)
class Content:
    """A file: its mode (None: that of the base), and an id of its bytes.

    The id is that of the blob where the patches state it. It is `base:PATH` where the bytes are those of a file of the base whose id
    no patch states (a bare rename), and else 64 digits over the earlier content and the patch.
    """

    mode: int | None
    id: str

    @property
    def is_stated(self) -> bool:
        """Whether it is a mode and a blob id."""
        return self.mode is not None and _is_full(self.id)


@dataclass(frozen=True, slots=True)
class Effect:
    """The statements of the patches on one source tree: each file that they touch, before all of them and after. None: no file."""

    before: Mapping[str, Content | None]
    after: Mapping[str, Content | None]

    @property
    def changed(self) -> Mapping[str, Content | None]:
        """The files that are others in the end, by path."""
        return MappingProxyType({path: now for path, now in sorted(self.after.items()) if now != self.before[path]})


def of(stack: Stack) -> Mapping[str, Effect]:
    """Read the effect of a stack, by upstream. Vendored files count to the upstream that holds them, below their path there.

    Raises:
        StackError: a diff cannot be read.

    """
    found = {pin.upstream: _of(stack, pin) for pin in stack.pins if pin.within is None}
    return MappingProxyType({name: one for name, one in found.items() if one.after})


def _of(stack: Stack, holder: Pin) -> Effect:
    own = [("", patch) for patch in stack.order(holder.upstream)]
    vendored = [
        (f"{pin.within.path}/", patch)
        for pin in stack.pins.vendored_in(holder.upstream)
        if pin.within is not None
        for patch in stack.order(pin.upstream)
    ]
    return along([*own, *vendored])


def along(patches: Iterable[tuple[str, Patch]]) -> Effect:
    """Read the effect of patches in their order, each with the folder (empty, or with a slash at its end) that its paths are below.

    Raises:
        StackError: a diff cannot be read.

    """
    reader = _Reader()
    for folder, patch in patches:
        reader.read(patch, folder)
    return reader.effect()


@dataclass
class _Reader:
    """Follows files through patches."""

    before: dict[str, Content | None] = field(default_factory=dict)
    now: dict[str, Content | None] = field(default_factory=dict)

    def read(self, patch: Patch, folder: str) -> None:
        after: dict[str, Content | None] = {}
        for file in files(patch):
            was = self._source(file, folder)
            if file.taken is not None:
                after.setdefault(folder + file.taken, None)
            if file.new is not None:
                self.before.setdefault(folder + file.new, None)
                after[folder + file.new] = _result(file, was, patch)
        self.now |= after

    def effect(self) -> Effect:
        after = {path: self._resolved(now) for path, now in self.now.items()}
        return Effect(MappingProxyType(self.before), MappingProxyType(after))

    def _source(self, file: FileDiff, folder: str) -> Content | None:
        """Return the content that a change is made of: what earlier patches left, or a file of the base."""
        if file.old is None:
            return None
        path = folder + file.old
        if path in self.now:
            was = self.now[path]
        else:
            known = self.before.get(path)
            was = known if known is not None and known.is_stated else Content(file.old_mode, f"{_BASE}{path}")
            self.before[path] = was
        if was is None or not was.id.startswith(_BASE) or not _is_full(file.old_id):
            return was
        return self._learned(was, file)

    def _learned(self, was: Content, file: FileDiff) -> Content:
        """The same with its id, which a patch states here for the first time."""
        known = self.before[was.id.removeprefix(_BASE)]
        mode = known.mode if known is not None else None
        if mode is None and was.mode is None:
            mode = file.old_mode
        self.before[was.id.removeprefix(_BASE)] = Content(mode, str(file.old_id))
        return Content(file.old_mode if was.mode is None else was.mode, str(file.old_id))

    def _resolved(self, content: Content | None) -> Content | None:
        """Replace a reference to a file of the base by what a later patch states of it."""
        known = self.before.get(content.id.removeprefix(_BASE)) if content and content.id.startswith(_BASE) else None
        if content is None or known is None:
            return content
        return Content(known.mode if content.mode is None else content.mode, known.id)


def _result(file: FileDiff, was: Content | None, patch: Patch) -> Content:
    """Return the content that a change results in."""
    mode = file.new_mode if file.new_mode is not None or was is None else was.mode
    if was is not None and _is_bare(file):
        return Content(mode, was.id)
    if _is_full(file.new_id) and (was is None or was.id == file.old_id):
        return Content(mode, str(file.new_id))
    # Made on another base, or without whole ids: what comes out is stated nowhere, and follows from all that went in.
    source = [was.mode, was.id] if was is not None else None
    made_of = json.dumps([source, file.path, hashlib.sha256(patch.diff).hexdigest()]).encode()
    return Content(mode, hashlib.sha256(made_of).hexdigest())


def _is_bare(file: FileDiff) -> bool:
    """Whether a change leaves the bytes as they are: a new name, a copy, or a mode."""
    return not file.hunks and not file.binary and file.old is not None and file.new is not None and file.old_id == file.new_id


def _is_full(name: str | None) -> bool:
    return name is not None and re.fullmatch(OBJECT, name) is not None


def listed(effect: Effect) -> Iterator[tuple[str, str | None, str | None]]:
    """List the changed files for a digest or a description: path, mode in octal, id; without both where the file is gone."""
    for path, now in effect.changed.items():
        yield path, None if now is None or now.mode is None else f"{now.mode:o}", None if now is None else now.id
