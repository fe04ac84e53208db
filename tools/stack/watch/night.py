# SPDX-License-Identifier: Apache-2.0
"""The findings of one night about an upstream, as frozen values. Their texts are untrusted: the writers of Markdown escape them."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import astuple, dataclass
from enum import StrEnum

from stack.base.text import counted
from stack.carry.outcome import Outcome, tally
from stack.model.pins import MAIN
from stack.watch import marks

GUARD = "guard "
"""The beginning of the name of a row for a guard."""


def counted_rows(names: Collection[str]) -> str:
    """Count rows by their names: `1 patch, 2 guards`."""
    guards = sum(name.startswith(GUARD) for name in names)
    counts = ((len(names) - guards, "patch"), (guards, "guard"))
    return ", ".join(counted(number, noun) for number, noun in counts if number)


class Aim(StrEnum):
    """Where a lane's patches were carried to."""

    RELEASE = "newest release"
    MAIN = "main branch"


@dataclass(frozen=True, slots=True)
class PatchRow:
    """The outcome of one patch. `open`: it needs a person. `why` is the evidence, one statement each."""

    name: str
    outcome: Outcome
    open: bool
    why: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """The patches of one lane, carried to one revision of an upstream.

    `revision` is a tag, or the first digits of a commit of the main branch. `unmet` are requirements of other upstreams.
    """

    lane: str
    aim: Aim
    pinned: str
    revision: str
    rows: tuple[PatchRow, ...]
    unmet: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[PatchRow, ...]:
        """Return the patches that need a person."""
        return tuple(row for row in self.rows if row.open)

    @property
    def counts(self) -> dict[Outcome, int]:
        """Count the patches by outcome, in the order of the outcomes."""
        return tally(row.outcome for row in self.rows)


@dataclass(frozen=True, slots=True)
class Night:
    """All that a night finds of one upstream. `report` is the Markdown of `stack report`; it changes with the date."""

    upstream: str
    trials: tuple[Trial, ...]
    report: str = ""

    @property
    def open(self) -> tuple[tuple[Trial, PatchRow], ...]:
        """Return the patches that need a person, with their trials."""
        return tuple((trial, row) for trial in self.trials for row in trial.open)

    @property
    def needs_person(self) -> bool:
        """Return whether a patch or a requirement needs a person somewhere."""
        return bool(self.open) or any(trial.unmet for trial in self.trials)

    @property
    def outcome(self) -> str:
        """Return a hash of the outcomes: another hash is worth a comment. Commits of the main branch do not count."""
        return _hash(
            [
                (
                    trial.lane,
                    trial.aim,
                    trial.revision if trial.aim is Aim.RELEASE else "",
                    [(row.name, row.outcome, row.open) for row in trial.rows],
                    trial.unmet,
                )
                for trial in self.trials
            ]
        )

    @property
    def content(self) -> str:
        """Return a hash of all findings, without the report."""
        return _hash([astuple(trial) for trial in self.trials])


@dataclass(frozen=True, slots=True)
class CarriedRelease:
    """The stack carried to a release, as a commit for a pull request.

    `branch` holds it, on the repository's default branch `onto`. Only the pins of `lane` move. `rows` are the outcomes on that
    release, `range_diffs` the texts of `git range-diff` by upstream, and `moved` the pins before and after. `newest` is upstream's
    newest release.
    """

    upstream: str
    pinned: str
    release: str
    newest: str
    branch: str
    onto: str
    commit: str
    rows: tuple[PatchRow, ...]
    moved: tuple[tuple[str, str, str], ...] = ()
    range_diffs: tuple[tuple[str, str], ...] = ()
    emptied: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()
    lane: str = MAIN

    @property
    def key(self) -> str:
        """Return the name of its mark."""
        return marks.key(self.upstream, self.lane)

    @property
    def content(self) -> str:
        """Return a hash of all that the pull request shows, without the id of the commit."""
        return _hash([value for key, value in zip(self.__slots__, astuple(self), strict=True) if key != "commit"])


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()[:16]
