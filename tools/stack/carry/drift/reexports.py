# SPDX-License-Identifier: Apache-2.0
"""Find by its text from which module a Python file imports a name, without parsing the file."""

import re
from collections.abc import Mapping
from typing import NamedTuple

# A pattern that begins with a line feed is found many times as fast as one for the start of a line. The imported names are only
# looked at, so that a statement inside of another one's brackets is found, too.
_FROM = re.compile(rb"\nfrom[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(?:(?=\(([^()]*)\))|(?=([^\n(]*)))")
_WORD = re.compile(rb"\b\w+")
_BRACKETED_END, _PLAIN_END = re.compile(rb"[,\n()]"), re.compile(rb"[,\n(]")


class Import(NamedTuple):
    """An import of one name: where its statement and its text end, the module, and the words behind the name."""

    start: int
    end: int
    level: int
    module: str
    rest: tuple[bytes, ...]


Imports = Mapping[bytes, tuple[Import, ...]]
"""The unindented `from … import` statements that name each word, in their order."""


def imports(data: bytes) -> Imports:
    """Return the names that unindented `from … import` statements of a file have, with the place of each."""
    data = b"\n" + data
    found: dict[bytes, list[Import]] = {}
    for match in _FROM.finditer(data):
        group, stop = (3, _BRACKETED_END) if match[3] is not None else (4, _PLAIN_END)
        level, module = len(match[1]), match[2].decode("utf-8", "replace")
        seen: set[bytes] = set()
        for word in _WORD.finditer(data, *match.span(group)):
            if word[0] in seen:
                continue
            seen.add(word[0])
            after = stop.search(data, word.end())
            rest = data[word.end() : after.start() if after else len(data)]
            end = match.end(3) + 1 if group == 3 else word.end() + len(rest)
            words = tuple(rest.partition(b"#")[0].split())
            found.setdefault(word[0], []).append(Import(match.start() + 1, end, level, module, words))
    return {word: tuple(each) for word, each in found.items()}


def single(known: Imports, name: bytes) -> Import | None:
    """Return the import of a name; None unless exactly one statement imports it, without renaming it."""
    chosen: list[Import] = []
    for each in known.get(name, ()):
        if not chosen or each.start >= chosen[-1].end:
            chosen.append(each)
    return chosen[0] if len(chosen) == 1 and chosen[0].rest in ((), (b"as", name)) else None
