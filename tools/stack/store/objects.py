# SPDX-License-Identifier: Apache-2.0
"""Reading and writing git objects of one repository without starting a process for each.

A carry touches a handful of files in a tree of thousands. So only the trees on the way to those files are read (through one
`git cat-file --batch` that stays open) and written again (as loose objects, in this process).
"""

import contextlib
import hashlib
import os
import subprocess
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from stack.model.errors import StackError
from stack.model.ids import BlobId, CommitId, TreeId
from stack.store import git

FOLDER = 0o040000
FILES = (0o100644, 0o100755)
"""Modes of tree entries: a folder; a plain file, without and with its executable bit."""
EMPTY_TREE = TreeId("4b825dc642cb6eb9a060e54bf8d69288fbee4904")


class Entry(NamedTuple):
    """A tree entry: mode as in the tree object, and the id of a blob, a tree or (a submodule's) commit."""

    mode: int
    id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """An author or committer; `date` in git's raw form."""

    name: str
    mail: str
    date: str

    def line(self) -> bytes:
        """The identity as a commit object holds it."""
        # git drops these characters, too (ident.c, strbuf_addstr_without_crud).
        clean = [part.translate(str.maketrans("", "", "<>\n\0")).strip() for part in (self.name, self.mail)]
        return f"{clean[0]} <{clean[1]}> {self.date}".encode()


class Objects:
    """The objects of one repository. Use it as a context manager: it keeps a git process open."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self._trees: dict[str, _Tree] = {}
        self._tree_of: dict[CommitId, TreeId] = {}
        self._written: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None

    def read(self, object_id: str) -> bytes:
        """The content of an object.

        Raises:
            StackError: it is not in the repository.

        """
        process = self._reader()
        assert process.stdin is not None
        assert process.stdout is not None
        head = b""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(object_id.encode("ascii") + b"\n")
            process.stdin.flush()
            head = process.stdout.readline()
        if not head or head.endswith(b" missing\n"):
            raise StackError(
                f"object {object_id} is missing in {self.repository}",
                "the store is only a cache: remove that folder and fetch again",
            )
        size = int(head.rpartition(b" ")[2])
        return process.stdout.read(size + 1)[:-1]

    def _reader(self) -> subprocess.Popen[bytes]:
        """Started by the first read: by then whoever opened this has seen to it that there is a repository."""
        if self._process is None:
            self._process = subprocess.Popen(
                ["git", "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=git.environment(extra={"GIT_DIR": str(self.repository)}),
            )
        return self._process

    def tree_of(self, commit: CommitId) -> TreeId:
        """The tree of a commit."""
        known = self._tree_of.get(commit)
        if known is None:
            known = self._tree_of[commit] = TreeId(self.read(commit)[5:45].decode("ascii"))
        return known

    def entries(self, tree: str) -> Mapping[str, Entry]:
        """The entries of one tree object, by name."""
        return self._tree(tree).entries

    def _tree(self, tree: str) -> "_Tree":
        known = self._trees.get(tree)
        if known is None:
            known = self._trees[tree] = _Tree.parse(self.read(tree) if tree != EMPTY_TREE else b"")
        return known

    def entry(self, tree: str, path: str) -> Entry | None:
        """The entry at a path of a tree, None where there is none."""
        entry = Entry(FOLDER, tree)
        for name in path.split("/"):
            if entry.mode != FOLDER:
                return None
            found = self.entries(entry.id).get(name)
            if found is None:
                return None
            entry = found
        return entry

    def difference(self, old: str, new: str, prefix: str = "") -> Iterator[tuple[str, Entry | None, Entry | None]]:
        """The files (path, old entry, new entry) in which two trees differ; folders that are equal are not opened."""
        if old == new:
            return
        before, after = self.entries(old), self.entries(new)
        for name in sorted(before.keys() | after.keys()):
            was, now = before.get(name), after.get(name)
            if was != now:
                yield from self._difference_at(prefix + name, was, now)

    def _difference_at(
        self, path: str, was: Entry | None, now: Entry | None
    ) -> Iterator[tuple[str, Entry | None, Entry | None]]:
        old_folder = was if was is not None and was.mode == FOLDER else None
        new_folder = now if now is not None and now.mode == FOLDER else None
        if old_folder or new_folder:
            old_id = old_folder.id if old_folder else EMPTY_TREE
            yield from self.difference(old_id, new_folder.id if new_folder else EMPTY_TREE, path + "/")
        old_file, new_file = was if not old_folder else None, now if not new_folder else None
        if old_file or new_file:
            yield path, old_file, new_file

    def replaced(self, tree: str, changes: Mapping[str, Entry | None]) -> TreeId:
        """The tree with other files at some paths (None removes one); folders that become empty go, as in git."""
        own: dict[str, Entry | None] = {}
        below: dict[str, dict[str, Entry | None]] = {}
        for path, entry in changes.items():
            head, slash, rest = path.partition("/")
            if slash:
                below.setdefault(head, {})[rest] = entry
            else:
                own[head] = entry
        here = self._tree(tree)
        for head, inner in below.items():
            folder = own.get(head, here.entries.get(head))
            inside = folder.id if folder is not None and folder.mode == FOLDER else EMPTY_TREE
            written = self.replaced(inside, inner)
            if written != EMPTY_TREE:
                own[head] = Entry(FOLDER, written)
            elif inside != EMPTY_TREE:
                own[head] = None
        return self._write_tree(here.replaced(own))

    def write_blob(self, data: bytes) -> BlobId:
        """Write a blob."""
        return BlobId(self._write("blob", data))

    def write_commit(
        self, tree: str, parents: tuple[CommitId, ...], message: str, author: Identity, committer: Identity | None = None
    ) -> CommitId:
        """Write a commit. Same input, same id: the committer is the author unless given."""
        lines = [b"tree " + tree.encode("ascii"), *(b"parent " + parent.encode("ascii") for parent in parents)]
        lines += [b"author " + author.line(), b"committer " + (committer or author).line()]
        commit = CommitId(self._write("commit", b"\n".join(lines) + b"\n\n" + message.encode()))
        self._tree_of[commit] = TreeId(tree)
        return commit

    def _write_tree(self, tree: "_Tree") -> TreeId:
        tree_id = TreeId(self._write("tree", tree.data))
        self._trees[tree_id] = tree
        return tree_id

    def _write(self, kind: str, data: bytes) -> str:
        """Write a loose object. GitPython would start `git hash-object` for each: ten times a carry's whole time."""
        content = b"%s %d\0%s" % (kind.encode("ascii"), len(data), data)
        object_id = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        if object_id in self._written:
            return object_id
        self._written.add(object_id)
        folder = f"{self.repository}/objects/{object_id[:2]}"
        place = f"{folder}/{object_id[2:]}"
        try:
            if not os.path.exists(place):  # noqa: PTH110  (pathlib takes longer for it than the disk)
                _store(folder, place, zlib.compress(content, 1))
        except OSError as failed:
            raise StackError(
                f"{self.repository} cannot be written ({failed.strerror})", "free disk space or check its rights"
            ) from failed
        return object_id


