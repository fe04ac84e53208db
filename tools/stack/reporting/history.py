# SPDX-License-Identifier: Apache-2.0
"""Read from the stack's own git history how many patches and lines it carried over time.

Only git's plumbing runs, without the network: the repository's own configuration starts no program.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.model import lane_files
from stack.model.diff import counts
from stack.model.patch import files, parse
from stack.model.series import PatchRef
from stack.model.stack import FOLDER, RESOLUTIONS
from stack.reporting.report import Point
from stack.store import git

_MOST_COMMITS = 5000
"""Commits that are read: the newest ones."""
_LARGEST = 32 * 2**20
"""Bytes of the largest patch file whose lines are counted."""
_HERE_ONLY = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_REPLACE_OBJECTS": "1"}
_PLAIN = ("-c", "core.fsmonitor=false")
_UNNAMED = PatchRef("", "", "")


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    when: int
    changes: tuple[tuple[str, str], ...]
    """The changed patch files: path, and blob after the commit (zeros: removed)."""


def points(root: Path) -> tuple[Point, ...]:
    """Return the patches and lines that the stack carried, after each commit that changed its patches, the oldest first.

    Empty if the stack is in no git repository, or git cannot read its history. Lines are those that patches add and remove.
    Lanes are not counted.
    """
    try:
        return tuple(_points(root, _commits(root)))
    except StackError:
        return ()


def _points(root: Path, commits: list[_Commit]) -> Iterator[Point]:
    blobs = sorted({blob for commit in commits for _, blob in commit.changes if blob.strip("0")})
    lines = _line_counts(root, blobs)
    carried: dict[str, int] = {}
    latest = 0
    for commit in commits:
        for path, blob in commit.changes:
            if blob.strip("0"):
                carried[path] = lines.get(blob, 0)
            else:
                carried.pop(path, None)
        # Clocks differ between machines; a curve never goes back in time.
        latest = max(latest, commit.when)
        yield Point(latest, len(carried), sum(carried.values()))


def _commits(root: Path) -> list[_Commit]:
    """Return the commits that changed patch files on the main line of the history, the oldest first."""
    asked = ["rev-list", "--first-parent", "--parents", "--timestamp", f"--max-count={_MOST_COMMITS}", "HEAD", "--", FOLDER]
    done = git.run([*_PLAIN, *asked], cwd=root, env=_HERE_ONLY, accept=(0, 128))
    if done.returncode:
        return []
    words = [line.split() for line in reversed(done.stdout.decode("ascii", "replace").splitlines())]
    when = {commit: int(seconds) for seconds, commit, *_ in words}
    # The oldest commit that is read counts whole: what it holds was there then.
    pairs = [f"{commit} {parents[0]}" if parents and parents[0] in when else commit for _, commit, *parents in words]
    return [_Commit(commit, when[commit], tuple(changes)) for commit, changes in _changes(root, pairs)]


def _changes(root: Path, pairs: list[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each commit with the patch files that it changes; a commit alone is compared with nothing."""
    for alone in [pair for pair in pairs if " " not in pair]:
        listed = git.run([*_PLAIN, "ls-tree", "-r", "-z", alone, FOLDER], cwd=root, env=_HERE_ONLY).stdout
        entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
        yield alone, [(path.decode("utf-8", "replace"), _id(head.split()[2])) for head, _, path in entries if _is_patch(path)]
    asked = ["diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--relative", "--", FOLDER]
    compared = [pair for pair in pairs if " " in pair]
    said = git.run([*_PLAIN, *asked], cwd=root, env=_HERE_ONLY, stdin="".join(f"{pair}\n" for pair in compared).encode())
    fields = iter(said.stdout.split(b"\0"))
    commit: str | None = None
    found: list[tuple[str, str]] = []
    for field in fields:
        if not field.startswith(b":"):
            if commit is not None:
                yield commit, found
            commit, found = field.strip().decode("ascii", "replace") or None, []
            continue
        path = next(fields, b"")
        if _is_patch(path):
            found.append((path.decode("utf-8", "replace"), _id(field.split()[3])))


def _is_patch(path: bytes) -> bool:
    """Tell whether a path is a patch of the stack itself: not in a resolution, and no lane's own version of a patch."""
    apart = (f"{FOLDER}/{RESOLUTIONS}/".encode(), f"{lane_files.FOLDER}/".encode())
    return path.endswith(b".patch") and not path.startswith(apart)


def _id(blob: bytes) -> str:
    return blob.decode("ascii", "replace")


def _line_counts(root: Path, blobs: list[str]) -> dict[str, int]:
    """Count the lines that each patch file adds and removes; leave out those that are missing or too large."""
    asked = "".join(f"{blob}\n" for blob in blobs).encode()
    sizes = git.run([*_PLAIN, "cat-file", "--batch-check"], cwd=root, env=_HERE_ONLY, stdin=asked).stdout.split(b"\n")
    words = [line.split() for line in sizes]
    small = [(line[0], int(line[2])) for line in words if len(line) == 3 and line[1] == b"blob" and int(line[2]) <= _LARGEST]
    found: dict[str, int] = {}
    for part in _parts(small):
        asked = b"".join(blob + b"\n" for blob, _ in part)
        data = git.run([*_PLAIN, "cat-file", "--batch"], cwd=root, env=_HERE_ONLY, stdin=asked).stdout
        place = 0
        for blob, size in part:
            place = data.index(b"\n", place) + 1
            found[_id(blob)] = changed_lines(data[place : place + size])
            place += size + 1
    return found


def _parts(sizes: list[tuple[bytes, int]]) -> Iterator[list[tuple[bytes, int]]]:
    """Split blobs into parts that fit into memory."""
    part: list[tuple[bytes, int]] = []
    held = 0
    for blob, size in sizes:
        if part and held + size > _LARGEST:
            yield part
            part, held = [], 0
        part.append((blob, size))
        held += size
    if part:
        yield part


def changed_lines(raw: bytes) -> int:
    """Count the lines that a patch file adds and removes; 0 if it is malformed, as an old version may be."""
    try:
        return sum(counts(files(parse(raw, _UNNAMED, name="a patch"))))
    except StackError:
        return 0
