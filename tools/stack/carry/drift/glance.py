# SPDX-License-Identifier: Apache-2.0
"""A first look at a file with added lines that finds too much rather than too little, without parsing all of it.

A carry touches a few functions of files with thousands of lines; parsing those whole takes longer than carrying them. So only
the top-level statements that upstream's own file does not have are parsed, and what the rest of the file binds is taken from its
text. Where this finds something, or cannot tell, the whole file is read.
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
    """Every name but some."""

    def __init__(self, missing: frozenset[str]) -> None:
        self._missing = missing

    def __contains__(self, name: object) -> bool:
        return name not in self._missing

    def __iter__(self) -> Iterator[str]:
        raise TypeError("it has no end")

    def __len__(self) -> int:
        raise TypeError("it has no end")


def glance(path: str, added: frozenset[int], modules: Modules, before: Modules | None, upstream: Files | None) -> Source | None:
    """A file as far as its checks need it to see that nothing is wrong; None where the whole has to be read.

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
    """The top-level statements that upstream does not have, with the imports of all others; and their text.

    Functions that nothing was added to are left empty.

    Raises:
        SyntaxError: they cannot be told apart, or are no Python.

    """
    own = upstream.read(path)
    if own is None and now == old:
        return parse(now).body, now  # a file of the patches' own, as it was
    if own is None:
        raise SyntaxError
    lines = now.split(b"\n")
    known = texts(own)
    shown: list[bytes] = [b""] * len(lines)  # as many as there are: the nodes get their numbers from them
    ours = [chunk for chunk in chunks(now) if chunk.text not in known]
    for chunk in ours:
        within = chunk.lines
        shown[chunk.start : chunk.start + len(within)] = bodiless(within, chunk.added(added)) or within
    if not all(shown[number - 1] == lines[number - 1] for number in added):
        raise SyntaxError
    return parse(b"\n".join(shown) + b"\n").body + imports(now, shown), b"".join(chunk.text for chunk in ours)


def _gone(old: bytes, now: bytes, added: frozenset[int]) -> frozenset[str]:
    """The words of added lines that stood in lines that a file had and has no longer: only they can have lost what binds them."""
    lines = now.split(b"\n")
    used = {word for number in added for word in _WORD.findall(lines[number - 1])}
    left = set(lines)
    words = {word for line in set(old.split(b"\n")) - left for word in _WORD.findall(line)}
    return frozenset(word.decode("utf-8", "replace") for word in words & used)
