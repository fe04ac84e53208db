# SPDX-License-Identifier: Apache-2.0
"""Read and write the folder `stacks/resolutions/`."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from stack.carry.resolutions.file import Resolution, dump
from stack.carry.resolutions.known import SUFFIX, Resolutions
from stack.model import switch
from stack.model.stack import FOLDER, RESOLUTIONS


def standing(root: Path) -> Resolutions:
    """Load the resolutions of the stack in `root`; first finish a switch that was interrupted there.

    Raises:
        StackError: a resolution is not valid.

    """
    with switch.reading(root):
        return Resolutions.load(root / FOLDER / RESOLUTIONS)


def files(known: Resolutions, new: Sequence[Resolution]) -> dict[str, bytes]:
    """Return the files, by name, that add the resolutions `new` to `known`.

    A resolution that is already known is not written again, even if it was made in another file or on another rung. A
    different resolution of the same conflict replaces the old one.
    """
    names = {resolution.hunk: name for name, resolution in known.named.items()}
    taken = set(known.named)
    current = {name: (resolution.resolved, resolution.beside) for name, resolution in known.named.items()}
    changed: dict[str, bytes] = {}
    for resolution in new:
        name = names.setdefault(resolution.hunk, _free(resolution.key, taken))
        taken.add(name)
        if current.get(name) != (resolution.resolved, resolution.beside):
            current[name] = resolution.resolved, resolution.beside
            changed[f"{name}{SUFFIX}"] = dump(resolution).encode()
    return changed


def keep(root: Path, new: Sequence[Resolution]) -> tuple[str, ...]:
    """Write resolutions and return their paths; unlike other changes, `stack undo` does not remove them, only `drop` does.

    Raises:
        StackError: the existing resolutions cannot be read, or the folder cannot be written.

    """
    with switch.reading(root):
        folder = root / FOLDER / RESOLUTIONS
        changed = {f"{FOLDER}/{RESOLUTIONS}/{name}": data for name, data in files(Resolutions.load(folder), new).items()}
        read = {path: (root / path).read_bytes() if (root / path).is_file() else None for path in changed}
    return switch.apply(root, changed, title="resolutions", expected=read, for_good=True)


def drop(root: Path, keys: Sequence[str]) -> tuple[str, ...]:
    """Remove resolutions in one switch, each given by its key or a prefix of it; return their names.

    Raises:
        StackError: there is no such resolution, or a prefix matches several; then nothing is changed.

    """
    with switch.reading(root):
        known = Resolutions.load(root / FOLDER / RESOLUTIONS)
        names = tuple(dict.fromkeys(map(known.find, keys)))
        paths = [f"{FOLDER}/{RESOLUTIONS}/{name}{SUFFIX}" for name in names]
        read = {path: (root / path).read_bytes() for path in paths}
    switch.apply(root, dict.fromkeys(paths), title=f"resolutions drop {' '.join(names)}", expected=read)
    return names


def _free(key: str, taken: set[str]) -> str:
    """Return the first free name for a key; the same conflict with other lines around it may have taken some."""
    names = itertools.chain([key], (f"{key}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
