# SPDX-License-Identifier: Apache-2.0
"""The folder `stacks/resolutions/`: which files come in, and taking some away."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from stack.carry.resolutions.file import Resolution, dump
from stack.carry.resolutions.known import SUFFIX, Resolutions
from stack.model import switch
from stack.model.stack import FOLDER, RESOLUTIONS


def standing(root: Path) -> Resolutions:
    """The resolutions of the stack in `root`, after finishing a switch that was interrupted there.

    Raises:
        StackError: whatever is wrong with one of them.

    """
    with switch.reading(root):
        return Resolutions.load(root / FOLDER / RESOLUTIONS)


def files(known: Resolutions, new: Sequence[Resolution]) -> dict[str, bytes]:
    """The files, by name, that make `known` know `new`, too.

    What resolves a conflict in the same way is not written again, from whatever file or rung it comes; what resolves it in
    another way takes the old one's place.
    """
    names = {one.hunk: name for name, one in known.named.items()}
    taken = set(known.named)
    stand = {name: (one.resolved, one.beside) for name, one in known.named.items()}
    changed: dict[str, bytes] = {}
    for one in new:
        name = names.setdefault(one.hunk, _free(one.key, taken))
        taken.add(name)
        if stand.get(name) != (one.resolved, one.beside):
            stand[name] = one.resolved, one.beside
            changed[f"{name}{SUFFIX}"] = dump(one).encode()
    return changed


def keep(root: Path, new: Sequence[Resolution]) -> tuple[str, ...]:
    """Write resolutions as soon as a person has made them; returns the paths. Only `drop` removes one.

    Raises:
        StackError: what is there cannot be read, or the folder cannot be written.

    """
    with switch.reading(root):
        folder = root / FOLDER / RESOLUTIONS
        changed = {f"{FOLDER}/{RESOLUTIONS}/{name}": data for name, data in files(Resolutions.load(folder), new).items()}
        read = {path: (root / path).read_bytes() if (root / path).is_file() else None for path in changed}
    return switch.apply(root, changed, title="resolutions", expected=read, for_good=True)


def drop(root: Path, keys: Sequence[str]) -> tuple[str, ...]:
    """Take resolutions away in one switch, each named by its key or the key's beginning; returns their names.

    Raises:
        StackError: one is not there, or a beginning fits several; nothing was changed then.

    """
    with switch.reading(root):
        known = Resolutions.load(root / FOLDER / RESOLUTIONS)
        names = tuple(dict.fromkeys(map(known.find, keys)))
        paths = [f"{FOLDER}/{RESOLUTIONS}/{name}{SUFFIX}" for name in names]
        read = {path: (root / path).read_bytes() for path in paths}
    switch.apply(root, dict.fromkeys(paths), title=f"resolutions drop {' '.join(names)}", expected=read)
    return names


def _free(key: str, taken: set[str]) -> str:
    """The first name that no other surroundings of the same conflict have taken."""
    names = itertools.chain([key], (f"{key}-{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)
