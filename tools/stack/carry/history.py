# SPDX-License-Identifier: Apache-2.0
"""Index of the lines that upstream changed between two bases: built once for a range, then kept in the cache.

With history, the steps of the index are the first-parent commits of the range; a merge counts as one step with all that it
brought. Without history (the registry's archives), the steps are the releases. Lines are kept by the file that they changed
in, since a change in one file proves nothing about another.
"""

import hashlib
import itertools
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stack.base.errors import StackError
from stack.carry.ladder import Rung
from stack.model.diff import FileDiff, parse
from stack.model.ids import CommitId
from stack.store import cache as places
from stack.store import git
from stack.store.objects import Objects

_FORMAT = 5
_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
NO_WORD = bytes(set(range(256)) - _WORD)
"""All bytes that are not part of an ASCII word."""
_SPACE = b" \t\n\r\f\v"
_SHORTEST = 3
_SEAL = ".sha256"
"""The suffix of the file beside an index that states its size and hash."""
_LONGEST_SEAL = 200
"""Bytes."""
COMMON = 0.02
"""A line in more than this share of the steps is common and not indexed (if steps are releases: of the changed files)."""
_FEW_STEPS = 5
_RENAMES = 3
_COMMON_AMONG = "select side, hash from common where hash in (select value from json_each(?))"
_HOLDERS = """select side, hash, step, path, count from lines join units on number = unit
    where hash in (select value from json_each(?))"""
_SIDES = {b"+": 1, b"-": -1}
# Larger files, and larger changes of one file, are generated code or data, which no fork's patch changes. They are nearly all of
# the 380 MB of changes in FlashInfer 0.7.2.
_LARGEST = "512k"
_MOST_LINES = 5_000
# On the common forges, the end of a squash merge's subject, and the beginning of a merge's subject.
_PULL = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)\b")
# In a diff without context, no line of a hunk begins like this.
_FILE_START = re.compile(rb"^(?=diff --git )", re.MULTILINE)

Line = tuple[int, int]
"""(side, hash): side is +1 for added and -1 for removed; the hash is that of the line without whitespace."""


class Step(NamedTuple):
    """A commit of the range, or a release."""

    number: int
    commit: CommitId
    subject: str


class Touch(NamedTuple):
    """A step that changed a file. `blob` and `mode`: the file after it (None: it removed the file); `was`: the blob before it."""

    step: Step
    blob: str | None
    mode: int | None
    was: str | None


class _Likely(NamedTuple):
    """A path to which a file may have been renamed. `same`: the contents are equal; `end`: how many last parts of the paths are."""

    same: bool
    end: int
    path: str


class Held(NamedTuple):
    """A file in which a step changed a line, and how often."""

    step: int
    path: str
    times: int


@dataclass(frozen=True, slots=True)
class Index:
    """The changed lines of every step of one range."""

    database: sqlite3.Connection
    releases: bool
    """The steps are releases, not commits."""
    steps: int

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def step(self, number: int) -> Step:
        """Return a step by its number."""
        commit, subject = self.database.execute("select id, subject from steps where number = ?", (number,)).fetchone()
        return Step(number, CommitId(commit), subject)

    def same_patch(self, files: Sequence[FileDiff]) -> list[Step]:
        """Return the steps with the same patch ID (see `patch_id`), oldest first."""
        return self._found("select number from steps where patch = ? order by number", patch_id(files))

    def pull(self, number: int) -> Step | None:
        """Return the step whose subject names this pull request; None if there is none."""
        return next(iter(self._found("select number from steps where pull = ?", number)), None)

    def holders(self, lines: Collection[Line]) -> dict[Line, list[Held]]:
        """Return the steps and files in which each line was changed; common lines have no key in the result."""
        changes: dict[Line, list[Held]] = {line: [] for line in lines}
        numbers = (json.dumps([number for _, number in lines]),)
        for line in self.database.execute(_COMMON_AMONG, numbers):
            changes.pop(line, None)
        for side, number, *held in self.database.execute(_HOLDERS, numbers):
            if (side, number) in changes:
                changes[side, number].append(Held(*held))
        return changes

    def touching(self, path: str) -> list[Touch]:
        """Return the steps that changed a file, oldest first."""
        rows = self.database.execute(
            "select number, id, subject, blob, mode, was from files join steps on number = step where path = ? order by number",
            (_stored(path),),
        )
        return [Touch(Step(number, CommitId(commit), subject), *rest) for number, commit, subject, *rest in rows]

    def name(self, path: str) -> str:
        """Return a file's path at the end of the range, following likely renames: the same blob first, then a similar path."""
        for _ in range(_RENAMES):
            touches = self.touching(path)
            if not touches or touches[-1].blob is not None:
                break
            came = self.database.execute(
                "select path, blob from files where step = ? and was is null", (touches[-1].step.number,)
            )
            likely = [_Likely(blob == touches[-1].was, _shared_end(path, other), other) for other, blob in came]
            best = max((rename for rename in likely if rename.same or rename.end), default=None)
            if best is None:
                break
            path = best.path
        return path

    def _found(self, ask: str, value: int) -> list[Step]:
        return [self.step(number) for (number,) in self.database.execute(ask, (value,)).fetchall()]