class _Tree:
    """A tree object: its bytes, its entries by name, and where each one's id stands in the bytes.

    Most changes put another id in the place of one: then the bytes are copied with those twenty replaced. Only where names come
    or go, or a mode changes, is the tree put together anew.
    """

    __slots__ = ("_ids", "data", "entries")

    def __init__(self, data: bytes, entries: dict[str, Entry], ids: Mapping[str, int]) -> None:
        self.data = data
        self.entries = entries
        self._ids = ids

    @classmethod
    def parse(cls, data: bytes) -> "_Tree":
        """Read the bytes of a tree object: `<mode> <name>\\0<20 bytes of id>` again and again."""
        entries: dict[str, Entry] = {}
        ids: dict[str, int] = {}
        place = 0
        while place < len(data):
            blank = data.index(b" ", place)
            end = data.index(b"\0", blank)
            name = data[blank + 1 : end].decode("utf-8", "surrogateescape")
            entries[name] = Entry(int(data[place:blank], 8), data[end + 1 : end + 21].hex())
            ids[name] = end + 1
            place = end + 21
        return cls(data, entries, ids)

    def replaced(self, changes: Mapping[str, Entry | None]) -> "_Tree":
        """The tree with other entries (None: without them)."""
        entries = self.entries | {name: entry for name, entry in changes.items() if entry is not None}
        if all(
            entry is not None and name in self._ids and entry.mode == self.entries[name].mode for name, entry in changes.items()
        ):
            data = bytearray(self.data)
            for name, place in ((name, self._ids[name]) for name in changes):
                data[place : place + 20] = bytes.fromhex(entries[name].id)
            return _Tree(bytes(data), entries, self._ids)
        for name in (name for name, entry in changes.items() if entry is None):
            entries.pop(name, None)
        # git sorts a folder as if its name ended in a slash.
        order = sorted(entries, key=lambda name: _bytes(name) + (b"/" if entries[name].mode == FOLDER else b""))
        return _Tree.parse(
            b"".join(b"%o %s\0%s" % (entries[name].mode, _bytes(name), bytes.fromhex(entries[name].id)) for name in order)
        )


def _store(folder: str, place: str, data: bytes) -> None:
    """A whole object or none: a reader never sees half of one, whenever this process is killed."""
    # Named as git names its own: whoever sweeps the store knows them.
    part = f"{folder}/tmp_obj_{os.getpid()}_{threading.get_ident()}"  # noqa: S108
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103  (as above)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        with open(handle, "wb", buffering=0) as file:  # noqa: PTH123  (a descriptor)
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        os.rename(part, place)  # noqa: PTH104
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)  # noqa: PTH108
        raise


def blob_id(data: bytes) -> BlobId:
    """The id that git gives these bytes."""
    return BlobId(hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest())


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
