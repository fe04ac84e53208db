# SPDX-License-Identifier: Apache-2.0
"""Read and write git objects of one repository without starting a process for each.

A carry touches a handful of files in a tree of thousands. So only the trees on the path to those files are read, through one
`git cat-file --batch` that stays open, and written again in this process. Objects requested early are read by git while this
process does other work.
"""

import contextlib
import fcntl
import hashlib
import itertools
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from stack.base.errors import StackError
from stack.model.ids import BlobId, CommitId, TreeId
from stack.store import git, pack

FOLDER = 0o040000
FILES = (0o100644, 0o100755)
SUBMODULE = 0o160000
"""Modes of tree entries: a folder; a file without and with its executable bit; another repository's commit."""
EMPTY_TREE = TreeId("4b825dc642cb6eb9a060e54bf8d69288fbee4904")

# Mode, name, id; entries follow each other without separators.
_ENTRY = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)
_PIPE_BUFFER = 1 << 20
"""Bytes that git may read ahead; the largest pipe that Linux allows an unprivileged user."""
_ASKED = 90
"""Objects requested from git at once: their ids fit into the smallest pipe, so the two processes cannot deadlock."""
_PENDING = 64 << 20
"""Bytes held back at most before they are written."""
_KEPT = 32 << 20
"""Bytes of objects cached in memory: a carry soon reads again what it writes."""
_DIFFERENCES = 1024
"""Pairs of trees whose differences are cached: a carry asks for each a few times."""


