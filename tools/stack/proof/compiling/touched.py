# SPDX-License-Identifier: Apache-2.0
"""Which units a patch touches: through the flags and sources that upstream's Python gives them, or a file that they include."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from stack.proof.compiling import compiler
from stack.proof.compiling.listing import Listing, Unit
from stack.proof.compiling.toolkit import Toolkit

_COMPILED = frozenset({".cu", ".cuh", ".h", ".hpp", ".hxx", ".inl", ".inc", ".c", ".cc", ".cpp", ".cxx"})
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


def is_compiled(path: str) -> bool:
    """Whether a compiler reads this file."""
    return PurePosixPath(path).suffix in _COMPILED


def is_built(path: str) -> bool:
    """Whether a file is compiled, or says how others are."""
    return is_compiled(path) or PurePosixPath(path).name == "CMakeLists.txt" or path.endswith(".cmake")


def by_flags(before: Listing, after: Listing) -> Iterator[Unit]:
    """The units that are compiled otherwise after a patch than before it, or are new."""
    was = {unit.name: before.fingerprint(unit) for unit in before.units}
    yield from (unit for unit in after.units if was.get(unit.name) != after.fingerprint(unit))


def by_files(listing: Listing, paths: Iterable[str], toolkit: Toolkit) -> Iterator[Unit]:
    """The units that are compiled from one of these files of the tree; what the preprocessor says counts.

    A unit that cannot be preprocessed is among them: nobody knows that it is not.
    """
    changed = frozenset(listing.tree / path for path in paths if is_compiled(path))
    if not changed:
        return
    reaching = _reaching(listing, changed)
    for unit in listing.units:
        if unit.source in reaching:
            found, error = compiler.dependencies(unit, toolkit, listing.tree)
            if error or found & changed:
                yield unit


def _reaching(listing: Listing, files: frozenset[Path]) -> frozenset[Path]:
    """The files that may include one of these, through whatever others: the name's end is the same. Too many rather than too few."""
    includers = _includers(listing.tree, listing.work)
    found, queue = set(files), list(files)
    while queue:
        file = queue.pop()
        for name, including in includers.get(file.name, {}).items():
            if file.as_posix().endswith("/" + re.sub(r"^(\.{1,2}/)+", "", name)):
                new = including - found
                found |= new
                queue += new
    return frozenset(found)


@functools.cache
def _includers(*folders: Path) -> Mapping[str, Mapping[str, set[Path]]]:
    """A file's bare name -> each name that it is included by -> the files that do so."""
    found: dict[str, dict[str, set[Path]]] = {}
    for file in (file for folder in folders for file in folder.rglob("*") if file.suffix in _COMPILED and file.is_file()):
        for written in _INCLUDE.findall(file.read_bytes()):
            name = written.decode("utf-8", "replace")
            found.setdefault(PurePosixPath(name).name, {}).setdefault(name, set()).add(file)
    return found