def index(objects: Objects, base: CommitId, rungs: Sequence[Rung], cache: Path) -> Index:
    """Return the index of the range from `base` to the last of `rungs`; it is built on the first call, then kept.

    If the cache cannot be written, or another program has damaged the file, build the index in memory for this command only.

    Raises:
        StackError: git cannot read the range.

    """
    releases = not _related(objects, base, rungs[-1].commit)
    way = [base, *(rung.commit for rung in rungs)] if releases else [base, rungs[-1].commit]
    # A clone without the history between both ends has another index of the same ends.
    name = hashlib.sha256(" ".join(["releases" if releases else "commits", *way]).encode("ascii")).hexdigest()[:32]
    file = cache / "landing" / f"{name}-{_FORMAT}.sqlite"

    def build(database: sqlite3.Connection) -> None:
        steps = _releases(objects, base, rungs) if releases else _commits(objects, base, rungs[-1].commit)
        _build(database, steps, releases)

    known = _opened(file, releases) or _kept(file, releases, build)
    if known is not None:
        return known
    database = sqlite3.connect(":memory:")
    build(database)
    (count,) = database.execute("select count(*) from steps").fetchone()
    return Index(database, releases, count)


def _kept(file: Path, releases: bool, build: Callable[[sqlite3.Connection], None]) -> Index | None:
    """Build an index in its file; None if the file cannot be written or read."""
    with ExitStack() as held:
        try:
            held.enter_context(places.lock(file))
        except StackError:
            return None
        if (known := _opened(file, releases)) is not None:
            return known
        part = file.with_suffix(".part")
        try:
            part.unlink(missing_ok=True)
            with closing(sqlite3.connect(part)) as database:
                build(database)
            places.put(file.with_suffix(_SEAL), _seal(part))
            part.replace(file)
        except (OSError, sqlite3.Error):
            with suppress(OSError):  # On a full disk, the incomplete file.
                part.unlink(missing_ok=True)
            return None
        return _opened(file, releases)


def _related(objects: Objects, base: CommitId, onto: CommitId) -> bool:
    """Return whether two commits have a common ancestor; commits made from archives have none."""
    objects.flush()  # here in any case: then a carry writes the same packs whether or not the index is there already
    if base != onto and not any(_has_parents(objects, one) for one in (base, onto)):
        return False
    done = git.run(["merge-base", base, onto], env={"GIT_DIR": str(objects.repository)}, accept=(0, 1))
    return done.returncode == 0


def _has_parents(objects: Objects, commit: CommitId) -> bool:
    return b"\nparent " in objects.read(commit).partition(b"\n\n")[0]


def _opened(file: Path, releases: bool) -> Index | None:
    """Open the index in a file; None if the file does not exist or is not the one that was built."""
    if not _is_whole(file):
        return None
    database = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        (steps,) = database.execute("select count(*) from steps").fetchone()
        database.execute("select 1 from units, lines, common, files limit 1").fetchone()
    except sqlite3.DatabaseError:
        database.close()
        return None
    return Index(database, releases, steps)


def _is_whole(file: Path) -> bool:
    """Return whether a file has the size and hash that its seal states; SQLite would notice damage in the midst of a carry."""
    seal = file.with_suffix(_SEAL)
    try:
        if not (file.is_file() and seal.is_file()):
            return False
        with seal.open("rb") as stream:
            stated = stream.read(_LONGEST_SEAL)
        return stated.startswith(b"%d " % file.stat().st_size) and stated == _seal(file)
    except OSError:
        return False


def _seal(file: Path) -> bytes:
    return f"{file.stat().st_size} {places.hash_of(file)}\n".encode("ascii")


def _build(database: sqlite3.Connection, steps: Iterable[tuple[CommitId, str, Iterable[FileDiff]]], releases: bool) -> None:
    # The file needs no journal: it is built under another name and renamed when it is complete.
    database.executescript(
        "pragma journal_mode = off; pragma synchronous = off;"
        "create table steps (number integer primary key, id text, subject text, pull integer, patch integer);"
        "create table units (number integer primary key, step integer, path text);"
        "create temporary table changed (hash integer, side integer, unit integer, count integer);"
        "create table lines (hash integer, side integer, unit integer, count integer, primary key (hash, side, unit)) without rowid;"
        "create table files (path text, step integer, was text, blob text, mode integer);"
    )
    units = itertools.count()
    for number, (commit, subject, files) in enumerate(steps):
        marks = [_insert(database, next(units), number, each) for each in files]
        pull = _PULL.search(subject)
        values = (
            number,
            commit,
            subject,
            int(pull[pull.lastindex or 0]) if pull else None,
            None if releases else _digest(marks),
        )
        database.execute("insert into steps values (?, ?, ?, ?, ?)", values)
    database.execute(
        "create table common as select hash, side from changed join units on number = unit group by hash, side"
        " having count(distinct iif(:files, unit, step)) >"
        " max(:few, cast(:share * (select count(distinct iif(:files, number, step)) from units) as integer))",
        {"files": releases, "few": _FEW_STEPS, "share": COMMON},
    )
    database.executescript(
        "create index by_common on common (hash, side);"
        "insert into lines select * from changed where not exists"
        " (select 1 from common where common.hash = changed.hash and common.side = changed.side) order by 1, 2, 3;"
        "create index by_patch on steps (patch); create index by_pull on steps (pull); create index by_path on files (path);"
    )
    database.commit()


