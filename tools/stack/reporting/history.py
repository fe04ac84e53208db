# SPDX-License-Identifier: Apache-2.0
"""Read from the stack's own git history how many patches and lines it carried over time.

Only git's plumbing runs, without the network: the repository's own configuration starts no program. The repository may come from
somebody else, so each call of git is bounded, and all patch files together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.model import lane_files
from stack.model.diff import counts
from stack.model.patch import files, parse
from stack.model.series import PatchRef
from stack.model.stack import FOLDER, RESOLUTIONS
from stack.reporting.report import PatchLine, Point, Report
from stack.store import git

_MOST_COMMITS = 5000
"""Commits that are read: the newest ones."""
_MOST_LISTED = 32 * 2**20
"""Bytes of the longest list of patch files that is read from git, over all commits; an entry has at least 50 bytes."""
_LARGEST = 4 * 2**20
"""Bytes of the largest patch file whose lines are counted."""
_PART = 16 * 2**20
"""Bytes of the patch files that are read at once, unless one is larger."""
_MOST_BYTES = 64 * 2**20
"""Bytes of all patch files together whose lines are counted: a small repository can hold many large ones."""
_SECONDS = 20.0
"""Time limit of each call of git."""
_HEAD = 128
"""Bytes that `git cat-file` prints around a file, at most."""
_HERE_ONLY = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_REPLACE_OBJECTS": "1"}
_PLAIN = ("-c", "core.fsmonitor=false")
_UNNAMED = PatchRef("", "", "")


@dataclass(frozen=True, slots=True)
class _Commit:
    id: str
    when: int
    changes: tuple[tuple[str, str], ...]
    """The changed patch files: path, and blob after the commit (zeros: removed)."""


@dataclass(frozen=True, slots=True)
class History:
    """The patches and lines that a stack carried, after each commit that changed its patches, the oldest first.

    Lines are those that patches add and remove. Lanes are not counted. `left_out` is why there are no points though there is a
    history; else empty.
    """

    points: tuple[Point, ...] = ()
    left_out: str = ""


def included(report: Report, root: Path, lane: str | None = None) -> Report:
    """Return the report with the stack's history up to now, or with a note that says why it is left out.

    The history is not that of a lane, which has patches of its own.
    """
    if lane is not None:
        return report
    history = read(root)
    if not history.left_out:
        return replace(report, points=_until_now(history.points, report.patches, report.made))
    return replace(report, notes=(*report.notes, f"Lines carried over time are left out: {history.left_out}."))


def _until_now(points: Sequence[Point], patches: Sequence[PatchLine], made: int) -> tuple[Point, ...]:
    """Add the stack as it is to its history, if that differs from the last commit; without a history there is no curve."""
    if not points:
        return ()
    last, lines = points[-1], sum(patch.added + patch.removed for patch in patches)
    same = (last.patches, last.lines) == (len(patches), lines)
    return (*points, *(() if same else (Point(max(made, last.when), len(patches), lines),)))


def read(root: Path) -> History:
    """Read the history of a stack; there is none if the stack is in no git repository.

    It is left out if it is too large, or git fails or gives no answer.
    """
    try:
        commits = _commits(root)
        return History(tuple(_points(root, commits))) if commits else History()
    except StackError as bad:
        return History(left_out=bad.problem)


def _git(args: list[str], root: Path, *, most: int = _MOST_LISTED, stdin: bytes = b"") -> bytes:
    return git.bounded([*_PLAIN, *args], cwd=root, most=most, seconds=_SECONDS, stdin=stdin, env=_HERE_ONLY).stdout


def _points(root: Path, commits: list[_Commit]) -> Iterator[Point]:
    blobs = sorted({blob for commit in commits for _, blob in commit.changes if blob.strip("0")})
    lines = _line_counts(root, blobs)
    carried: dict[str, int] = {}
    latest = total = 0
    for commit in commits:
        for path, blob in commit.changes:
            total -= carried.pop(path, 0)
            if blob.strip("0"):
                carried[path] = lines.get(blob, 0)
                total += carried[path]
        # Clocks differ between machines; a curve never goes back in time.
        latest = max(latest, commit.when)
        yield Point(latest, len(carried), total)


def _commits(root: Path) -> list[_Commit]:
    """Return the commits that changed patch files on the main line of the history, the oldest first."""
    asked = ["rev-list", "--first-parent", "--parents", "--timestamp", f"--max-count={_MOST_COMMITS}", "HEAD", "--", FOLDER]
    done = git.bounded([*_PLAIN, *asked], cwd=root, most=_MOST_LISTED, seconds=_SECONDS, env=_HERE_ONLY, accept=(0, 128))
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
        listed = _git(["ls-tree", "-r", "-z", alone, FOLDER], root)
        entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
        yield alone, [(path.decode("utf-8", "replace"), _id(head.split()[2])) for head, _, path in entries if _is_patch(path)]
    asked = ["diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--relative", "--", FOLDER]
    compared = [pair for pair in pairs if " " in pair]
    listed = _git(asked, root, stdin="".join(f"{pair}\n" for pair in compared).encode())
    fields = iter(listed.split(b"\0"))
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
    """Count the lines that each patch file adds and removes; leave out those that are missing or too large.

    Raises:
        StackError: All together are too large.

    """
    asked = "".join(f"{blob}\n" for blob in blobs).encode()
    sizes = _git(["cat-file", "--batch-check"], root, stdin=asked).split(b"\n")
    words = [line.split() for line in sizes]
    small = [(line[0], int(line[2])) for line in words if len(line) == 3 and line[1] == b"blob" and int(line[2]) <= _LARGEST]
    if sum(size for _, size in small) > _MOST_BYTES:
        raise StackError(f"its patch files have more than {_MOST_BYTES // 2**20} MiB over all commits")
    found: dict[str, int] = {}
    for part in _parts(small):
        asked = b"".join(blob + b"\n" for blob, _ in part)
        data = _git(["cat-file", "--batch"], root, most=sum(size + _HEAD for _, size in part), stdin=asked)
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
        if part and held + size > _PART:
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
