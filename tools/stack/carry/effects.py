# SPDX-License-Identifier: Apache-2.0
"""Check the blob ids in the patches' `index` lines against the patched sources, since the stack digest relies on them."""

from collections.abc import Iterable

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import effect, lanes
from stack.model.effect import Content, Effect
from stack.model.ids import TreeId
from stack.model.patch import files
from stack.model.pins import Pin
from stack.model.stack import FOLDER, Stack
from stack.store import objects as kinds
from stack.store.objects import Objects


def check(stores: Stores, upstreams: Iterable[str] = ()) -> None:
    """Apply the patches to the pinned sources, and compare each file with the modes and blob ids that the patches state.

    Without this check a digest proves nothing: a change to a patch's lines that leaves the ids keeps the digest.

    Args:
        stores: the stores of the stack.
        upstreams: the upstreams to check, with those that they vendor; by default all.

    Raises:
        DoesNotApply: a patch does not apply.
        StackError: a source cannot be obtained, or a patch states another mode or blob id than it results in.

    """
    stated = effect.of(stores.stack)
    for name in upstreams or stated:
        if name in stated:
            _check(stores, stores.stack.pins.get(name), stated[name])


def _check(stores: Stores, pin: Pin, stated: Effect) -> None:
    objects = stores.objects(pin.upstream)
    base = objects.tree_of(stores.base(pin.upstream))
    tips = {"": objects.tree_of(stores.tip(pin.upstream))}
    for vendored in stores.stack.pins.vendored_in(pin.upstream):
        if vendored.within is not None and stores.stack.order(vendored.upstream):
            tips[f"{vendored.within.path}/"] = objects.tree_of(stores.tip(vendored.upstream))
    for path, before in stated.before.items():
        folder = max((folder for folder in tips if path.startswith(folder)), key=len)
        untrue = _untrue(objects, base, path, before) or _untrue(
            objects, tips[folder], path.removeprefix(folder), stated.after.get(path, before)
        )
        if untrue:
            raise StackError(
                f"{pin.upstream}: {path}: the patches, the last of them {FOLDER}/{_last(stores.stack, pin, path)}, state {untrue}",
                f"`stack checkout{lanes.option(stores.stack)}` and `stack refresh` write what is true",
            )


def _untrue(objects: Objects, tree: TreeId, path: str, stated: Content | None) -> str:
    """Describe how a file in a tree differs from the stated content; empty if it does not, or nothing is stated."""
    if stated is not None and not stated.is_stated:
        return ""
    entry = objects.entry(tree, path)
    have = None if entry is None or entry.mode == kinds.FOLDER else Content(entry.mode, entry.id)
    return "" if have == stated else f"{_shown(stated)}, the sources give {_shown(have)}"


def _shown(content: Content | None) -> str:
    return "no file" if content is None else f"{content.mode or 0:o} {content.id[:12]}"


def _last(stack: Stack, holder: Pin, path: str) -> str:
    """Return the path of the last patch that changes a file of a holder's tree."""
    last = ""
    for pin in (holder, *stack.pins.vendored_in(holder.upstream)):
        folder = f"{pin.within.path}/" if pin.within is not None else ""
        for patch in stack.order(pin.upstream):
            if any(path in (f"{folder}{file.old}", f"{folder}{file.new}") for file in files(patch)):
                last = patch.ref.path
    return last
