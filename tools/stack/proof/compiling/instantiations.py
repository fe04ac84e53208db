# SPDX-License-Identifier: Apache-2.0
"""The explicit template instantiations of a generated source, and the source with one of them.

Generators write them as statements at the beginning of a line: `template Result name<…>(…);`, or the call of a macro whose
name begins with INSTANTIATE. A source may hold dozens, each of which takes nvcc a minute and gigabytes.
"""

import re
from dataclasses import dataclass

_START = re.compile(r"^[ \t]*(?:template\b(?!\s*<)|INSTANTIATE\w*\s*\()", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Instantiation:
    """One explicit instantiation: its place in the source and its text in one line."""

    start: int
    end: int
    text: str


def of(source: str) -> tuple[Instantiation, ...]:
    """The explicit instantiations of a source, in its order."""
    found = []
    for start in _START.finditer(source):
        end = _end(source, start.end() - 1) if source[start.end() - 1] == "(" else source.find(";", start.end()) + 1
        if end > 0:
            found.append(Instantiation(start.start(), end, " ".join(source[start.start() : end].split())))
    return tuple(found)


def only(source: str, kept: Instantiation) -> str:
    """The source with one of its instantiations; lines keep their numbers."""
    for one in reversed(of(source)):
        if one != kept:
            source = source[: one.start] + re.sub(r"[^\n]+", "", source[one.start : one.end]) + source[one.end :]
    return source


def _end(source: str, opening: int) -> int:
    """The end of a macro's call, with its semicolon if there is one; 0 where it is not closed."""
    depth = 0
    for place in range(opening, len(source)):
        depth += {"(": 1, ")": -1}.get(source[place], 0)
        if not depth:
            rest = re.compile(r"[ \t]*;").match(source, place + 1)
            return rest.end() if rest else place + 1
    return 0
