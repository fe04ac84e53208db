# SPDX-License-Identifier: Apache-2.0
"""Import a release's source archive as one commit.

The archive streams into `git fast-import`; nothing is unpacked on disk. The same pass also computes git's ids in Python, so
each import is checked against an independent computation.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stack.base.errors import StackError
from stack.base.progress import Count
from stack.model import paths
from stack.model.ids import BlobId, CommitId, Sha256, TreeId
from stack.store import git
from stack.store.tar import LIMITS, ArchiveError, GzipReader, Limits, members, shown

__all__ = ["LIMITS", "ArchiveError", "Imported", "Limits", "Release", "import_archive", "tree_id"]

_IDENTITY = "stack <stack@localhost>"
"""Author and committer of every archive commit; fixed, so that an archive gives the same commit id everywhere."""

_REMEDY = "delete it and fetch again, or use --source git"
_LAST_SECOND = 2**31 - 1
_FOLDER, _FILE, _PROGRAM, _LINK = b"40000", b"100644", b"100755", b"120000"

"""Called with the bytes of the archive that are done, and the total."""


@dataclass(frozen=True, slots=True)
class Release:
    """The archive's description in the commit's trailers."""

    package: str
    version: str
    filename: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    commit: CommitId
    tree: TreeId
    sha256: Sha256


class _File(NamedTuple):
    """A file to be added to a tree. `same_as` is the path of the earlier file that a hard link repeats."""

    path: bytes
    mode: bytes
    size: int
    mtime: int
    content: Iterator[bytes]
    same_as: bytes | None


class _Blob(NamedTuple):
    mode: bytes
    id: BlobId
    mark: int


def tree_id(path: Path, *, limits: Limits = LIMITS) -> TreeId:
    """Compute the id of the git tree that `import_archive` makes of the archive, without git.

    Raises:
        ArchiveError: The archive is damaged or may not become a tree.

    """
    blobs: dict[bytes, _Blob] = {}
    with _reading(path, limits) as source:
        for file in _files(source):
            _add(blobs, file, file.content)
    return _tree_of(blobs)


def import_archive(
    path: Path,
    repository: Path,
    ref: str,
    release: Release,
    *,
    expected_sha256: Sha256 | None = None,
    progress: Count | None = None,
    limits: Limits = LIMITS,
) -> Imported:
    """Write the archive as one parentless commit into the bare repository and point `ref` at it.

    A failed import may leave unreferenced objects, so import into a repository that can be thrown away (`repository.incoming`).

    Raises:
        ArchiveError: The archive is damaged, is not the expected one, or may not become a tree.
        GitError: git cannot write.
        StackError: git's tree differs from the one computed here.

    """
    blobs: dict[bytes, _Blob] = {}
    date = 0
    # No deltas and light compression: that is twice as fast, and the pack grows by only a tenth.
    options = ["-c", "core.compression=1", "-c", "fastimport.unpackLimit=0"]
    command = [*options, "fast-import", "--quiet", "--done", "--force", "--depth=0", "--date-format=raw"]
    with _reading(path, limits) as source, git.feed(command, cwd=repository) as write:
        total = path.stat().st_size
        for file in _files(source):
            date = max(date, file.mtime)
            content = file.content if file.same_as is not None else _copied(file, len(blobs) + 1, write)
            _add(blobs, file, content)
            if progress is not None:
                progress(source.consumed, total)
        sha256 = source.sha256()
        if expected_sha256 is not None and sha256 != expected_sha256:
            raise ArchiveError(f"{path.name} has the SHA-256 {sha256}, expected {expected_sha256}")
        write(_commit(ref, release, sha256, min(date, _LAST_SECOND)))
        for name, blob in blobs.items():
            write(b"M %s :%d %s\n" % (blob.mode, blob.mark, _quoted(name)))
        write(b"\ndone\n")
    commit, tree = git.text(["rev-parse", ref, f"{ref}^{{tree}}"], cwd=repository).split()
    computed = _tree_of(blobs)
    if tree != computed:
        raise StackError(f"git made the tree {tree} of {path.name}, its content is {computed}", "this is a defect: report it")
    return Imported(CommitId(commit), computed, sha256)


@contextmanager
def _reading(path: Path, limits: Limits) -> Iterator[GzipReader]:
    try:
        with path.open("rb") as raw:
            yield GzipReader(raw, limits)
    except ArchiveError as error:
        raise ArchiveError(f"{path.name}: {error.problem}", _REMEDY) from error
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror or error}", _REMEDY) from error


def _files(source: GzipReader) -> Iterator[_File]:
    """Yield the checked files and links of the archive's single top folder; a git tree cannot hold empty folders."""
    top = b""
    files: dict[bytes, tuple[bytes, int]] = {}
    folders: set[bytes] = set()
    for member, stored in members(source):
        name = _plain(member.name, b"member", folder=member.kind == "folder")
        head, _, path = name.partition(b"/")
        top = top or head
        if head != top or not (path or member.kind == "folder"):
            raise ArchiveError(f"{shown(member.name)} is outside of the archive's folder {shown(top)}")
        _claim(path, member.kind == "folder", files, folders)
        if member.kind == "folder":
            continue
        mode, size, content, same_as = (_PROGRAM if member.executable else _FILE), member.size, stored, None
        if member.kind == "symlink":
            if fault := paths.link_fault(path, member.target):
                raise ArchiveError(f"the link {shown(member.name)} {fault}")
            mode, size, content = _LINK, len(member.target), iter([member.target])
        elif member.kind == "hardlink":
            head, _, same_as = _plain(member.target, b"hard link target").partition(b"/")
            if head != top or same_as not in files:
                raise ArchiveError(
                    f"the hard link {shown(member.name)} repeats {shown(member.target)}, which is not an earlier file"
                )
            mode, size = files[same_as]
        files[path] = mode, size
        yield _File(path, mode, size, member.mtime, content, same_as)
    if not files:
        raise ArchiveError("the archive holds no file")