ROOMY = {"MALLOC_TOP_PAD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""Variables for git: it allocates memory in large pieces and keeps it, so that reading and merging is a sixth faster."""


class MissingError(StackError):
    """Raised when a repository lacks an object."""


class Entry(NamedTuple):
    """A tree entry: mode as in the tree object, and the id of a blob, a tree or a submodule's commit."""

    mode: int
    id: str


Difference = tuple[str, Entry | None, Entry | None]
"""A path at which two trees differ, with its entry in the first and in the second tree."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An author or committer; `date` in git's raw form."""

    name: str
    mail: str
    date: str

    def line(self) -> bytes:
        """Return the identity as in a commit object."""
        # git drops these characters, too (ident.c, strbuf_addstr_without_crud).
        clean = [part.translate(str.maketrans("", "", "<>\n\0")).strip() for part in (self.name, self.mail)]
        return f"{clean[0]} <{clean[1]}> {self.date}".encode()


class Objects:
    """The objects of one repository, as a context manager: it keeps a git process open."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._pending: dict[str, tuple[str, bytes]] = {}
        self._unwritten = 0
        self._trees: dict[str, _Tree] = {}
        self._tree_of: dict[CommitId, TreeId] = {}
        self._differences: dict[tuple[str, str], tuple[Difference, ...]] = {}
        self._lacking: dict[str, bool] = {}
        self._written: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        # Both in order: `_wanted` is not yet requested from git, `_asked` is.
        self._wanted: dict[str, None] = {}
        self._asked: dict[str, None] = {}
        self._kept: dict[str, bytes] = {}
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None
        self._wanted.clear()
        self._asked.clear()

    @property
    def repository(self) -> Path:
        """The repository, for use by git: pending objects are written first.

        Raises:
            StackError: The repository cannot be written.

        """
        self.flush()
        return self._repository

    def flush(self) -> None:
        """Write all pending objects as one pack.

        Raises:
            StackError: The repository cannot be written.

        """
        if self._pending:
            try:
                pack.write(self._repository, self._pending)
            except OSError as failed:
                raise StackError(
                    f"{self._repository} cannot be written ({failed.strerror})", "free disk space or check its rights"
                ) from failed
            self._pending.clear()
            self._unwritten = 0

    def read(self, object_id: str) -> bytes:
        """Return the content of an object.

        Raises:
            MissingError: The object is not in the repository.

        """
        known = self._kept.get(object_id)
        if known is not None:
            return known
        if object_id in self._pending:
            return self._pending[object_id][1]
        if object_id not in self._asked:
            self._wanted.pop(object_id, None)
            self._ask([object_id])
        data = self._receive(object_id)
        if data is None:
            raise MissingError(
                f"object {object_id} is missing in {self._repository}",
                "the store is only a cache: remove that folder and fetch again",
            )
        return data

    def find_blob(self, prefix: str) -> str | None:
        """Return the id of the local blob with this id or abbreviation, or None; nothing is fetched."""
        command = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{prefix}^{{blob}}"]
        env = {"GIT_DIR": str(self.repository), **git.HERE_ONLY}
        done = git.run(command, env=env, accept=(0, 1, 128))
        return None if done.returncode else done.stdout.decode("ascii").strip()

    def lacks(self, tree: str) -> bool:
        """Return whether the repository lacks an object of a tree, at any depth; nothing is fetched.

        Other trees of the same repository do not matter: one may come whole from an archive, another from a partial clone.

        Raises:
            StackError: The repository cannot be read.

        """
        if tree not in self._lacking:
            self._lacking[tree] = self._is_partial() and self._lists_missing(tree)
        return self._lacking[tree]

    def _is_partial(self) -> bool:
        try:
            return any((self.repository / "objects/pack").glob("*.promisor"))
        except OSError as error:
            raise StackError(f"{self.repository} cannot be read ({error.strerror})", "check its rights") from error

    def _lists_missing(self, tree: str) -> bool:
        listing = ["rev-list", "--objects", "--no-object-names", "--missing=print", tree]
        listed = git.run(listing, env={"GIT_DIR": str(self.repository), **git.HERE_ONLY}).stdout
        return listed.startswith(b"?") or b"\n?" in listed

    def expect(self, trees: Iterable[str], paths: Iterable[str]) -> None:
        """Start reading the files and folders at `paths` of some trees while this process does other work.

        This only saves time: paths that do not exist are skipped.
        """
        level = dict.fromkeys(trees, frozenset(paths))
        while level:
            self.request(tree for tree in level if tree not in self._trees and tree != EMPTY_TREE)
            below: dict[str, frozenset[str]] = {}
            files: list[str] = []
            for tree, inside in level.items():
                entries = self.entries(tree)
                for head, _, rest in (path.partition("/") for path in inside):
                    entry = entries.get(head)
                    if entry is not None and entry.mode == FOLDER and rest:
                        below[entry.id] = below.get(entry.id, frozenset()) | {rest}
                    elif entry is not None and not rest and entry.mode in (FOLDER, *FILES) and entry.id not in self._trees:
                        files.append(entry.id)
            self.request(files)
            level = below

    def request(self, ids: Iterable[str]) -> None:
        """Start reading objects while this process does other work."""
        self._wanted |= dict.fromkeys(
            object_id
            for object_id in ids
            if object_id not in self._kept and object_id not in self._asked and object_id not in self._pending
        )
        self._ask_more()

    def _ask_more(self) -> None:
        chosen = list(itertools.islice(self._wanted, _ASKED - len(self._asked)))
        for object_id in chosen:
            del self._wanted[object_id]
        if chosen:
            self._ask(chosen)

    def _ask(self, ids: Sequence[str]) -> None:
        process = self._reader()
        assert process.stdin is not None
        self._asked |= dict.fromkeys(ids)
        # If git has ended, `_receive` notices the missing answer.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("".join(f"{object_id}\n" for object_id in ids).encode("ascii"))
            process.stdin.flush()

    def _receive(self, object_id: str) -> bytes | None:
        """Read git's answers up to the one for `object_id`; return None if git has no such object."""
        for answered in list(self._asked):
            data = self._answer()
            del self._asked[answered]
            if data is not None:
                self._keep(answered, data)
            if answered == object_id:
                break
            self._ask_more()
        return data

    def _answer(self) -> bytes | None:
        stream = self._reader().stdout
        assert stream is not None
        head = stream.readline()
        if not head or head.endswith(b" missing\n"):
            return None
        return stream.read(int(head.rpartition(b" ")[2]) + 1)[:-1]

    def _keep(self, object_id: str, data: bytes) -> None:
        if self._size > _KEPT:
            self._kept.clear()
            self._size = 0
        self._kept[object_id] = data
        self._size += len(data)

    def _reader(self) -> subprocess.Popen[bytes]:
        """Return the git process; the first read starts it, since the repository may not exist before."""
        if self._process is None:
            self._process = subprocess.Popen(
                ["git", "cat-file", "--batch"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=git.environment(extra={"GIT_DIR": str(self._repository), **ROOMY}),
            )
            assert self._process.stdout is not None
            with contextlib.suppress(AttributeError, OSError):  # Linux only, and the system may limit the size
                fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BUFFER)
        return self._process

    def tree_of(self, commit: CommitId) -> TreeId:
        """Return the tree of a commit."""
        known = self._tree_of.get(commit)
        if known is None:
            known = self._tree_of[commit] = TreeId(self.read(commit)[5:45].decode("ascii"))
        return known

    def entries(self, tree: str) -> Mapping[str, Entry]:
        """Return the entries of a tree object by name."""
        return self._tree(tree).entries

    def _tree(self, tree: str) -> "_Tree":
        known = self._trees.get(tree)
        if known is None:
            known = self._trees[tree] = _Tree.parse(self.read(tree) if tree != EMPTY_TREE else b"")
        return known

    def entry(self, tree: str, path: str) -> Entry | None:
        """Return the entry at a path of a tree, or None if there is none."""
        entry = Entry(FOLDER, tree)
        for name in path.split("/"):
            if entry.mode != FOLDER:
                return None
            child = self.entries(entry.id).get(name)
            if child is None:
                return None
            entry = child
        return entry

    def difference(self, old: str, new: str) -> Iterator[Difference]:
        """Yield the files (path, old entry, new entry) in which two trees differ; equal folders are not opened."""
        known = self._differences.get((old, new))
        if known is None:
            if len(self._differences) >= _DIFFERENCES:
                self._differences.clear()
            known = self._differences[old, new] = tuple(self._difference(old, new, ""))
        return iter(known)

    def _difference(self, old: str, new: str, prefix: str) -> Iterator[Difference]:
        if old == new:
            return
        before, after = self.entries(old), self.entries(new)
        names = [name for name, entry in before.items() if after.get(name) != entry]
        names += after.keys() - before.keys()
        if len(names) > 1:
            # Git reads the folders while the first of them are compared: one call instead of one for each.
            pairs = [entry for name in names for entry in (before.get(name), after.get(name)) if entry is not None]
            self.request(entry.id for entry in pairs if entry.mode == FOLDER and entry.id not in self._trees)
        for name in sorted(names):
            yield from self._difference_at(prefix + name, before.get(name), after.get(name))

    def _difference_at(self, path: str, was: Entry | None, now: Entry | None) -> Iterator[Difference]:
        old_folder = was if was is not None and was.mode == FOLDER else None
        new_folder = now if now is not None and now.mode == FOLDER else None
        if old_folder or new_folder:
            old_id = old_folder.id if old_folder else EMPTY_TREE
            yield from self._difference(old_id, new_folder.id if new_folder else EMPTY_TREE, path + "/")
        old_file, new_file = was if not old_folder else None, now if not new_folder else None
        if old_file or new_file:
            yield path, old_file, new_file

    def replaced(self, tree: str, changes: Mapping[str, Entry | None]) -> TreeId:
        """Write the tree with other files at some paths (None removes one); folders that become empty vanish, as in git."""
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
        """Write a blob and return its id."""
        blob = BlobId(self._write("blob", data))
        self._keep(blob, data)
        return blob

    def write_commit(
        self, tree: str, parents: tuple[CommitId, ...], message: str, author: Identity, committer: Identity | None = None
    ) -> CommitId:
        """Write a commit. The committer defaults to the author, so that the same input gives the same id."""
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
        """Queue an object for writing and return its id. `git hash-object` per object would make a carry ten times slower."""
        head = b"%s %d\0" % (kind.encode("ascii"), len(data))
        object_id = hashlib.sha1(head + data, usedforsecurity=False).hexdigest()
        if object_id not in self._written:
            self._written.add(object_id)
            self._pending[object_id] = (kind, data)
            self._unwritten += len(data)
            if self._unwritten > _PENDING:
                self.flush()
        return object_id


class _Tree:
    """A tree object: its bytes, its entries by name, and the offset of each entry's id in the bytes.

    Most changes only replace ids: then the bytes are copied with these 20 bytes replaced. The tree is built anew only if names are
    added or removed, or a mode changes. Most trees are only read: the offsets are computed for the first change.
    """

    __slots__ = ("_ids", "data", "entries")

    def __init__(self, data: bytes, entries: dict[str, Entry], ids: Mapping[str, int] | None = None) -> None:
        self.data = data
        self.entries = entries
        self._ids = ids

    @classmethod
    def parse(cls, data: bytes) -> "_Tree":
        """Parse the bytes of a tree object, a sequence of `<mode> <name>\\0<20 bytes of id>`."""
        return cls(data, {_name(raw): Entry(int(mode, 8), found.hex()) for mode, raw, found in _ENTRY.findall(data)})

    def replaced(self, changes: Mapping[str, Entry | None]) -> "_Tree":
        """Return the tree with changed entries (None removes one)."""
        entries = self.entries | {name: entry for name, entry in changes.items() if entry is not None}
        if all(
            entry is not None and name in self.entries and entry.mode == self.entries[name].mode
            for name, entry in changes.items()
        ):
            if self._ids is None:
                self._ids = {_name(match[2]): match.start(3) for match in _ENTRY.finditer(self.data)}
            data = bytearray(self.data)
            for name in changes:
                place = self._ids[name]
                data[place : place + 20] = bytes.fromhex(entries[name].id)
            return _Tree(bytes(data), entries, self._ids)
        for name in (name for name, entry in changes.items() if entry is None):
            entries.pop(name, None)
        # git sorts a folder as if its name ended in a slash.
        order = sorted(entries, key=lambda name: _bytes(name) + (b"/" if entries[name].mode == FOLDER else b""))
        content = b"".join(b"%o %s\0%s" % (entries[name].mode, _bytes(name), bytes.fromhex(entries[name].id)) for name in order)
        return _Tree.parse(content)


def blob_id(data: bytes) -> BlobId:
    """Return git's id for a blob of these bytes."""
    return BlobId(hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest())


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
