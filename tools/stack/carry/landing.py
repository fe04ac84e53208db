# SPDX-License-Identifier: Apache-2.0
"""Which commit of a range brought a patch's change upstream, under whatever name and however it was reworked on the way.

The lines that every commit of a range adds and removes are indexed once and kept. A patch is held against all of them: the
share of its lines that one commit has, too, is the score. Lines that many commits share (a licence header, `return None`) say
nothing and are left out, unless the patch has nothing else. Where a patch has too few lines to tell, it has to be the same
patch: same files, same lines, as `git patch-id` sees it at zero context.
"""

import hashlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from stack.model.diff import FileDiff, parse
from stack.model.ids import CommitId, TreeId
from stack.store import cache as places
from stack.store import git
from stack.store.objects import FILES, Objects

LANDED = 0.9
"""From here on a patch has landed. Chosen on FlashInfer v0.6.4 -> v0.6.8, reported on other ranges: benchmarks/landing.py."""
PARTLY = 0.5
"""From here on a part of it has."""
FEW = 3
"""Fewer telling lines than this prove nothing by themselves."""
COMMON = 0.02
"""A line in more than this share of the commits (and in more than five) is common."""

_FORMAT = 2
_WORD = re.compile(rb"[A-Za-z0-9_]")
_SHORTEST = 3
_SIDES = {b"+": 1, b"-": -1}
_SPACE = re.compile(rb"\s+")

Line = tuple[int, int]
"""(side, hash): side +1 added, -1 removed; hash of the line without its blanks."""


@dataclass(frozen=True, slots=True)
class Landing:
    """The commit that has most of a patch, and how much."""

    commit: CommitId
    subject: str
    score: float
    missing: tuple[str, ...]
    """Files of the patch of which lines are missing in that commit."""

    @property
    def landed(self) -> bool:
        """Whether the score reaches the bar."""
        return self.score >= LANDED


