# SPDX-License-Identifier: Apache-2.0
"""The bare repository of one upstream: created atomically, filled atomically, and checked for damage.

New objects are gathered in a temporary repository inside the store (`incoming`). Only complete packs move into the store, before
a ref names them (`adopt`). A process that dies at any moment, or a git that outlives it, leaves only such a folder, which `sweep`
removes.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from stack.base.errors import StackError
from stack.store import cache, git

_INCOMING = "incoming-"
_SETTINGS = {
    "gc.auto": "0",  # for a while no ref names the results of a carry
    "maintenance.auto": "false",
    "core.logAllRefUpdates": "false",
    "core.autocrlf": "false",
    "fetch.unpackLimit": "1",  # keep every fetch as one pack, which can be renamed into place
    "fetch.fsckObjects": "false",
    "advice.detachedHead": "false",
}
_ABANDONED_AFTER = 3600
"""Seconds. A git that fetches a missing object writes such files without our lock, but never for an hour."""

_LOCK_PATIENCE = 1.0
"""Seconds. A live git holds a lock file for milliseconds only."""

_MANY_PACKS = 64
"""Each carry leaves a few packs, and git searches all of them for each object: with 280 a carry takes a third longer."""

_PACK_ORDER = (".pack", ".promisor", ".rev", ".idx")
"""Git looks for `.idx`, so a pack counts only once that file is there."""


def open(home: Path, upstream: str) -> Path:
    """Return the bare repository of `upstream` in the cache folder `home`; create it if it is missing.

    Raises:
        StackError: The repository is damaged or cannot be created.

    """
    store = cache.upstream_store(home, upstream)
    if not store.exists():
        with cache.lock(store):  # `sweep` removes half-made stores, under the same lock
            if not store.exists():
                _create(store)
    check(store)
    tidy(store)
    return store


def tidy(store: Path) -> None:
    """Merge many small packs into few. No object is lost, whether or not a ref names it."""
    folder = store / "objects/pack"
    if any(folder.glob("*.promisor")) or sum(1 for _ in folder.glob("*.pack")) <= _MANY_PACKS:
        return
    with suppress(git.GitError):  # another process does the same; a later call tries again
        git.run(["repack", "--geometric=2", "-d", "-l", "-q"], cwd=store, env={"GIT_DIR": str(store)})


def check(store: Path) -> None:
    """Refuse a store that is not a repository or lacks an object that a ref names.

    Raises:
        StackError: The store is damaged; the message says what to delete.

    """
    if not ((store / "HEAD").is_file() and (store / "objects").is_dir() and (store / "refs").is_dir()):
        raise damaged(store, "it is not a bare git repository")
    try:
        # Reading a ref's tree needs its commit: that fails if the commit's pack is missing, truncated or corrupt.
        errors = git.run(["for-each-ref", "--format=%(tree)%(*tree)"], cwd=store, env={"GIT_DIR": str(store)}).stderr
    except git.GitError as error:
        raise damaged(store, error.problem) from error
    if errors:
        raise damaged(store, errors.decode("utf-8", "replace").splitlines()[0])


def damaged(store: Path, why: str) -> StackError:
    """Build the error for a store that cannot be used any more."""
    return StackError(f"the store {store} is damaged ({why})", "it is only a cache: delete that folder and fetch again")


@contextmanager
def incoming(store: Path, *, borrowing: bool = False) -> Iterator[Path]:
    """Yield a temporary bare repository inside the store; with `borrowing` it can read the store's objects.

    Raises:
        StackError: The repository cannot be created.

    """
    try:
        place = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=store))
    except OSError as error:
        raise cache.unwritable(store, error) from error
    try:
        _init(place)
        if borrowing:
            (place / "objects/info").mkdir(exist_ok=True)
            (place / "objects/info/alternates").write_text(f"{store.absolute()}/objects\n")
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def adopt(store: Path, packs: Path, refs: Mapping[str, str]) -> None:
    """Move the packs of a folder into the store, then point refs at their objects.

    Raises:
        StackError: The store cannot be written.

    """
    target = store / "objects/pack"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for suffix in _PACK_ORDER:
            for file in sorted(packs.glob(f"pack-*{suffix}")):
                file.replace(target / file.name)
        _sync(target)
    except OSError as error:
        raise cache.unwritable(target, error) from error
    set_refs(store, refs)


def set_refs(store: Path, refs: Mapping[str, str | None]) -> None:
    """Point refs at objects (None deletes one), all or none.

    Raises:
        GitError: git refuses, or an object is missing.

    """
    orders = "".join(
        f"update {ref}\0{target}\0\0" if target is not None else f"delete {ref}\0\0" for ref, target in sorted(refs.items())
    )
    git.run(["update-ref", "--stdin", "-z"], cwd=store, stdin=orders.encode(), env={"GIT_DIR": str(store)})


def sweep(store: Path) -> None:
    """Remove files left by killed processes. Call it only under the store's lock."""
    for folder in store.glob(f"{_INCOMING}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder in store.parent.glob(f".{store.name}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    locks = [*store.glob("*.lock"), *(store / "refs").rglob("*.lock")]
    patience = time.monotonic() + _LOCK_PATIENCE
    while any(lock.exists() for lock in locks) and time.monotonic() < patience:
        time.sleep(0.05)
    for lock in locks:
        lock.unlink(missing_ok=True)
    oldest = time.time() - _ABANDONED_AFTER
    for file in [*store.glob("objects/pack/tmp_*"), *store.glob("objects/??/tmp_obj_*"), *store.glob("objects/pack/.tmp-*")]:
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < oldest:
                file.unlink()


def _create(store: Path) -> None:
    """Create the store under a temporary name and rename it, so that nobody sees it half made."""
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=f".{store.name}-", dir=store.parent))
        place.chmod(0o755)
        try:
            _init(place)
            place.rename(store)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except OSError as error:
        raise cache.unwritable(store, error) from error


def make_bare(place: Path) -> None:
    """Make an empty bare repository in a folder as `git init --bare` does, without a process: carries make many for a moment.

    Raises:
        OSError: The folder cannot be written.

    """
    for folder in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (place / folder).mkdir(parents=True)
    (place / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n", encoding="ascii")
    (place / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")


def _init(place: Path) -> None:
    make_bare(place)
    (place / "info").mkdir(exist_ok=True)
    settings = [f"\t{key.split('.')[1]} = {value}" for key, value in _SETTINGS.items()]
    lines = [f"[{key.split('.')[0]}]\n{line}\n" for key, line in zip(_SETTINGS, settings, strict=True)]
    with (place / "config").open("a", encoding="utf-8") as config:
        config.write("".join(lines))


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
