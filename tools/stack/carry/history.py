# SPDX-License-Identifier: Apache-2.0
"""What the way from one base to another changed, line by line: built once for a range, kept in the cache, asked in milliseconds.

With history, the way is the first-parent commits of the range (a merge stands for all that it brought); without (the
registry's archives), it is the releases. Lines are kept by the file that they changed in: what one file got says nothing of
another.
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
"""All bytes that no ASCII word has."""
_SPACE = b" \t\n\r\f\v"
_SHORTEST = 3
COMMON = 0.02
"""A line in more than this share of the steps (of the changed files, where the steps are releases) is common: it tells nothing."""
_FEW_STEPS = 5
_RENAMES = 3
_COMMON_AMONG = "select side, hash from common where hash in (select value from json_each(?))"
_HOLDERS = """select side, hash, step, path, count from lines join units on number = unit
    where hash in (select value from json_each(?))"""
_SIDES = {b"+": 1, b"-": -1}
# Larger files and larger changes of one file are generated code, or data: FlashInfer 0.7.2 brings 380 MB of changes, nearly all
# of it such, and no fork's patch is like that.
_LARGEST = "512k"
_MOST_LINES = 5_000
# How a squash merge ends its subject on the common forges, and how a merge begins it.
_PULL = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)\b")
# A line of a change without context never begins so.
_FILE_START = re.compile(rb"^(?=diff --git )", re.MULTILINE)

Line = tuple[int, int]
"""(side, hash): side +1 added, -1 removed; hash of the line without its blanks."""


class Step(NamedTuple):
    """A commit of the range, or a release."""

    number: int
    commit: CommitId
    subject: str


class Touch(NamedTuple):
    """A step that changed a file, and the file's blob and mode after it (None: it removed the file); `was`: the blob before."""

    step: Step
    blob: str | None
    mode: int | None
    was: str | None


class _Likely(NamedTuple):
    """What a file may have been renamed to: whether it is the same, and how many parts at the end of its path are."""

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
    """The lines of every step of one range."""

    database: sqlite3.Connection
    releases: bool
    """The steps are releases, not commits."""
    steps: int

    def close(self) -> None:
        """Give the file back."""
        self.database.close()

    def step(self, number: int) -> Step:
        """A step by its number."""
        commit, subject = self.database.execute("select id, subject from steps where number = ?", (number,)).fetchone()
        return Step(number, CommitId(commit), subject)

    def same_patch(self, files: Sequence[FileDiff]) -> list[Step]:
        """The steps that are this very patch, as `git patch-id` sees it at zero context; oldest first."""
        return self._found("select number from steps where patch = ? order by number", patch_id(files))

    def pull(self, number: int) -> Step | None:
        """The step that says in its subject that it is a pull request."""
        return next(iter(self._found("select number from steps where pull = ?", number)), None)

    def holders(self, lines: Collection[Line]) -> dict[Line, list[Held]]:
        """Where on the way each of some lines was changed; a line that is common is left out."""
        found: dict[Line, list[Held]] = {line: [] for line in lines}
        asked = (json.dumps([number for _, number in lines]),)
        for line in self.database.execute(_COMMON_AMONG, asked):
            found.pop(line, None)
        for side, number, *held in self.database.execute(_HOLDERS, asked):
            if (side, number) in found:
                found[side, number].append(Held(*held))
        return found

    def touching(self, path: str) -> list[Touch]:
        """The steps that changed a file, oldest first."""
        rows = self.database.execute(
            "select number, id, subject, blob, mode, was from files join steps on number = step where path = ? order by number",
            (_stored(path),),
        )
        return [Touch(Step(number, CommitId(commit), subject), *rest) for number, commit, subject, *rest in rows]

    def name(self, path: str) -> str:
        """A file's name at the end of the way: where it went when it was renamed, as far as that can be told."""
        for _ in range(_RENAMES):
            touches = self.touching(path)
            if not touches or touches[-1].blob is not None:
                break
            came = self.database.execute(
                "select path, blob from files where step = ? and was is null", (touches[-1].step.number,)
            )
            likely = [_Likely(blob == touches[-1].was, _shared_end(path, other), other) for other, blob in came]
            best = max((one for one in likely if one.same or one.end), default=None)
            if best is None:
                break
            path = best.path
        return path

    def _found(self, ask: str, value: int) -> list[Step]:
        return [self.step(number) for (number,) in self.database.execute(ask, (value,)).fetchall()]


