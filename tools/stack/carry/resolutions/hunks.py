# SPDX-License-Identifier: Apache-2.0
"""Merge one file three-way as text, into cleanly merged lines and the conflicting hunks between them."""

import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.carry.mergetree import merge_trees
from stack.store import git, repository
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects

AROUND = 3
"""Lines before and after a hunk that belong to it."""

_LARGEST = 1 << 19
"""In bytes; a larger file is data, not text that a person resolves line by line."""
_NAME = "file"
_MARKER = 200
_MARKS = [sign * _MARKER for sign in (b"<", b"|", b"=", b">")]
# In a conflict, git adds a line end to a last line that has none. This mark distinguishes such a line, as git's own diff does.
_NO_END = b"\x01no end of line\x01"


_KEPT = {0xDC00 + byte: 0x10FE00 + byte for byte in range(128, 256)}
"""Maps Python's surrogates for bytes that are not UTF-8 to characters of the last private-use plane."""
_AS_BYTES = {character: sign for sign, character in _KEPT.items()}
_STRANGE = re.compile("[\U0010fe80-\U0010feff]")


@dataclass(frozen=True, slots=True)
class Hunk:
    """A conflicting hunk: its three versions, and up to three merged lines on each side, up to the next hunk."""

    before: str
    base: str
    ours: str
    theirs: str
    after: str

    @property
    def key(self) -> str:
        """Return the first 16 hexadecimal digits of a hash over the three versions."""
        seen = hashlib.sha256()
        for text in (self.base, self.ours, self.theirs):
            data = text.encode()
            seen.update(b"%d\n%b" % (len(data), data))
        return seen.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Merge:
    """A merged file: each of `hunks` is between two blocks of `shared`, the cleanly merged lines."""

    shared: tuple[tuple[str, ...], ...]
    hunks: tuple[Hunk, ...]

    def joined(self, resolved: Sequence[str]) -> str:
        """Return the file with these texts in place of the hunks."""
        texts = ["".join(lines) for lines in self.shared]
        return "".join(itertools.chain.from_iterable(zip(texts, (*resolved, ""), strict=True)))


def merges(base: bytes, ours: bytes, theirs: bytes) -> Iterator[Merge]:
    """Merge a file with both of git's diff algorithms, whose hunks can differ; yield nothing if it cannot be merged as text.

    A working tree shows the hunks of the first, histogram; `git merge-file` uses the second, Myers.
    """
    shown = merge_as_trees(base, ours, theirs)
    if shown is not None:
        yield shown
        plain = merge(base, ours, theirs)
        if plain is not None and plain != shown:
            yield plain


def _is_mergeable(*versions: bytes) -> bool:
    """Return whether all versions are text, small enough, and without anything that looks like a conflict marker."""
    return not any(text(data) is None or _NO_END in data or any(mark in data for mark in _MARKS) for data in versions)


def _ended(data: bytes) -> bytes:
    return data if data.endswith(b"\n") or not data else data + _NO_END + b"\n"


def merge_as_trees(base: bytes, ours: bytes, theirs: bytes) -> Merge | None:
    """Merge like `git merge-tree` and `git cherry-pick`; None if a version is binary, too large, or has lines like markers."""
    if not _is_mergeable(base, ours, theirs):
        return None
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        repository.make_bare(Path(folder))
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
    """Merge with `git merge-file`; None if a version is binary, too large, or has lines like markers."""
    three = (ours, base, theirs)
    if not _is_mergeable(*three):
        return None
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        names = ("ours", "base", "theirs")
        for name, data in zip(names, three, strict=True):
            Path(folder, name).write_bytes(_ended(data))
        # With --diff3, git keeps the whole conflict. Without it, git moves lines with which both sides begin or end out of the
        # conflict, and the hunk's base no longer belongs to it.
        command = ["merge-file", "-p", "--quiet", "--diff3", f"--marker-size={_MARKER}"]
        done = git.run([*command, "-L", "o", "-L", "b", "-L", "t", *names], cwd=Path(folder), accept=range(128))
    return _read(done.stdout)


def text(data: bytes) -> str | None:
    """Read a file's text; None if it is binary or too large.

    A byte that is not UTF-8 becomes a private-use character: so TOML can hold the text, and `encoded` restores the byte. Also
    return None if the file itself has such characters.
    """
    if len(data) > _LARGEST or b"\0" in data:
        return None
    decoded = data.decode("utf-8", "surrogateescape")
    return decoded.translate(_KEPT) if _STRANGE.search(decoded) is None else None


def encoded(text: str) -> bytes:
    """Encode text that `text` decoded into the bytes of the file."""
    return text.translate(_AS_BYTES).encode("utf-8", "surrogateescape")


def lines(data: str) -> tuple[str, ...]:
    """Split text into lines with their line ends; only a line feed ends a line, and the last line may have none."""
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
