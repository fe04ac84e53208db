# SPDX-License-Identifier: Apache-2.0
"""Patterns: literal text with gaps, without a regular expression, so that a search takes time linear in the line.

`*` stands for any text, `{a|b}` for one of several texts, and `<n>` for a number. A backslash takes the meaning from the character
after it. A pattern fits anywhere in a line.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stack.base.prefilter import form

LONGEST = 400
"""Most characters of a pattern."""
_LEAST = 4
"""Least characters of literal text: a shorter pattern fits almost every line."""
_PIECES, _WAYS = 24, 64
"""Most parts of a pattern, and most texts that the choices between two gaps stand for."""
_NUMBERED_WAYS = 8
"""Most texts beside a number: at each place of each of them digits are read."""
_DIGITS = 20
"""Most digits of a number; it keeps a search linear where a line has nothing but digits."""
_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<gap>\*+)|(?P<number><n>)|\{(?P<choice>[^{}]*\|[^{}]*)\}|(?P<plain>.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What stands between two gaps: one of `texts`, then numbers, each with one of its texts after it."""

    texts: tuple[str, ...]
    after: tuple[tuple[str, ...], ...] = ()

    def find(self, line: str, start: int) -> int:
        """Return where the first place ends in which it fits; -1 if there is none."""
        if not self.after:
            found = [(place + len(text)) for text in self.texts if (place := line.find(text, start)) >= 0]
            return min(found, default=-1)
        return min((end for text in self.texts if (end := self._first(text, line, start)) >= 0), default=-1)

    def _first(self, text: str, line: str, start: int) -> int:
        at = line.find(text, start)
        while at >= 0:
            if (end := self._rest(line, at + len(text))) >= 0:
                return end
            at = line.find(text, at + 1)
        return -1

    def _rest(self, line: str, at: int) -> int:
        for texts in self.after:
            stop = at
            while stop < len(line) and stop - at < _DIGITS and line[stop].isdigit():
                stop += 1
            text = next((text for text in texts if line.startswith(text, stop)), None)
            if stop == at or text is None:
                return -1
            at = stop + len(text)
        return at


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern. `word`: a literal text that every fitting line contains, if there is one."""

    text: str
    chunks: tuple[_Chunk, ...]
    word: str

    def fits(self, line: str) -> bool:
        """Tell whether the pattern fits anywhere in a line."""
        if self.word not in line:
            return False
        at = 0
        for chunk in self.chunks:
            at = chunk.find(line, at)
            if at < 0:
                return False
        return True

    @property
    def words(self) -> tuple[str, ...]:
        """Texts; every fitting line contains one. Chosen are those with the longest forms."""
        ways = [chunk.texts for chunk in self.chunks] + ([(self.word,)] if self.word else [])
        return max(ways, key=lambda texts: min(len(form(text)) for text in texts))

    @property
    def literals(self) -> tuple[str, ...]:
        """The literal texts with which its parts begin."""
        return tuple(text for chunk in self.chunks for text in chunk.texts)

    @property
    def size(self) -> int:
        """Number of literal characters: a measure of how specific the pattern is."""
        return sum(min(map(len, texts)) for chunk in self.chunks for texts in (chunk.texts, *chunk.after))


def parse(text: str) -> Pattern:
    """Parse a pattern.

    Raises:
        ValueError: it is too long, too short, or has too many parts.

    """
    if not text.isprintable():
        raise ValueError("has characters that cannot be printed")
    if len(text) > LONGEST:
        raise ValueError(f"has more than {LONGEST} characters")
    parts = [chunk for chunk in _split(text) if chunk]
    if sum(map(len, parts)) > _PIECES:
        raise ValueError(f"has more than {_PIECES} parts")
    made = Pattern(text, tuple(map(_chunk, parts)), _word(parts))
    if made.size < _LEAST:
        raise ValueError(f"has fewer than {_LEAST} letters of its own")
    return made


def _split(text: str) -> Iterator[list[tuple[str, ...]]]:
    """Split a pattern at its gaps; each part is a list of choices, and an empty choice stands for a number."""
    parts, literal = list[tuple[str, ...]](), ""
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind in ("plain", "escaped"):
            literal += token[kind]
            continue
        parts += [(literal,)] if literal else []
        literal = ""
        if kind == "gap":
            yield parts
            parts = []
        else:
            choices = tuple(token["choice"].split("|")) if kind == "choice" else ()
            if "" in choices:
                raise ValueError("has an empty choice")
            parts.append(choices)
    parts += [(literal,)] if literal else []
    yield parts


def _chunk(parts: Sequence[tuple[str, ...]]) -> _Chunk:
    """Join the choices between numbers to whole texts."""
    groups = [[*group] for is_number, group in itertools.groupby(parts, key=lambda part: not part) if not is_number]
    numbers = sum(not part for part in parts)
    if numbers and (not parts[0] or any(not one and not other for one, other in itertools.pairwise(parts))):
        raise ValueError("has <n> without text before it")
    joined = [_joined(group) for group in groups]
    if numbers and max(map(len, joined)) > _NUMBERED_WAYS:
        raise ValueError(f"stands for more than {_NUMBERED_WAYS} texts beside a number")
    if numbers and not parts[-1]:
        joined.append(("",))
    return _Chunk(joined[0], tuple(joined[1:]))


def _joined(group: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    ways = 1
    for choices in group:
        ways *= len(choices)
    if ways > _WAYS:
        raise ValueError(f"stands for more than {_WAYS} texts between two gaps")
    # The shortest text first: what stands after a gap is searched from its end.
    return tuple(sorted({"".join(texts) for texts in itertools.product(*group)}, key=lambda text: (len(text), text)))


def _word(parts: Sequence[Sequence[tuple[str, ...]]]) -> str:
    """Return the longest text without a choice."""
    return max((choices[0] for part in parts for choices in part if len(choices) == 1), key=len, default="")