def index(objects: Objects, base: CommitId, rungs: Sequence[Rung], cache: Path) -> Index:
    """The index of the way from `base` over `rungs`; built on the first call, then kept.

    Where the cache cannot be written, or another program has broken the file, it is built in memory for this command alone.

    Raises:
        StackError: git cannot read the range.

    """
    releases = not _related(objects, base, rungs[-1].commit)
    way = [base, *(rung.commit for rung in rungs)] if releases else [base, rungs[-1].commit]
    name = hashlib.sha256(" ".join(way).encode("ascii")).hexdigest()[:32]
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
    """Build an index in its file; None where that cannot be written or read."""
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
            part.replace(file)
        except (OSError, sqlite3.Error):
            with suppress(OSError):  # of a full disk, the half that fitted
                part.unlink(missing_ok=True)
            return None
        return _opened(file, releases)


def _related(objects: Objects, base: CommitId, onto: CommitId) -> bool:
    """Whether two commits have history in common: those of archives have none."""
    done = git.run(["merge-base", base, onto], env={"GIT_DIR": str(objects.repository)}, accept=(0, 1))
    return done.returncode == 0


def _opened(file: Path, releases: bool) -> Index | None:
    """The index of a file; None where there is none, or another program has broken it."""
    if not file.is_file():
        return None
    database = sqlite3.connect(f"{file.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        (steps,) = database.execute("select count(*) from steps").fetchone()
        database.execute("select 1 from units, lines, common, files limit 1").fetchone()
    except sqlite3.DatabaseError:
        database.close()
        return None
    return Index(database, releases, steps)


def _build(database: sqlite3.Connection, steps: Iterable[tuple[CommitId, str, Iterable[FileDiff]]], releases: bool) -> None:
    # A file that is built aside and renamed when it is whole needs no journal.
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
    """Take up one file of a step; what comes back marks it in the step's patch id."""
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
    """How many parts at the end of two paths are the same."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _stored(path: str) -> str:
    """A path as SQLite can hold it: in a name that is no UTF-8 no lines are looked for."""
    return path.encode("utf-8", "replace").decode("utf-8")


_SETTINGS = ["-c", "core.quotePath=false", "-c", f"core.bigFileThreshold={_LARGEST}"]
_SHOW = ["-p", "-U0", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"]


def _commits(objects: Objects, base: CommitId, onto: CommitId) -> Iterator[tuple[CommitId, str, Iterable[FileDiff]]]:
    """The commits of a range, oldest first, with their changes at zero context."""
    show = [*_SHOW, "--format=%x00%H %s%x00"]
    log = [*_SETTINGS, "log", "--reverse", "--first-parent", "-m", *show, f"{base}..{onto}"]
    parts = _parts(git.run(log, env={"GIT_DIR": str(objects.repository)}).stdout)
    next(parts)
    for head, diff in zip(parts, parts, strict=False):
        commit, _, subject = head.decode("utf-8", "replace").partition(" ")
        yield CommitId(commit), subject, _changes(diff)


def _parts(data: bytes) -> Iterator[bytes]:
    """`data.split(b"\\0")`, one by one: a range's diffs are large enough to be there only once."""
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
    """The files of one step, one by one; what git shows of a submodule or a binary has no lines."""
    starts = [found.start() for found in _FILE_START.finditer(diff)]
    for start, end in itertools.pairwise([*starts, len(diff)]):
        yield from parse(diff[start:end])


def lines(file: FileDiff) -> Iterator[Line]:
    """The telling lines of a file's change. A line without a word (a bracket, a rule of dashes) tells nothing."""
    if sum(len(hunk.lines) for hunk in file.hunks) > _MOST_LINES:
        return
    for hunk in file.hunks:
        for line in hunk.lines:
            told = telling(line)
            if told is not None:
                yield told


def telling(line: bytes) -> Line | None:
    """A line of a hunk as it is looked for; None where it is context or tells nothing."""
    side = _SIDES.get(line[:1])
    return (side, hashed(line[1:])) if side is not None and len(line.translate(None, NO_WORD)) >= _SHORTEST else None


def hashed(line: bytes) -> int:
    """A line without its blanks, as a number."""
    return _number(line.translate(None, _SPACE))


def patch_id(files: Sequence[FileDiff]) -> int:
    """What stays the same when a patch moves: its files and lines, without numbers, context and blanks."""
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
