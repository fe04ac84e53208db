# SPDX-License-Identifier: Apache-2.0
"""The contents of a report as frozen values. Its texts are untrusted: each format escapes them."""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from stack.base.text import counted
from stack.carry.outcome import Outcome, tally

_DAY = 86400
AGES = ((30, "under a month"), (90, "1 to 3 months"), (180, "3 to 6 months"), (365, "6 to 12 months"), (730, "1 to 2 years"))
"""Upper bounds of the groups of ages, in days; older patches are in one more group."""
OLDER = "over 2 years"


@dataclass(frozen=True, slots=True)
class PinLine:
    """A pin of the stack. `address` is where its commits can be read, if its repository is on the web."""

    upstream: str
    tag: str | None
    commit: str
    address: str | None = None


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """A series of the stack. `pulls` are the addresses of its pull requests."""

    name: str
    title: str
    state: str
    needs: tuple[str, ...] = ()
    pulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A patch that is carried. `written` is the date of its author, in seconds since the epoch; None if it is unknown."""

    name: str
    subject: str
    series: str
    upstream: str
    added: int
    removed: int
    written: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of a patch at one release. `open`: it needs a person there."""

    release: str
    outcome: Outcome
    open: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """The outcomes of a patch at all releases, in the order of the ladder; None where it was not tried.

    `evidence` holds one statement per line. Causes begin with two blanks, as they belong to the line above.
    """

    name: str
    subject: str
    outcome: Outcome
    open: bool
    cells: tuple[Cell | None, ...]
    evidence: tuple[str, ...] = ()
    decided: str = ""
    """The release that decided the outcome."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The patches of one upstream, carried from `old` over `releases`. The last release is the new base."""

    upstream: str
    old: str
    new: str
    releases: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def open(self) -> tuple[Row, ...]:
        """Return the rows that need a person."""
        return tuple(row for row in self.rows if row.open)

    @property
    def counts(self) -> dict[Outcome, int]:
        """Count the rows by outcome, in the order of the outcomes."""
        return tally(row.outcome for row in self.rows)


@dataclass(frozen=True, slots=True)
class Landing:
    """A patch that upstream has: the first known release with it, and the commit if it is known.

    `carried`: this ladder found it, and the stack may still hold the patch.
    """

    name: str
    upstream: str
    release: str
    commit: str | None = None
    subject: str | None = None
    address: str | None = None
    carried: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """How much the stack carried after one commit of its own repository. `when`: seconds since the epoch."""

    when: int
    patches: int
    lines: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a report shows. `made`: seconds since the epoch, to which ages refer."""

    title: str
    made: int
    digest: str | None = None
    pins: tuple[PinLine, ...] = ()
    series: tuple[SeriesLine, ...] = ()
    patches: tuple[PatchLine, ...] = ()
    ladders: tuple[Ladder, ...] = ()
    landings: tuple[Landing, ...] = ()
    points: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    broken_guards: int = 0
    """The number of guards that need a person; the notes name them."""

    @property
    def open(self) -> int:
        """Count the patches and guards that need a person."""
        return sum(len(ladder.open) for ladder in self.ladders) + self.broken_guards

    def age(self, patch: PatchLine) -> int | None:
        """Return the age of a patch in days; None if its date is unknown or lies in the future."""
        if patch.written is None or patch.written > self.made:
            return None
        return (self.made - patch.written) // _DAY

    def ages(self) -> tuple[tuple[str, int], ...]:
        """Count the patches in each group of ages, the youngest first, then those of unknown age if there are any."""
        found = Counter(age_group(self.age(patch)) for patch in self.patches)
        names = [*(name for _, name in AGES), OLDER, *(["unknown"] if found["unknown"] else [])]
        return tuple((name, found[name]) for name in names)


def age_group(days: int | None) -> str:
    """Return the name of the group that an age belongs to."""
    if days is None:
        return "unknown"
    return next((name for most, name in AGES if days < most), OLDER)


def age_words(days: int | None) -> str:
    """Return an age in words: days, months or years."""
    if days is None:
        return "unknown"
    if days < 60:
        return counted(days, "day")
    if days < 730:
        return f"{days // 30} months"
    return f"{days / 365:.1f} years"


def by_release(landings: Iterable[Landing]) -> tuple[tuple[str, tuple[Landing, ...]], ...]:
    """Group landings by upstream and release, in the order in which they come."""
    groups: dict[tuple[str, str], list[Landing]] = {}
    for landing in landings:
        groups.setdefault((landing.upstream, landing.release), []).append(landing)
    return tuple((" ".join(filter(None, key)), tuple(its)) for key, its in groups.items())


def how_many(count: int) -> str:
    """Return a number of patches in words."""
    return f"{count} patch{'' if count == 1 else 'es'}"


def summary(ladder: Ladder) -> str:
    """Return a ladder in one sentence: `27 patches onto v0.33.0: 9 clean, 18 moved`."""
    counts = ", ".join(f"{number} {outcome.value}" for outcome, number in ladder.counts.items())
    upstream = f" of {ladder.upstream}" if ladder.upstream else ""
    return f"{how_many(len(ladder.rows))}{upstream} onto {ladder.new}" + (f": {counts}" if counts else "")


def thinned(points: Iterable[Point], most: int) -> tuple[Point, ...]:
    """Keep at most `most` points (3 or more), evenly, with the first and the last one."""
    all_points = tuple(points)
    if len(all_points) <= most:
        return all_points
    step = (len(all_points) - 1) / (most - 1)
    places = dict.fromkeys(round(number * step) for number in range(most))
    return tuple(itertools.compress(all_points, (number in places for number in range(len(all_points)))))
