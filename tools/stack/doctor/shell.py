# SPDX-License-Identifier: Apache-2.0
"""Split shell commands into words with their lines, with enough of the grammar for scripts that start servers.

Nothing is run. Words are split as a shell does (quotes, escapes, continued lines, comments). A variable is expanded if the script
itself sets it to a plain value.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from stack.base.errors import StackError

_PIECE = re.compile(
    r"(?P<blank>[ \t\r]+|\\\r?\n)"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<end>\n|;;?|&&|\|\|?|&(?!>)|[(){}](?=[\s;]|$)|\)|(?<==)\()"
    r"|(?P<redirect>[0-9]*(?:<<<|<<-?|[<>]{1,2}&?|&>>?))"
    r"|(?P<word>(?:\\[\s\S]|'[^']*'|\"(?:\\[\s\S]|[^\"\\])*\"|\$\((?:[^()\n]|\([^()\n]{0,400}\)){0,400}\)|\$\{[^}\n]{0,400}\}|[^\s\\'\"|&;()<>])+)"
    r"|(?P<odd>[\s\S])"
)
_PART = re.compile(r"\\\r?\n|\\([\s\S])|'([^']*)'|\"((?:\\[\s\S]|[^\"\\])*)\"|([^\\'\"]+)|([\s\S])")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_BEFORE = frozenset({"export", "local", "readonly", "declare", "env", "sudo"})
_KNOWN = 1024
"""Most characters of a value that is expanded: with A=$A$A values would double without end."""
_MOST_FILLED = 2**20
"""Most characters that the values of variables may add to a script: a small script can name a long value thousands of times."""
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=([\s\S]*)")


@dataclass(frozen=True, slots=True)
class Word:
    """A word without its quotes, and its line, counted from 1; `is_before_and`: whether it ends a command in the background."""

    text: str
    line: int
    is_before_and: bool = False


Command = tuple[Word, ...]


def commands(text: str, first: int = 1) -> Iterator[Command]:
    """Yield the simple commands of a script, whose first line has the number `first`. For `NAME=(words)` the first word is `NAME=(`.

    Redirections are left out. Lines of a here-document count as commands.

    Raises:
        StackError: the values of its variables make it too long.

    """
    line, words, known, aside = first, list[Word](), dict[str, str](), False
    room = _MOST_FILLED
    for piece in _PIECE.finditer(text):
        kind, text_ = piece.lastgroup, piece[0]
        listing = bool(words) and words[0].text.endswith("=(")
        dropped, aside = aside, kind == "redirect" or (aside and kind == "blank")
        if kind == "word" and not dropped:
            # Also within single quotes: there is mostly a command of its own.
            whole = filled(plain := _plain(text_), known, room)
            room -= max(0, len(whole) - len(plain))
            # The value of an unquoted variable is split, too.
            parts = whole.split() if _VARIABLE.fullmatch(text_) else (whole,)
            words += (Word(part, line) for part in parts)
        elif kind == "end" and text_ == "(" and words and words[-1].text.endswith("="):
            words = [Word(f"{words[-1].text}(", line)]
        elif kind == "end" and words and not (listing and text_ != ")"):
            if text_ == "&":
                words[-1] = replace(words[-1], is_before_and=True)
            yield _known(tuple(words), known)
            words = []
        line += text_.count("\n")
    if words:
        yield _known(tuple(words), known)


def _known(command: Command, known: dict[str, str]) -> Command:
    """Note a command's assignments for the commands after it, and return the command."""
    for word in command:
        if word.text in _BEFORE:
            continue
        assigned = _ASSIGNED.fullmatch(word.text)
        if assigned is None:
            break
        known.pop(assigned[1], None)
        if len(assigned[2]) <= _KNOWN:
            known[assigned[1]] = assigned[2]
    return command


def too_long(most: int, of: str) -> StackError:
    """Return the error for a script whose variables and lists stand for too much."""
    return StackError(f"the script's variables and lists stand for more than {most} {of}", "shorten their values")


def filled(text: str, known: Mapping[str, str], room: int = _MOST_FILLED) -> str:
    """Expand the known variables in a word; an unknown one with a default gets its default.

    Raises:
        StackError: the values have more than `room` characters more than the variables.

    """

    def value(match: re.Match[str]) -> str:
        nonlocal room
        name = match[1] or match[3]
        given = known.get(name, match[2] if match[2] is not None else match[0])
        room -= max(0, len(given) - len(match[0]))
        if room < 0:
            raise too_long(_MOST_FILLED, "characters")
        return given

    return _VARIABLE.sub(value, text)


def _plain(word: str) -> str:
    return "".join(_part(part) for part in _PART.finditer(word))


def _part(part: re.Match[str]) -> str:
    escaped, single, double, plain, odd = part.groups()
    if single is not None:
        return single
    if double is not None:
        # Keep continued lines: the text may be a command of its own, whose lines are counted.
        return re.sub(r'\\([$`"\\])', r"\1", double)
    return escaped or plain or odd or ""


def assignments(command: Command) -> Iterator[tuple[str, Word, bool]]:
    """Yield the variables that a command sets: name, value with its line, and whether started programs see it."""
    seen = any(_ASSIGNED.fullmatch(word.text) is None for word in command)
    for word in command:
        if word.text not in _BEFORE and "=" not in word.text:
            return
        if (assigned := _ASSIGNED.fullmatch(word.text)) and not assigned[2].startswith("("):
            yield assigned[1], Word(assigned[2], word.line), seen


def exported(command: Command) -> frozenset[str]:
    """Return the names that a command exports to later programs; `*` stands for all."""
    texts = [word.text for word in command]
    if texts in (["set", "-a"], ["set", "-o", "allexport"]):
        return frozenset("*")
    return frozenset(texts[1:] if texts[0] == "export" else ())