def _plain(name: bytes, what: bytes, *, folder: bool = False) -> bytes:
    """Return the name without a leading `./` and, for a folder, its trailing slash."""
    plain = name.removeprefix(b"./")
    if folder:
        plain = plain.removesuffix(b"/")
    if fault := paths.fault(plain):
        raise ArchiveError(f"the {what.decode()} {shown(name)} {fault}")
    return plain


def _claim(path: bytes, folder: bool, files: dict[bytes, tuple[bytes, int]], folders: set[bytes]) -> None:
    """Record `path` and its parent folders as taken; refuse a path that is there twice, or as both file and folder."""
    if path in files or (path in folders and not folder):
        raise ArchiveError(f"{shown(path)} is in the archive twice")
    parent = path if folder else path.rpartition(b"/")[0]
    while parent and parent not in folders:
        if parent in files:
            raise ArchiveError(f"{shown(parent)} is a file and a folder")
        folders.add(parent)
        parent = parent.rpartition(b"/")[0]


def _copied(file: _File, mark: int, write: Callable[[bytes], object]) -> Iterator[bytes]:
    """Yield the content unchanged, writing it as a blob to the fast-import stream on the way."""
    write(b"blob\nmark :%d\ndata %d\n" % (mark, file.size))
    for part in file.content:
        write(part)
        yield part
    write(b"\n")


def _add(blobs: dict[bytes, _Blob], file: _File, content: Iterator[bytes]) -> None:
    if file.same_as is not None:
        blobs[file.path] = blobs[file.same_as]
        return
    digest = hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    for part in content:
        digest.update(part)
    blobs[file.path] = _Blob(file.mode, BlobId(digest.hexdigest()), len(blobs) + 1)


def _commit(ref: str, release: Release, sha256: Sha256, date: int) -> bytes:
    message = (
        f"{release.package} {release.version}, from its source archive\n\n"
        f"Archive: {release.filename}\nSha256: {sha256}\nPackage: {release.package}\nVersion: {release.version}\n"
    ).encode()
    who = f"{_IDENTITY} {date} +0000"
    head = f"commit {ref}\nauthor {who}\ncommitter {who}\ndata {len(message)}\n"
    return head.encode() + message


def _quoted(path: bytes) -> bytes:
    """Quote a path that fast-import would take for a quoted one; line ends and backslashes were refused before."""
    return b'"' + path.replace(b'"', b'\\"') + b'"' if path.startswith(b'"') else path


_Folder = dict[bytes, "_Folder | _Blob"]


def _tree_of(blobs: dict[bytes, _Blob]) -> TreeId:
    top: _Folder = {}
    for path, blob in blobs.items():
        *folders, name = path.split(b"/")
        here = top
        for folder in folders:
            below = here.setdefault(folder, {})
            assert isinstance(below, dict)  # _claim: no path is a file and a folder
            here = below
        here[name] = blob
    return TreeId(_hash_folder(top).hex())


def _hash_folder(folder: _Folder) -> bytes:
    entries = []
    for name, entry in folder.items():
        if isinstance(entry, dict):
            entries.append((name + b"/", b"%s %s\0%s" % (_FOLDER, name, _hash_folder(entry))))
        else:
            entries.append((name, b"%s %s\0%s" % (entry.mode, name, bytes.fromhex(entry.id))))
    content = b"".join(line for _, line in sorted(entries))
    return hashlib.sha1(b"tree %d\0%s" % (len(content), content), usedforsecurity=False).digest()
