# SPDX-License-Identifier: Apache-2.0
"""Wheels that were built before, in the cache by what they are made of; put where they are wanted, whole or not at all."""

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stack.model.ids import Sha256
from stack.store import cache

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Kept:
    """A wheel in the cache. `reused`: it was there already."""

    path: Path
    sha256: Sha256
    reused: bool


def kept(place: Path, made_of: bytes, make: Callable[[Path], Path]) -> Kept:
    """The wheel that is made of something; `make` writes it into an empty folder, unless it was built before, and says where it is."""
    built = place / "wheels" / "built"
    folder = built / hashlib.sha256(_way() + made_of).hexdigest()[:32]
    with cache.lock(folder):
        found = _known(folder)
        if found is not None:
            return found
        shutil.rmtree(folder, ignore_errors=True)  # what a run that was killed left
        folder.mkdir(parents=True)
        _tidy(built, folder)
        path = make(folder)
        sha256 = cache.hash_of(path)
        cache.put(_note(path), sha256.encode())
        return Kept(path, sha256, reused=False)


@functools.cache
def _way() -> bytes:
    """How wheels are made: the code of this package. Another way may make another wheel of the same things."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return code.digest()


def put(one: Kept, out: Path) -> Path:
    """The wheel in another folder, at once; on the same disk it is not copied."""
    target = out / one.path.name
    for left in out.glob(f".*.whl*{cache.PART}"):  # of a run that was killed: none takes a day
        with contextlib.suppress(FileNotFoundError):  # another build's, which is whole by now
            if time.time() - left.lstat().st_ctime > _DAY:
                left.unlink()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=cache.PART, dir=out)
    os.close(handle)
    part = Path(name)
    try:
        part.unlink()
        try:
            os.link(one.path, part)
        except OSError:
            shutil.copyfile(one.path, part)
            part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _note(path: Path) -> Path:
    """Where the hash of a wheel stands once it is whole."""
    return path.with_name(f"{path.name}.sha256")


def _known(folder: Path) -> Kept | None:
    """The wheel that was built before, if it is whole."""
    for path in folder.glob("*.whl"):
        if _note(path).is_file() and (sha256 := cache.hash_of(path)) == _note(path).read_text():
            return Kept(path, sha256, reused=True)
    return None


def _tidy(built: Path, own: Path) -> None:
    """Remove what runs that were killed left under other keys; a run that is under way holds its lock."""
    for folder in built.iterdir():
        if folder == own or not folder.is_dir() or any(folder.glob("*.whl.sha256")):
            continue
        with cache.lock_if_free(folder) as free:
            if free and not any(folder.glob("*.whl.sha256")):
                shutil.rmtree(folder, ignore_errors=True)
