# SPDX-License-Identifier: Apache-2.0
"""The effect of a stack: each changed file with its resulting mode and blob id.

`git format-patch --full-index` writes both blob ids of a file into each patch, so the patches alone give the effect; no source
is needed. Editing a patch by hand can make these lines false; `stack.carry.effects` compares them with the sources.
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
    """The content of a file: its mode (None: unchanged from the base) and an id of its bytes.

    The id is the blob id if a patch states it. It is `base:PATH` if the bytes equal a base file whose id no patch states, as for a
    plain rename. Otherwise it is a SHA-256 over the earlier content and the patch.
    """

    mode: int | None
    id: str

    @property
    def is_stated(self) -> bool:
        """Whether both the mode and the blob id are known."""
        return self.mode is not None and _is_full(self.id)


@dataclass(frozen=True, slots=True)
class Effect:
    """The changes that the patches on one source tree state: each file that they touch, before and after all of them. None: no such file."""

    before: Mapping[str, Content | None]
    after: Mapping[str, Content | None]

    @property
    def changed(self) -> Mapping[str, Content | None]:
        """The files whose content differs in the end, by path."""
        return MappingProxyType({path: now for path, now in sorted(self.after.items()) if now != self.before[path]})


def of(stack: Stack) -> Mapping[str, Effect]:
    """Read the effect of a stack, by upstream. Vendored files belong to the upstream that holds them, under their path there.

    Raises:
        StackError: A diff cannot be read.

    """
    effects = {pin.upstream: _of(stack, pin) for pin in stack.pins if pin.within is None}
    return MappingProxyType({name: effect for name, effect in effects.items() if effect.after})


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
    """Read the effect of patches in order. Each comes with the folder that its paths are below: empty, or ending in a slash.

    Raises:
        StackError: A diff cannot be read.

    """
    reader = _Reader()
    for folder, patch in patches:
        reader.read(patch, folder)
    return reader.effect()


@dataclass
class _Reader:
    """Tracks the content of files through a sequence of patches."""

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
        """Return the content before a change: the result of earlier patches, or a file of the base."""
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
        """Return the base content with the blob id that this patch is the first to state; record it in `before`, too."""
        known = self.before[was.id.removeprefix(_BASE)]
        mode = known.mode if known is not None else None
        if mode is None and was.mode is None:
            mode = file.old_mode
        self.before[was.id.removeprefix(_BASE)] = Content(mode, str(file.old_id))
        return Content(file.old_mode if was.mode is None else was.mode, str(file.old_id))

    def _resolved(self, content: Content | None) -> Content | None:
        """Replace a reference to a base file by the id that a later patch states for it."""
        known = self.before.get(content.id.removeprefix(_BASE)) if content and content.id.startswith(_BASE) else None
        if content is None or known is None:
            return content
        return Content(known.mode if content.mode is None else content.mode, known.id)


def _result(file: FileDiff, was: Content | None, patch: Patch) -> Content:
    """Return the content after a change."""
    mode = file.new_mode if file.new_mode is not None or was is None else was.mode
    if was is not None and _is_bare(file):
        return Content(mode, was.id)
    if _is_full(file.new_id) and (was is None or was.id == file.old_id):
        return Content(mode, str(file.new_id))
    # The blob id is unknown: the patch was made on another base or has short ids. Hash everything that determines the result.
    source = [was.mode, was.id] if was is not None else None
    made_of = json.dumps([source, file.path, hashlib.sha256(patch.diff).hexdigest()]).encode()
    return Content(mode, hashlib.sha256(made_of).hexdigest())


def _is_bare(file: FileDiff) -> bool:
    """Tell whether a change keeps the bytes: a rename, a copy, or a change of mode."""
    return not file.hunks and not file.binary and file.old is not None and file.new is not None and file.old_id == file.new_id


def _is_full(name: str | None) -> bool:
    return name is not None and re.fullmatch(OBJECT, name) is not None


def listed(effect: Effect) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield (path, mode in octal, id) of each changed file; mode and id are None for a removed file."""
    for path, now in effect.changed.items():
        yield path, None if now is None or now.mode is None else f"{now.mode:o}", None if now is None else now.id
