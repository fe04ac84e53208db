# SPDX-License-Identifier: Apache-2.0
"""Find the installed plug-ins that know an upstream, for `stack.toml` to name: without one of them, checks would be left out."""

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import document, new_stack
from stack.model.stack import FILE, FOLDER, Stack
from stack.projects import known
from stack.store.objects import FILES

PATH = f"{FOLDER}/{FILE}"


def fitting(stores: Stores, upstream: str) -> tuple[str, ...]:
    """Return the names of the installed plug-ins that know the pinned tree of an upstream.

    Raises:
        StackError: The tree cannot be obtained.

    """
    pin = stores.stack.pins.get(upstream)
    holder = upstream if pin.within is None else pin.within.upstream
    tree = stores.obtain(holder)
    objects = stores.objects(holder)
    root = objects.tree_of(tree.commit)

    def read(path: str) -> bytes | None:
        entry = objects.entry(root, path)
        return objects.read(entry.id) if entry is not None and entry.mode in FILES else None

    return known.fitting(read)


def unnamed(stores: Stores, upstream: str) -> tuple[str, ...]:
    """Return those of the fitting plug-ins that the stack does not name; nothing if the tree cannot be had now."""
    try:
        return tuple(name for name in fitting(stores, upstream) if name not in stores.stack.plugins)
    except StackError:
        return ()


def edited(stack: Stack, names: tuple[str, ...], text: bytes | None = None) -> dict[str, bytes]:
    """Return the files to write so that the stack names more plug-ins. A lane has the list of the main stack: nothing then.

    Args:
        stack: the stack.
        names: the plug-ins.
        text: what `stack.toml` will be, if it changes anyway.

    """
    if stack.lane is not None or not names:
        return {}
    before = document.read_text(stack.root / PATH) if text is None else text.decode("utf-8")
    return {PATH: new_stack.with_plugins(before, names).encode("utf-8")}
