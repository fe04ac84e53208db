# SPDX-License-Identifier: Apache-2.0
"""The search for open pull requests that do what ours would, and its record, which the description quotes."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from stack.base.errors import StackError
from stack.model.patch import files as files_of
from stack.model.series import Series
from stack.store.objects import Objects
from stack.upstreaming import duplicates, pr_sidecar_files
from stack.upstreaming.forge import Hit, Pull, Repository
from stack.upstreaming.github import NOT_FOUND, GitHub, RefusedError
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.queries import Queries, queries

EACH = 10
"""Pull requests that are taken from one query, the best first."""
MOST = 30
"""Pull requests whose diffs are read for one of ours."""
_SHOWN = 5
"""Shared lines that are kept."""
_LONGEST = 200
_SUFFIX = ".search.json"


@dataclass(frozen=True, slots=True)
class Alike:
    """An open pull request and what it shares with ours: see `duplicates.Overlap`."""

    number: int
    address: str
    title: str
    score: float
    duplicate: bool
    lines: tuple[str, ...]
    paths: tuple[str, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Search:
    """What was asked, when (ISO 8601, UTC), and what it found, the most alike first.

    `unread`: how many were found beyond those whose diffs were read. `despite`: addresses of pull requests that a person has looked
    at and found to be something else.
    """

    made: str
    repository: str
    queries: tuple[str, ...]
    found: tuple[Alike, ...]
    unread: int = 0
    despite: tuple[str, ...] = ()

    @property
    def duplicates(self) -> tuple[Alike, ...]:
        """Those above the bar that nobody has looked at."""
        return tuple(one for one in self.found if one.duplicate and one.address not in self.despite)


class Searcher:
    """Searches one repository for several pull requests: what was read for one of them is not read again for the next."""

    def __init__(self, github: GitHub, repository: Repository) -> None:
        self._github = github
        self._repository = repository
        self._hits: dict[str, tuple[tuple[Hit, ...], int]] = {}
        self._pulls: dict[int, Pull | None] = {}
        self._diffs: dict[int, bytes | None] = {}

    def search(self, proposal: Proposal, series: Series, objects: Objects, despite: Collection[str] = ()) -> Search:
        """Look for what does the same as a proposal of a series; our own pull requests do not count.

        Raises:
            StackError: the forge cannot be asked.

        """
        asked = queries(proposal, series)
        texts = _texts(self._repository, asked)
        candidates = self._candidates(asked, texts, {one.address for one in series.pulls} | {series.pull})
        read = [one for one in candidates[:MOST] if self._diff(one.number) is not None]
        found = self._scored(proposal, objects, read)
        return Search(
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            repository=self._repository.shown,
            queries=tuple(texts),
            found=tuple(sorted(found, key=lambda one: -one.score)),
            unread=len(candidates) - len(read),
            despite=tuple(sorted(despite)),
        )

    def _candidates(self, asked: Queries, texts: Sequence[str], ours: Collection[str | None]) -> list[Hit]:
        """The open pull requests of others that are named, or that a query finds; those that most queries find come first."""
        named = [_hit(pull) for number in asked.numbers if (pull := self._pull(number)) is not None and pull.state.lives]
        times: dict[Hit, int] = dict.fromkeys(named, len(texts))
        for text in texts:
            if text not in self._hits:
                self._hits[text] = self._github.search(text, EACH)
            for hit in self._hits[text][0]:
                times[hit] = times.get(hit, 0) + 1
        me = self._github.login() if self._github.has_token else None
        others = [hit for hit in times if hit.address not in ours and hit.author != me]
        return sorted(others, key=lambda hit: -times[hit])

    def _pull(self, number: int) -> Pull | None:
        """A pull request; None where the number is an issue's, or nothing's."""
        if number not in self._pulls:
            try:
                self._pulls[number] = self._github.pull(self._repository, number)
            except RefusedError as refused:
                if refused.status != NOT_FOUND:
                    raise
                self._pulls[number] = None
        return self._pulls[number]

    def _diff(self, number: int) -> bytes | None:
        if number not in self._diffs:
            self._diffs[number] = self._github.diff(self._repository, number)
        return self._diffs[number]

    def _scored(self, proposal: Proposal, objects: Objects, read: Sequence[Hit]) -> Iterable[Alike]:
        if not read:
            return
        ours = [file for part in proposal.parts for file in files_of(part.patch)]
        diffs = [self._diff(one.number) or b"" for one in read]
        for hit, overlap in zip(read, duplicates.overlaps(objects, objects.tree_of(proposal.base), ours, diffs), strict=True):
            yield Alike(
                hit.number,
                hit.address,
                hit.title,
                round(overlap.score, 3),
                overlap.is_duplicate,
                tuple(line[:_LONGEST] for line in overlap.lines[:_SHOWN]),
                overlap.paths,
                overlap.whole,
            )


def keep(root: Path, proposal: Proposal, search: Search) -> None:
    """Write the record down.

    Raises:
        StackError: it cannot be written.

    """
    pr_sidecar_files.put(root, proposal, _SUFFIX, json.dumps(asdict(search), indent=1))


def kept(root: Path, proposal: Proposal) -> Search | None:
    """The record of the last search; None where there was none.

    Raises:
        StackError: what stands there is no such record.

    """
    file = pr_sidecar_files.file(root, proposal, _SUFFIX)
    try:
        values = json.loads(file.read_bytes())
        found = tuple(
            Alike(**one | {"lines": tuple(one["lines"]), "paths": tuple(one["paths"])}) for one in values.pop("found")
        )
        texts = {key: tuple(map(str, values.pop(key))) for key in ("queries", "despite")}
        return _checked(Search(found=found, queries=texts["queries"], despite=texts["despite"], **values))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as bad:
        raise StackError(f"{file} is not what stack wrote", "remove it: the next search writes it anew") from bad


def _checked(search: Search) -> Search:
    """The search as it was read: the file is the user's, and it is quoted.

    Raises:
        TypeError: a value is of another kind.

    """
    texts = [search.made, search.repository, *(text for one in search.found for text in (one.address, one.title))]
    numbers = [search.unread, *(one.number for one in search.found)]
    kinds = ((texts, str), (numbers, int), ([one.score for one in search.found], int | float))
    if not all(isinstance(value, kind) for values, kind in kinds for value in values):
        raise TypeError
    return search


def _texts(repository: Repository, asked: Queries) -> list[str]:
    """Searches as GitHub takes them. Every word stands in quotation marks: one with a dash or a colon would be an order."""
    words = [str(number) for number in asked.numbers] + list(asked.words)
    quoted = [" ".join(f'"{word}"' for word in text.replace('"', " ").split()) for text in words]
    return [f"repo:{repository.shown} is:pr is:open {text}" for text in quoted if text]


def _hit(pull: Pull) -> Hit:
    return Hit(pull.number, pull.address, pull.title, pull.author)
