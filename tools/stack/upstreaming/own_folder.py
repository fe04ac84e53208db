# SPDX-License-Identifier: Apache-2.0
"""A folder that a command writes as a whole, and replaces only if it holds nothing but what it wrote there itself."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from stack.base.errors import StackError

WRITTEN = ".stack-written.json"
"""The file with the hash of every other one: what is not in it, or was changed since, is a person's."""
_MOST = 1 << 20


def replace(folder: Path, files: Mapping[Path, bytes], option: str) -> Path:
    """Write files as all that a folder holds; return its absolute path. An earlier folder goes when the new one is complete.

    Raises:
        StackError: the folder is none, holds a file that is not as this wrote it, or cannot be written.

    """
    if folder.is_symlink():
        raise StackError(f"{folder} is not a folder", f"name another place with {option}")
    folder = folder.resolve()  # it is moved as a whole, so its name has to be its own, and not ".."
    _check(folder, option)
    listed = {place.as_posix(): hashlib.sha256(data).hexdigest() for place, data in files.items()}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".stack-", dir=folder.parent) as work:
            new = made(Path(work), {**files, Path(WRITTEN): json.dumps(listed, indent=1).encode()})
            exchange(folder, new, Path(work, "old"), lambda old: _check(old, option))
    except OSError as failed:
        raise StackError(f"{folder} cannot be written ({failed.strerror})", f"name another folder with {option}") from failed
    return folder


def made(work: Path, files: Mapping[Path, bytes]) -> Path:
    """Write files into a new folder within `work`; return it."""
    new = work / "new"
    new.mkdir()
    for place, data in files.items():
        (new / place).parent.mkdir(parents=True, exist_ok=True)
        (new / place).write_bytes(data)
    return new


def exchange(folder: Path, new: Path, old: Path, check: Callable[[Path], None] = lambda _: None) -> None:
    """Put a new folder in the place of one that goes to `old`; where that or its check fails, the folder stays as it was.

    `check`: looks at the folder once more when nobody finds it under its name any longer.
    """
    if not folder.exists():
        new.rename(folder)
        return
    folder.rename(old)
    try:
        check(old)
        new.rename(folder)
    except BaseException:
        old.rename(folder)
        raise


def _check(folder: Path, option: str) -> None:
    if folder.exists() and not folder.is_dir():
        raise StackError(f"{folder} is not a folder", f"name another place with {option}")
    listed = _listed(folder)
    for place, digest in _present(folder):
        if place != WRITTEN and (digest is None or listed.get(place) != digest):
            known = "was changed since" if place in listed else "was not written by"
            raise StackError(f"{folder / place} {known} {option}", "name another folder: this one would be replaced")


def _present(folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield all below a folder but folders with content: a file with its hash, a link or an empty folder with None."""
    for name, folders, files in os.walk(folder):
        links = [one for one in folders if Path(name, one).is_symlink()]
        for one in sorted([*files, *links]):
            path = Path(name, one)
            plain = path.is_file() and not path.is_symlink()
            yield path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest() if plain else None
        if not files and not folders and Path(name) != folder:
            yield Path(name).relative_to(folder).as_posix(), None


def _listed(folder: Path) -> Mapping[str, object]:
    try:
        with Path(folder, WRITTEN).open("rb") as file:
            read = json.loads(file.read(_MOST))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
