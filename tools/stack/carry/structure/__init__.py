# SPDX-License-Identifier: Apache-2.0
"""Resolve conflicts in which both sides only add: to the same imports, set, dict, keyword arguments or definitions.

Git compares lines, so two additions at one place are a conflict. Here the file's syntax shows what the place is. If both sides
only add, and the order has no meaning, the merge is the union of both. It is made, then parsed again and proven. In doubt, the
conflict stays.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from stack.carry.structure import cpp, python
from stack.carry.structure.hunks import Doubt, cells

_PYTHON = {".py", ".pyi"}
_CPP = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl"}


@dataclass(frozen=True, slots=True)
class Structured:
    """A merged file; `evidence` names each construct, its line in `data`, and the additions of each side."""

    data: bytes
    evidence: str


def resolve(path: str, base: bytes, ours: bytes, theirs: bytes) -> Structured | None:
    """Merge a file in conflict by its syntax; None unless the result is proven."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in _PYTHON | _CPP:
        return None
    windows = [_has_windows_ends(data) for data in (base, ours, theirs)]
    if None in windows or len(set(windows)) > 1:
        return None
    three = [data.replace(b"\r\n", b"\n") for data in (base, ours, theirs)]
    try:
        merge = python.resolve if suffix in _PYTHON else cpp.resolve
        data, evidence = merge(cells(*three), three[1], three[2])
    except (Doubt, RecursionError):
        return None
    return Structured(data.replace(b"\n", b"\r\n") if windows[0] else data, evidence)


def _has_windows_ends(data: bytes) -> bool | None:
    """Return whether lines end with carriage return and line feed; None if only some do."""
    pairs = data.count(b"\r\n")
    if pairs != data.count(b"\r") or pairs not in (0, data.count(b"\n")):
        return None
    return pairs > 0