class Index:
    """The lines of every commit of one range."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._commits = int(database.execute("select count(*) from commits").fetchone()[0])
        self._common = max(5, int(self._commits * COMMON))

    def close(self) -> None:
        """Give the file back."""
        self._database.close()

    def search(self, files: Sequence[FileDiff]) -> Landing | None:
        """The commit that holds most of a patch; None where none holds half of it."""
        wanted = Counter(line for file in files for line in _lines(file))
        same = self._same(files)
        if same is not None:
            return Landing(*same, 1.0, ())
        spread = self._spread(wanted)
        telling = {line: count for line, count in wanted.items() if spread.get(line, 0) <= self._common}
        if sum(telling.values()) < FEW:
            return None
        best = self._best(telling)
        if best is None or best[1] / sum(telling.values()) < PARTLY:
            return None
        commit, hits = best
        name, subject = self._database.execute("select id, subject from commits where number = ?", (commit,)).fetchone()
        missing = tuple(file.path for file in files if self._missing(file, commit, telling))
        return Landing(CommitId(name), subject, hits / sum(telling.values()), missing)

    def _same(self, files: Sequence[FileDiff]) -> tuple[CommitId, str] | None:
        found = self._database.execute("select id, subject from commits where patch = ?", (_patch_id(files),)).fetchone()
        return (CommitId(found[0]), found[1]) if found else None

    def _spread(self, lines: Iterable[Line]) -> dict[Line, int]:
        """In how many commits each line is."""
        ask = "select count(*) from lines where hash = ? and side = ?"
        return {line: self._database.execute(ask, (line[1], line[0])).fetchone()[0] for line in lines}

    def _best(self, telling: Mapping[Line, int]) -> tuple[int, int] | None:
        hits: Counter[int] = Counter()
        for line, count in telling.items():
            for commit, there in self._database.execute(
                "select commit_number, count from lines where hash = ? and side = ?", (line[1], line[0])
            ):
                hits[commit] += min(count, there)
        # The first of several with the same score: later ones only carried it on.
        return max(hits.items(), key=lambda item: (item[1], -item[0])) if hits else None

    def _missing(self, file: FileDiff, commit: int, telling: Mapping[Line, int]) -> bool:
        ask = "select 1 from lines where hash = ? and side = ? and commit_number = ?"
        return any(
            self._database.execute(ask, (line[1], line[0], commit)).fetchone() is None
            for line in set(_lines(file))
            if line in telling
        )


def index(objects: Objects, base: CommitId, onto: CommitId, cache: Path) -> Index:
    """The index of the first-parent commits of `base..onto`; built on the first call, then kept.

    Raises:
        StackError: git cannot read the range, or the cache cannot be written.

    """
    file = cache / "landing" / f"{base}-{onto}-{_FORMAT}.sqlite"
    if not file.exists():
        with places.lock(file):
            if not file.exists():
                part = file.with_suffix(".part")
                part.unlink(missing_ok=True)
                _build(objects, base, onto, part)
                part.rename(file)
    return Index(sqlite3.connect(f"file:{file}?mode=ro", uri=True))


def _build(objects: Objects, base: CommitId, onto: CommitId, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        # A file that is built aside and renamed when it is whole needs no journal.
        database.executescript(
            "pragma journal_mode = off; pragma synchronous = off;"
            "create table commits (number integer primary key, id text, subject text, patch integer);"
            "create table lines (hash integer, side integer, commit_number integer, count integer);"
        )
        for number, (commit, subject, files) in enumerate(_commits(objects, base, onto)):
            database.execute("insert into commits values (?, ?, ?, ?)", (number, commit, subject, _patch_id(files)))
            counted = Counter(line for each in files for line in _lines(each))
            rows = ((line, side, number, count) for (side, line), count in counted.items())
            database.executemany("insert into lines values (?, ?, ?, ?)", rows)
        database.executescript("create index by_line on lines (hash, side); create index by_patch on commits (patch);")
        database.commit()


def _commits(objects: Objects, base: CommitId, onto: CommitId) -> Iterator[tuple[CommitId, str, list[FileDiff]]]:
    """The commits of a range, oldest first, with their changes at zero context."""
    show = ["-p", "-U0", "--no-renames", "--no-ext-diff", "--no-textconv", "--format=%x00%H %s%x00"]
    log = ["-c", "core.quotePath=false", "log", "--reverse", "--first-parent", "--no-merges", *show, f"{base}..{onto}"]
    parts = git.run(log, env={"GIT_DIR": str(objects.repository)}).stdout.split(b"\0")
    for head, diff in zip(parts[1::2], parts[2::2], strict=False):
        commit, _, subject = head.decode("utf-8", "replace").partition(" ")
        yield CommitId(commit), subject, list(_changes(diff))


def _changes(diff: bytes) -> Iterator[FileDiff]:
    """The files of one commit; what git shows of a submodule or a binary has no lines."""
    if diff.strip():
        yield from parse(diff.lstrip(b"\n"))


def _lines(file: FileDiff) -> Iterator[Line]:
    """The telling lines of a file's change. A line without a word (a bracket, a rule of dashes) tells nothing."""
    for hunk in file.hunks:
        for line in hunk.lines:
            side = _SIDES.get(line[:1])
            if side is not None and len(_WORD.findall(line)) >= _SHORTEST:
                yield side, _hash(_SPACE.sub(b"", line[1:]))


def _patch_id(files: Sequence[FileDiff]) -> int:
    """What stays the same when a patch moves: its files and lines, without numbers, context and blanks."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(files, key=lambda each: each.path):
        digest.update(f"{file.old}\0{file.new}\0{file.new_id if file.binary else ''}\0".encode("utf-8", "surrogateescape"))
        for hunk in file.hunks:
            for line in hunk.lines:
                if line[:1] in _SIDES:
                    digest.update(line[:1] + _SPACE.sub(b"", line[1:]) + b"\0")
    return int.from_bytes(digest.digest(), "big", signed=True)


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def present(objects: Objects, tree: TreeId, files: Sequence[FileDiff]) -> float:
    """The share of a patch's change that a tree shows: added lines that are in its file, removed ones that are not.

    A file that the tree lacks counts as showing nothing of what was added.
    """
    there = total = 0
    for file in files:
        entry = objects.entry(tree, file.path)
        data = objects.read(entry.id) if entry is not None and entry.mode in FILES else b""
        have = {_hash(_SPACE.sub(b"", line)) for line in data.split(b"\n")}
        for side, line in _lines(file):
            total += 1
            there += (line in have) == (side > 0)
    return there / total if total else 1.0
