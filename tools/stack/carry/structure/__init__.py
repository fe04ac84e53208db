# SPDX-License-Identifier: Apache-2.0
"""Conflicts that are none: both sides add to the same imports, set, dict, keyword arguments or definitions, and both may.

Git compares lines, so what two sides add at one place is a conflict to it. Here the files' syntax tells what the place is.
Where both sides only add and their order means nothing, the union is the merge; it is made, and then proven by reading it again.
In any doubt there is no answer, and the conflict stays one.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from stack.carry.structure import cpp, python
from stack.carry.structure.hunks import Doubt, cells

_PYTHON = {".py", ".pyi"}
_CPP = {".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl"}


@dataclass(frozen=True, slots=True)
class Structured:
    """A merged file, and what was merged in it: which construct, at which line of `data`, and what each side added."""

    data: bytes
    evidence: str


def resolve(path: str, base: bytes, ours: bytes, theirs: bytes) -> Structured | None:
    """Merge a file by its structure that git's three-way merge left in conflict; None wherever that is not plainly right."""
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
    """Whether lines end with carriage return and line feed; None where some do and some do not."""
    pairs = data.count(b"\r\n")
    if pairs != data.count(b"\r") or pairs not in (0, data.count(b"\n")):
        return None
    return pairs > 0