def _insert(database: sqlite3.Connection, unit: int, step: int, file: FileDiff) -> bytes:
    """Add one file of a step to the index; return the file's part of the step's patch ID."""
    path = _stored(file.path)
    row = (
        path,
        step,
        file.old_id if file.old else None,
        file.new_id if file.new else None,
        file.new_mode if file.new else None,
    )
    database.execute("insert into files values (?, ?, ?, ?, ?)", row)
    database.execute("insert into units values (?, ?, ?)", (unit, step, path))
    rows = ((line, side, unit, count) for (side, line), count in Counter(lines(file)).items())
    database.executemany("insert into changed values (?, ?, ?, ?)", rows)
    return _mark(file)


def _shared_end(path: str, other: str) -> int:
    """Count the parts at the end of two paths that are equal."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _stored(path: str) -> str:
    """Return a path as valid UTF-8, as SQLite requires; other bytes are replaced, so lines of such a file are not found."""
    return path.encode("utf-8", "replace").decode("utf-8")


_SETTINGS = ["-c", "core.quotePath=false", "-c", f"core.bigFileThreshold={_LARGEST}"]
_SHOW = ["-p", "-U0", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"]


def _commits(objects: Objects, base: CommitId, onto: CommitId) -> Iterator[tuple[CommitId, str, Iterable[FileDiff]]]:
    """Yield the commits of a range, oldest first, with their changes without context."""
    show = [*_SHOW, "--format=%x00%H %s%x00"]
    log = [*_SETTINGS, "log", "--reverse", "--first-parent", "-m", *show, f"{base}..{onto}"]
    parts = _parts(git.run(log, env={"GIT_DIR": str(objects.repository)}).stdout)
    next(parts)
    for head, diff in zip(parts, parts, strict=False):
        commit, _, subject = head.decode("utf-8", "replace").partition(" ")
        yield CommitId(commit), subject, _changes(diff)


def _parts(data: bytes) -> Iterator[bytes]:
    r"""Yield the parts of `data.split(b"\0")`; a generator, since a range's diffs are too large to hold twice."""
    start = 0
    while (end := data.find(b"\0", start)) >= 0:
        yield data[start:end]
        start = end + 1
    yield data[start:]


def _releases(objects: Objects, base: CommitId, rungs: Sequence[Rung]) -> Iterator[tuple[CommitId, str, Iterable[FileDiff]]]:
    before = base
    for rung in rungs:
        diff = [*_SETTINGS, "diff-tree", "-r", *_SHOW, before, rung.commit]
        yield rung.commit, rung.name, _changes(git.run(diff, env={"GIT_DIR": str(objects.repository)}).stdout)
        before = rung.commit


def _changes(diff: bytes) -> Iterator[FileDiff]:
    """Yield the files of one step; submodules and binary files have no lines."""
    starts = [match.start() for match in _FILE_START.finditer(diff)]
    for start, end in itertools.pairwise([*starts, len(diff)]):
        yield from parse(diff[start:end])


def lines(file: FileDiff) -> Iterator[Line]:
    """Yield the distinctive lines of a file's change; a line without a word (a bracket, a row of dashes) is not distinctive."""
    if sum(len(hunk.lines) for hunk in file.hunks) > _MOST_LINES:
        return
    for hunk in file.hunks:
        for line in hunk.lines:
            distinctive = telling(line)
            if distinctive is not None:
                yield distinctive


def telling(line: bytes) -> Line | None:
    """Return a line of a hunk as (side, hash); None if it is context or not distinctive."""
    side = _SIDES.get(line[:1])
    return (side, hashed(line[1:])) if side is not None and len(line.translate(None, NO_WORD)) >= _SHORTEST else None


def hashed(line: bytes) -> int:
    """Hash a line without its whitespace to a number."""
    return _number(line.translate(None, _SPACE))


def patch_id(files: Sequence[FileDiff]) -> int:
    """Hash a patch's files and changed lines without line numbers, context and whitespace, similar to `git patch-id`."""
    return _digest(map(_mark, files))


def _mark(file: FileDiff) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{file.old}\0{file.new}\0{file.new_id if file.binary else ''}\0".encode("utf-8", "surrogateescape"))
    for hunk in file.hunks:
        for line in hunk.lines:
            if line[:1] in _SIDES:
                digest.update(line[:1] + line[1:].translate(None, _SPACE) + b"\0")
    return file.path.encode("utf-8", "surrogateescape") + b"\0" + digest.digest()


def _digest(marks: Iterable[bytes]) -> int:
    return _number(b"".join(sorted(marks)))


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)
