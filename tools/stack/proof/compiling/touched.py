# SPDX-License-Identifier: Apache-2.0
"""Find the units that a patch touches: through changed flags or generated sources, or through a file that they include."""

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
    """Tell whether a compiler reads this file."""
    return PurePosixPath(path).suffix in _COMPILED


def is_built(path: str) -> bool:
    """Tell whether a file is compiled, or controls how others are."""
    return is_compiled(path) or PurePosixPath(path).name == "CMakeLists.txt" or path.endswith(".cmake")


def by_flags(before: Listing, after: Listing) -> Iterator[Unit]:
    """Yield the units that are new after a patch or whose flags or generated sources changed."""
    was = {unit.name: before.fingerprint(unit) for unit in before.units}
    yield from (unit for unit in after.units if was.get(unit.name) != after.fingerprint(unit))


def by_files(listing: Listing, paths: Iterable[str], toolkit: Toolkit) -> Iterator[Unit]:
    """Yield the units that are compiled from one of these files of the tree, as the preprocessor reports.

    A unit that cannot be preprocessed is included, since it may depend on them.
    """
    changed = frozenset(listing.tree / path for path in paths if is_compiled(path))
    if not changed:
        return
    reaching = _reaching(listing, changed)
    for unit in listing.units:
        if unit.source in reaching:
            dependencies, error = compiler.dependencies(unit, toolkit, listing.tree)
            if error or dependencies & changed:
                yield unit


def _reaching(listing: Listing, files: frozenset[Path]) -> frozenset[Path]:
    """Return the files that may include one of these, directly or indirectly. Matching by the end of the path may give too many."""
    includers = _includers(listing.tree, listing.work)
    reaching, queue = set(files), list(files)
    while queue:
        file = queue.pop()
        for name, including in includers.get(file.name, {}).items():
            if file.as_posix().endswith("/" + re.sub(r"^(\.{1,2}/)+", "", name)):
                new = including - reaching
                reaching |= new
                queue += new
    return frozenset(reaching)


@functools.cache
def _includers(*folders: Path) -> Mapping[str, Mapping[str, set[Path]]]:
    """Map a file's bare name to each spelling with which it is included, and that to the including files."""
    includers: dict[str, dict[str, set[Path]]] = {}
    for file in (file for folder in folders for file in folder.rglob("*") if file.suffix in _COMPILED and file.is_file()):
        for written in _INCLUDE.findall(file.read_bytes()):
            name = written.decode("utf-8", "replace")
            includers.setdefault(PurePosixPath(name).name, {}).setdefault(name, set()).add(file)
    return includers
