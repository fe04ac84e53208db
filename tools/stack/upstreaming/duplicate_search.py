# SPDX-License-Identifier: Apache-2.0
"""Search for open pull requests that make the same change as ours, and record the search for the description."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from stack.base.errors import StackError
from stack.forge.github import NOT_FOUND, GitHub, RefusedError
from stack.forge.repositories import Hit, Pull, Repository
from stack.model.patch import files as files_of
from stack.model.series import Series
from stack.store.objects import Objects
from stack.upstreaming import duplicates, pr_sidecar_files
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.queries import Queries, queries

EACH = 10
"""Results taken from each query, the best first."""
MOST = 30
"""Maximal number of pull requests whose diffs are read for one of ours."""
_SHOWN = 5
"""Maximal number of shared lines that are recorded."""
_LONGEST = 200
_SUFFIX = ".search.json"


@dataclass(frozen=True, slots=True)
class Alike:
    """An open pull request and its overlap with ours; see `duplicates.Overlap`."""

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
    """A search: its time (ISO 8601, UTC), its queries, and the pull requests that it found, the most similar first.

    `unread` is the number of pull requests whose diffs were not read. `despite` has the addresses of pull requests that a
    person has checked and found to be different.
    """

    made: str
    repository: str
    queries: tuple[str, ...]
    found: tuple[Alike, ...]
    unread: int = 0
    despite: tuple[str, ...] = ()

    @property
    def duplicates(self) -> tuple[Alike, ...]:
        """Return the similar pull requests that nobody has checked yet."""
        return tuple(pull for pull in self.found if pull.duplicate and pull.address not in self.despite)


class Searcher:
    """A searcher in one repository for several pull requests; it reads each hit, pull request and diff only once."""

    def __init__(self, github: GitHub, repository: Repository) -> None:
        self._github = github
        self._repository = repository
        self._hits: dict[str, tuple[tuple[Hit, ...], int]] = {}
        self._pulls: dict[int, Pull | None] = {}
        self._diffs: dict[int, bytes | None] = {}

    def search(self, proposal: Proposal, series: Series, objects: Objects, despite: Collection[str] = ()) -> Search:
        """Search for pull requests that make the same change as a proposal; our own do not count.

        Raises:
            StackError: the forge cannot be asked.

        """
        terms = queries(proposal, series)
        texts = _texts(self._repository, terms)
        candidates = self._candidates(terms, texts, {pulled.address for pulled in series.pulls} | {series.pull})
        read = [hit for hit in candidates[:MOST] if self._diff(hit.number) is not None]
        similar = self._scored(proposal, objects, read)
        return Search(
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            repository=self._repository.shown,
            queries=tuple(texts),
            found=tuple(sorted(similar, key=lambda pull: -pull.score)),
            unread=len(candidates) - len(read),
            despite=tuple(sorted(despite)),
        )

    def _candidates(self, terms: Queries, texts: Sequence[str], ours: Collection[str | None]) -> list[Hit]:
        """Return other people's open pull requests that are named or that a query finds, those found by most queries first."""
        named = [_hit(pull) for number in terms.numbers if (pull := self._pull(number)) is not None and pull.state.lives]
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
        """Return a pull request; None if the number belongs to an issue or to nothing."""
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
        diffs = [self._diff(hit.number) or b"" for hit in read]
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
    """Write the record of a search.

    Raises:
        StackError: the record cannot be written.

    """
    pr_sidecar_files.put(root, proposal, _SUFFIX, json.dumps(asdict(search), indent=1))


def kept(root: Path, proposal: Proposal) -> Search | None:
    """Read the record of the last search; None if there is none.

    Raises:
        StackError: the file does not contain such a record.

    """
    file = pr_sidecar_files.file(root, proposal, _SUFFIX)
    try:
        values = json.loads(file.read_bytes())
        found = tuple(
            Alike(**entry | {"lines": tuple(entry["lines"]), "paths": tuple(entry["paths"])}) for entry in values.pop("found")
        )
        texts = {key: tuple(map(str, values.pop(key))) for key in ("queries", "despite")}
        return _checked(Search(found=found, queries=texts["queries"], despite=texts["despite"], **values))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as bad:
        raise StackError(f"{file} is not a record of a search", "remove it: the next search writes a new one") from bad


def _checked(search: Search) -> Search:
    """Check the types in a record that was read: users can edit the file, and descriptions quote it.

    Raises:
        TypeError: a value has another type.

    """
    texts = [search.made, search.repository, *(text for pull in search.found for text in (pull.address, pull.title))]
    numbers = [search.unread, *(pull.number for pull in search.found)]
    types = ((texts, str), (numbers, int), ([pull.score for pull in search.found], int | float))
    if not all(isinstance(value, type_) for values, type_ in types for value in values):
        raise TypeError
    return search


def _texts(repository: Repository, terms: Queries) -> list[str]:
    """Format the searches for GitHub. Every word is quoted: GitHub would read a word with a dash or a colon as an operator."""
    words = [str(number) for number in terms.numbers] + list(terms.words)
    quoted = [" ".join(f'"{word}"' for word in text.replace('"', " ").split()) for text in words]
    return [f"repo:{repository.shown} is:pr is:open {text}" for text in quoted if text]


def _hit(pull: Pull) -> Hit:
    return Hit(pull.number, pull.address, pull.title, pull.author)
