# SPDX-License-Identifier: Apache-2.0
"""Leave patches that could not be imported in a folder, as they were, with the reasons."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.importing.candidate import Candidate, LeftOut
from stack.carry.importing.files import ENDINGS
from stack.carry.new_folder import aside
from stack.model import document, patch

REASONS = "reasons.txt"
_IGNORE = ".gitignore"
_IGNORED = "# Written by `stack import`: git ignores this folder.\n*\n"
_HEAD = "# Patches that `stack import` could not import: file, reason.\n"
_DEEPEST = 8
"""Upper bound of the subfolders that are kept."""


def place(named: Path | None, default: str, left: Sequence[LeftOut]) -> Path:
    """Return the folder for patches that do not apply: `named`, or else a new one that is named after the series.

    What an earlier import left in a folder stays there. The next one gets a number, unless it leaves the very same files.

    Raises:
        StackError: `named` is neither new nor empty, nor has these files.

    """
    contents = _contents(left)
    if named is not None:
        if not _is_free(named) and not _has(named, contents):
            raise StackError(
                f"{named} is not an empty folder", "name another one for patches that do not apply: --not-imported DIR"
            )
        return named
    folders = (Path(f"{default}-not-imported{'' if number == 1 else f'-{number}'}") for number in count(1))
    return next(folder for folder in folders if _is_free(folder) or _has(folder, contents))


def keep(folder: Path, left: Sequence[LeftOut]) -> None:
    """Write the patches that do not apply to a folder from `place`, with a list of the reasons. Git ignores the folder.

    Raises:
        StackError: The folder cannot be written; then nothing is left of it.

    """
    contents = _contents(left)
    if _has(folder, contents):
        return
    with aside(folder) as part:
        for name, data in contents.items():
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            (part / name).write_bytes(data)


def _contents(left: Sequence[LeftOut]) -> dict[str, bytes]:
    """Return the files of the folder, by their paths in it."""
    files: dict[str, bytes] = {}
    lines = []
    for one in left:
        name = next(name for name in _names(one.candidate) if name not in files)
        files[name] = one.candidate.raw
        lines.append(f"{name}: {one.reason}\n")
    # A name in a reason may be in any encoding.
    return files | {REASONS: (_HEAD + "".join(lines)).encode("utf-8", "backslashreplace"), _IGNORE: _IGNORED.encode()}


def _names(candidate: Candidate) -> Iterator[str]:
    """Yield paths for a patch: its subfolder and file name as they were, then with a number at the end."""
    given = (candidate.file or candidate.named()).rpartition("/")[2]
    stem, dot, ending = given.rpartition(".")
    if f".{ending.lower()}" not in ENDINGS or not dot:
        stem, ending = given, "patch"
    # Without a dot, a folder cannot have the name of a file.
    folders = [_plain(part).replace(".", "-") for part in candidate.folder.split("/")[:_DEEPEST]]
    above = "".join(f"{part}/" for part in folders if part)
    stem = _plain(stem) or "patch"
    yield f"{above}{stem}.{ending}"
    yield from (f"{above}{stem}-{number}.{ending}" for number in count(2))


def _plain(name: str) -> str:
    """Return a name without characters that mean something to a shell or a file system."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100]


def _is_free(folder: Path) -> bool:
    if folder.is_symlink():
        return False
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _has(folder: Path, contents: Mapping[str, bytes]) -> bool:
    """Return whether a folder has exactly these files."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}
    return there.keys() == contents.keys() and all(
        path.is_file()
        and not path.is_symlink()
        and document.read_bytes(path, missing="run it again", largest=patch.LARGEST) == contents[name]
        for name, path in there.items()
    )
