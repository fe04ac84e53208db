# SPDX-License-Identifier: Apache-2.0
"""Take a quick look at a file with added lines without parsing all of it; it may find too much, but never too little.

Patches change a few functions of files with thousands of lines, and parsing the whole files would take longer than carrying the
patches. So only the top-level statements that upstream's own file does not have are parsed. The names that the rest of the file
binds are read from its text. If this finds something, or is not sure, the whole file is parsed.
"""

import ast
import re
from collections.abc import Iterator, Set

from stack.carry.drift.chunks import aliases, chunks, imports, texts
from stack.carry.drift.modules import Modules
from stack.carry.drift.outline import bodiless, parse
from stack.carry.drift.source import Scopes, Source, scopes
from stack.carry.drift.tree import Files

_WORD = re.compile(rb"\w+")


class _AllBut(Set[str]):
    """The infinite set of all names except the `missing` ones."""

    def __init__(self, missing: frozenset[str]) -> None:
        self._missing = missing

    def __contains__(self, name: object) -> bool:
        return name not in self._missing

    def __iter__(self) -> Iterator[str]:
        raise TypeError("it has no end")

    def __len__(self) -> int:
        raise TypeError("it has no end")


def glance(path: str, added: frozenset[int], modules: Modules, before: Modules | None, upstream: Files | None) -> Source | None:
    """Parse as much of a file as the checks need to see that nothing is wrong; None if the whole file must be parsed.

    `upstream` are the files of the new base without patches.
    """
    if before is None or upstream is None:
        return None
    now, old = modules.files.read(path), before.files.read(path)
    if now is None or old is None:
        return None
    try:
        body, text = _ours(path, now, old, added, upstream)
    except SyntaxError:
        return None
    binding = {alias.asname or alias.name.partition(".")[0] for node in body for alias in aliases(node)}
    gone = {name for name in _gone(old, now, added) - binding if not modules.is_defined(path, name)}
    if gone:
        bound = scopes(text, path)
        if bound is None:
            return None
        gone -= bound.bound
    return Source(
        path, added, modules, before, ast.Module(body, []), Scopes(_AllBut(frozenset(gone)), frozenset(), frozenset())
    )


def _ours(path: str, now: bytes, old: bytes, added: frozenset[int], upstream: Files) -> tuple[list[ast.stmt], bytes]:
    """Return the top-level statements that upstream does not have, with the imports of all others; and their text.

    The bodies of functions without added lines are left out.

    Raises:
        SyntaxError: the statements cannot be separated, or are not valid Python.

    """
    own = upstream.read(path)
    if own is None and now == old:
        return parse(now).body, now  # A file that the patches add, and that is unchanged.
    if own is None:
        raise SyntaxError
    lines = now.split(b"\n")
    known = texts(own)
    shown: list[bytes] = [b""] * len(lines)  # Blank lines keep the nodes' line numbers right.
    ours = [chunk for chunk in chunks(now) if chunk.text not in known]
    for chunk in ours:
        within = chunk.lines
        shown[chunk.start : chunk.start + len(within)] = bodiless(within, chunk.added(added)) or within
    if not all(shown[number - 1] == lines[number - 1] for number in added):
        raise SyntaxError
    return parse(b"\n".join(shown) + b"\n").body + imports(now, shown), b"".join(chunk.text for chunk in ours)


def _gone(old: bytes, now: bytes, added: frozenset[int]) -> frozenset[str]:
    """Return the words of added lines that are also in lines that the file lost: only these can have lost their binding."""
    lines = now.split(b"\n")
    used = {word for number in added for word in _WORD.findall(lines[number - 1])}
    left = set(lines)
    words = {word for line in set(old.split(b"\n")) - left for word in _WORD.findall(line)}
    return frozenset(word.decode("utf-8", "replace") for word in words & used)
