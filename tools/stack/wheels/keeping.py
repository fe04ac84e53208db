# SPDX-License-Identifier: Apache-2.0
"""Keep built wheels in the cache, by the hash of everything they are made of, and copy them to where they are wanted."""

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
    """A wheel in the cache; `reused` is true if it had been built before."""

    path: Path
    sha256: Sha256
    reused: bool


def kept(place: Path, made_of: bytes, make: Callable[[Path], Path]) -> Kept:
    """Return the wheel for some inputs from the cache, or build it: `make` writes it into an empty folder and returns its path."""
    built = place / "wheels" / "built"
    folder = built / hashlib.sha256(_way() + made_of).hexdigest()[:32]
    with cache.lock(folder):
        known = _known(folder)
        if known is not None:
            return known
        shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
        folder.mkdir(parents=True)
        _tidy(built, folder)
        path = make(folder)
        sha256 = cache.hash_of(path)
        cache.put(_note(path), sha256.encode())
        return Kept(path, sha256, reused=False)


@functools.cache
def _way() -> bytes:
    """Hash the code of this package: changed code may make other wheels from the same inputs."""
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        code.update(path.read_bytes())
    return code.digest()


def put(wheel: Kept, out: Path) -> Path:
    """Put the wheel into another folder in one step, as a hard link if possible."""
    target = out / wheel.path.name
    for left in out.glob(f".*.whl*{cache.PART}"):  # left by a killed run: no run takes a day
        with contextlib.suppress(FileNotFoundError):  # it belonged to another build, which has finished meanwhile
            if time.time() - left.lstat().st_ctime > _DAY:
                left.unlink()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=cache.PART, dir=out)
    os.close(handle)
    part = Path(name)
    try:
        part.unlink()
        try:
            os.link(wheel.path, part)
        except OSError:
            shutil.copyfile(wheel.path, part)
            part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _note(path: Path) -> Path:
    """Return the path of the file with a wheel's hash, which exists once the wheel is complete."""
    return path.with_name(f"{path.name}.sha256")


def _known(folder: Path) -> Kept | None:
    """Return the wheel that was built before, if it is complete."""
    for path in folder.glob("*.whl"):
        if _note(path).is_file() and (sha256 := cache.hash_of(path)) == _note(path).read_text():
            return Kept(path, sha256, reused=True)
    return None


def _tidy(built: Path, own: Path) -> None:
    """Remove what killed runs left under other keys; a running build holds its folder's lock."""
    for folder in built.iterdir():
        if folder == own or not folder.is_dir() or any(folder.glob("*.whl.sha256")):
            continue
        with cache.lock_if_free(folder) as free:
            if free and not any(folder.glob("*.whl.sha256")):
                shutil.rmtree(folder, ignore_errors=True)
