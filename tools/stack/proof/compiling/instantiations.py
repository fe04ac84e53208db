# SPDX-License-Identifier: Apache-2.0
"""Find the explicit template instantiations of a generated source, and cut the source down to one of them.

Generators write them at the beginning of a line: `template Result name<…>(…);`, or a macro call with a name that begins with
INSTANTIATE. A source may hold dozens, each of which costs nvcc a minute and gigabytes.
"""

import re
from dataclasses import dataclass

_START = re.compile(r"^[ \t]*(?:template\b(?!\s*<)|INSTANTIATE\w*\s*\()", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Instantiation:
    """One explicit instantiation: its offsets in the source, and its text joined into one line."""

    start: int
    end: int
    text: str


def of(source: str) -> tuple[Instantiation, ...]:
    """Return the explicit instantiations of a source, in order."""
    instantiations = []
    for start in _START.finditer(source):
        end = _end(source, start.end() - 1) if source[start.end() - 1] == "(" else source.find(";", start.end()) + 1
        if end > 0:
            instantiations.append(Instantiation(start.start(), end, " ".join(source[start.start() : end].split())))
    return tuple(instantiations)


def only(source: str, kept: Instantiation) -> str:
    """Return the source with only one of its instantiations; line numbers stay the same."""
    for instantiation in reversed(of(source)):
        if instantiation != kept:
            source = (
                source[: instantiation.start]
                + re.sub(r"[^\n]+", "", source[instantiation.start : instantiation.end])
                + source[instantiation.end :]
            )
    return source


def _end(source: str, opening: int) -> int:
    """Return the end of a macro call, including a semicolon; 0 if its parenthesis is not closed."""
    depth = 0
    for place in range(opening, len(source)):
        depth += {"(": 1, ")": -1}.get(source[place], 0)
        if not depth:
            rest = re.compile(r"[ \t]*;").match(source, place + 1)
            return rest.end() if rest else place + 1
    return 0
