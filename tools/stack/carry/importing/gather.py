# SPDX-License-Identifier: Apache-2.0
"""Find out what somebody wants to import, and read it."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry.importing import commits, files, quilt, vendored
from stack.carry.importing.assignment import name_of
from stack.carry.importing.candidate import Candidate
from stack.carry.importing.files import Read
from stack.carry.upstream_stores import Stores
from stack.model.patch import Author
from stack.model.stack import Stack
from stack.store import git


@dataclass(frozen=True, slots=True)
class Gathered:
    """The candidates, a description of their source for people, and the default name of their series."""

    read: Read
    came_from: str
    name: str
    notes: tuple[str, ...] = ()


def upstream_of(stack: Stack, named: str | None) -> str:
    """Return the upstream that the patches are for.

    Raises:
        StackError: None is named although the stack has several, or there is no such upstream.

    """
    if named is not None:
        return stack.pins.get(named).upstream
    released = [pin.upstream for pin in stack.pins if pin.within is None]
    if len(released) != 1:
        raise StackError(
            f"the stack has {counted(len(released), 'upstream')}: {', '.join(released)}", "name one with --upstream"
        )
    return released[0]


def gather(stores: Stores, upstream: str, given: Sequence[str], patched_tree: Path | None) -> Gathered:
    """Read a clone and a branch of it, a quilt series, files and folders with patches, or an edited copy of the sources.

    Raises:
        StackError: It is none of these, or cannot be read.

    """
    who = _importer()
    if patched_tree is not None:
        base = stores.base(upstream)
        read, notes = vendored.read(patched_tree, stores.objects(upstream), base, who)
        return Gathered(_numbered([*read]), f"the sources in {_shown(patched_tree)}", name_of(_shown(patched_tree)), notes)
    first = Path(given[0])
    if len(given) == 2 and _is_clone(first):
        return _branch(stores, upstream, first, given[1])
    series = quilt.find(first) if len(given) == 1 and first.is_dir() else None
    if series is not None:
        stores.tell("reading patches")
        name = _folder_name(series.parent)
        return Gathered(_numbered(quilt.read(series, who)), f"the quilt series {name}", name_of(name))
    if len(given) == 1 and _is_clone(first) and not any(first.rglob("*.patch")):
        raise StackError(f"{first} is a git clone", f"name a branch of it, too: stack import {first} BRANCH")
    paths = [Path(name) for name in given]
    name = _shown(paths[0]) if len(paths) == 1 else "patches"
    name = Path(name).stem if len(paths) == 1 and not paths[0].is_dir() else name
    return Gathered(_numbered(files.read_all(paths, who)), f"patch files ({name})", name_of(name))


def _branch(stores: Stores, upstream: str, clone: Path, revision: str) -> Gathered:
    pin = stores.stack.pins.get(upstream)
    stores.base(upstream)
    stores.tell("reading commits")
    found = commits.read(clone, revision, pin, stores.objects(upstream), stores.place.cache)
    tip = revision.rpartition("..")[2] or revision
    return Gathered(found.read, f"{revision} of {_shown(clone)}", name_of(tip.rpartition("/")[2]), found.notes)


def _is_clone(folder: Path) -> bool:
    bare = all((folder / name).exists() for name in ("HEAD", "objects", "refs"))
    return folder.is_dir() and ((folder / ".git").exists() or bare)


def _numbered(read: Read) -> Read:
    """Give every candidate its number, which names it in an editor."""
    return [replace(one, key=str(number)) if isinstance(one, Candidate) else one for number, one in enumerate(read, 1)]


def _folder_name(folder: Path) -> str:
    """Return the name of a quilt folder; `patches` and `debian/patches` say less than the folder above them."""
    parts = [part for part in folder.resolve().parts if part not in ("patches", "debian", "/")]
    return parts[-1] if parts else "patches"


def _shown(path: Path) -> str:
    """Return the last part of a path: the whole one would name folders of this machine."""
    return path.resolve().name or "sources"


def _importer() -> Author:
    """Return the person who imports, as the author of patches that name none: as git does, the environment before the settings."""
    found = [
        os.environ.get(f"GIT_AUTHOR_{name.upper()}") or _setting(f"author.{name}") or _setting(f"user.{name}")
        for name in ("name", "email")
    ]
    name, address = (one.replace("<", "").replace(">", "").strip() for one in found)
    return Author(name or "unknown", address or "unknown@localhost", f"{int(time.time())} +0000")


def _setting(key: str) -> str:
    """Return one of the user's git settings; empty if there is none."""
    done = git.run(["config", "--get", key], user_config=True, accept=(0, 1, 128))
    return done.stdout.decode("utf-8", "replace").strip()
