# SPDX-License-Identifier: Apache-2.0
"""One file's three-way merge as text: what merges by itself, and the conflicting hunks in between."""

import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.carry.mergetree import merge_trees
from stack.store import git
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects

AROUND = 3
"""Lines before and after a hunk that belong to it."""

_LARGEST = 1 << 19
"""Bytes; what is larger is data that nobody resolves line by line."""
_NAME = "file"
_MARKER = 200
_MARKS = [sign * _MARKER for sign in (b"<", b"|", b"=", b">")]
# Git writes a last line without an end as if it had one. Here such a line is told apart, as git's own comparison does.
_NO_END = b"\x01no end of line\x01"


_KEPT = {0xDC00 + byte: 0x10FE00 + byte for byte in range(128, 256)}
"""Python's signs for bytes that are not UTF-8, as characters of the last private plane."""
_AS_BYTES = {character: sign for sign, character in _KEPT.items()}
_STRANGE = re.compile("[\U0010fe80-\U0010feff]")


@dataclass(frozen=True, slots=True)
class Hunk:
    """A conflicting hunk: its three versions, and up to three merged lines around it, up to the next hunk."""

    before: str
    base: str
    ours: str
    theirs: str
    after: str

    @property
    def key(self) -> str:
        """The first 16 hexadecimal digits of a hash over the three versions."""
        seen = hashlib.sha256()
        for text in (self.base, self.ours, self.theirs):
            data = text.encode()
            seen.update(b"%d\n%b" % (len(data), data))
        return seen.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Merge:
    """A merged file: each of `hunks` stands between two of `shared`, the lines that merge by themselves."""

    shared: tuple[tuple[str, ...], ...]
    hunks: tuple[Hunk, ...]

    def joined(self, resolved: Sequence[str]) -> str:
        """The file with these texts in the places of the hunks."""
        texts = ["".join(lines) for lines in self.shared]
        return "".join(itertools.chain.from_iterable(zip(texts, (*resolved, ""), strict=True)))


def merges(base: bytes, ours: bytes, theirs: bytes) -> Iterator[Merge]:
    """Merge a file in git's two ways, whose hunks can have other bounds; none for what cannot be merged as text.

    A working tree shows those of the first, which compares by histogram; the second, `git merge-file`, compares by Myers' algorithm.
    """
    shown = merge_as_trees(base, ours, theirs)
    if shown is not None:
        yield shown
        plain = merge(base, ours, theirs)
        if plain is not None and plain != shown:
            yield plain


def _is_mergeable(*versions: bytes) -> bool:
    """Whether all versions are text, none too large, and nothing in them looks like a marker."""
    return not any(text(data) is None or _NO_END in data or any(mark in data for mark in _MARKS) for data in versions)


def _ended(data: bytes) -> bytes:
    return data if data.endswith(b"\n") or not data else data + _NO_END + b"\n"


def merge_as_trees(base: bytes, ours: bytes, theirs: bytes) -> Merge | None:
    """Merge as `git merge-tree` and `git cherry-pick` do; None for what is binary, too large, or looks like markers."""
    if not _is_mergeable(base, ours, theirs):
        return None
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        git.run(["init", "--quiet", "--bare", "--template=", folder])
        with Objects(Path(folder)) as objects:
            trees = [
                objects.replaced(EMPTY_TREE, {_NAME: Entry(FILES[0], objects.write_blob(_ended(data)))})
                for data in (base, ours, theirs)
            ]
            sized = f"{_NAME} conflict-marker-size={_MARKER}\n".encode()
            result = merge_trees(objects, trees[0], trees[1], trees[2], sized, style="diff3")
            entry = objects.entry(result.tree, _NAME)
            return _read(objects.read(entry.id)) if entry is not None else None


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merge | None:
    """Merge with `git merge-file`; None for what is binary, too large, or looks like markers."""
    three = (ours, base, theirs)
    if not _is_mergeable(*three):
        return None
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        names = ("ours", "base", "theirs")
        for name, data in zip(names, three, strict=True):
            Path(folder, name).write_bytes(_ended(data))
        # With --diff3, git leaves a conflict as it met it; without, it moves what both sides begin and end with out of it, and
        # the hunk's base no longer belongs to it.
        command = ["merge-file", "-p", "--quiet", "--diff3", f"--marker-size={_MARKER}"]
        done = git.run([*command, "-L", "o", "-L", "b", "-L", "t", *names], cwd=Path(folder), accept=range(128))
    return _read(done.stdout)


def text(data: bytes) -> str | None:
    """Read a file's text; None if it is binary or too large.

    A byte that is not UTF-8 becomes a private character, so that `encoded` gives the same bytes and TOML can hold the text. None,
    too, if the file has such characters itself.
    """
    if len(data) > _LARGEST or b"\0" in data:
        return None
    found = data.decode("utf-8", "surrogateescape")
    return found.translate(_KEPT) if _STRANGE.search(found) is None else None


def encoded(text: str) -> bytes:
    """Turn text that `text` read into the bytes of the file."""
    return text.translate(_AS_BYTES).encode("utf-8", "surrogateescape")


def lines(data: str) -> tuple[str, ...]:
    """The lines with their ends, the last one perhaps without; a carriage return or form feed ends none."""
    *whole, rest = data.split("\n")
    return (*(f"{line}\n" for line in whole), *([rest] if rest else []))


def _read(data: bytes) -> Merge:
    shared: list[list[str]] = [[]]
    versions: list[list[list[str]]] = []
    into = shared[0]
    for line in lines(data.decode("utf-8", "surrogateescape").translate(_KEPT)):
        mark = next((number for number, sign in enumerate(_MARKS) if line.startswith(sign.decode())), None)
        if mark is None:
            into.append(line.removesuffix(f"{_NO_END.decode()}\n"))
        elif mark == len(_MARKS) - 1:
            into = []
            shared.append(into)
        else:
            if mark == 0:
                versions.append([[], [], []])
            into = versions[-1][mark]
    return Merge(
        tuple(tuple(part) for part in shared),
        tuple(
            Hunk("".join(above[-AROUND:]), "".join(base), "".join(ours), "".join(theirs), "".join(below[:AROUND]))
            for (above, below), (ours, base, theirs) in zip(itertools.pairwise(shared), versions, strict=True)
        ),
    )
