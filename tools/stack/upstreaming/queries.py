# SPDX-License-Identifier: Apache-2.0
"""Build the searches for similar open pull requests: issue numbers that a change names, and words that only its area uses."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stack.model.patch import files as files_of
from stack.model.series import Series
from stack.upstreaming.proposal import Proposal

_NUMBERED = re.compile(r"(?<![\w/&])#(\d{1,9})\b|/(?:issues|pull|pulls)/(\d{1,9})\b")
# "issues 46464 and 51977", "pull requests 43408, 47350 and 52055", "PR 12".
_COUNTED = re.compile(r"\b(?:issues?|pull requests?|PRs?)\s+((?:#?\d{1,9}(?:,\s*|\s+and\s+|,\s+and\s+)?)+)", re.IGNORECASE)
# Identifiers, not ordinary words: with under_scores or inner capitals. Short ones (MoE, KV) are too common.
_NAME = re.compile(r"\b(?=\w{8})(?:\w*[A-Za-z0-9]_\w+|_\w+|[A-Z]+[a-z0-9]+[A-Z]\w*)\b")
_CAPITALS = re.compile(r"\w*[A-Z]\w*[A-Z0-9]\w*")
_NAMES = 3
"""Number of names to search for: GitHub allows 30 searches a minute."""
_SUBJECT_WORDS = 3
"""Words taken from a subject: a search requires all of its words, and a longer one would miss similar texts."""
_EMPTY = re.compile(
    "an?|and|are|as|at|be|but|by|for|from|has|have|in|into|is|its?|let|may|mean|not?|of|on|only|or|own|so|that|the|their|them|they"
    "|to|up|use|what|where|which|with|without",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Queries:
    """Numbers of issues and pull requests that a change names, and texts to search for, the most specific first."""

    numbers: tuple[int, ...]
    words: tuple[str, ...]


def queries(proposal: Proposal, series: Series) -> Queries:
    """Return what to search for before a pull request is opened.

    Numbers come from the messages and from the series' `why` and `drop_when`. Words are identifiers that both the messages and
    the diff contain, file names, and words of the subjects.

    Raises:
        StackError: a diff cannot be read.

    """
    messages = [part.patch.message for part in proposal.parts]
    texts = [*messages, series.why, series.drop_when or ""]
    code = _code(proposal)
    named = [name for name in _names(messages) if name in code]
    names = _once([*named, *_stems(proposal)])[:_NAMES]
    subjects = [" ".join(_telling(part.patch.subject)) for part in proposal.parts]
    return Queries(tuple(dict.fromkeys(number for text in texts for number in _numbers(text))), _once([*names, *subjects]))


def _numbers(text: str) -> Iterator[int]:
    numbers = [(hit.start(), hit[1] or hit[2]) for hit in _NUMBERED.finditer(text)]
    for hit in _COUNTED.finditer(text):
        numbers += [(hit.start(), number) for number in re.findall(r"\d+", hit[1])]
    yield from (int(number) for _, number in sorted(numbers) if int(number))


def _names(texts: Iterable[str]) -> Iterator[str]:
    return (hit[0] for text in texts for hit in _NAME.finditer(text))


def _code(proposal: Proposal) -> frozenset[str]:
    """Return every word of the changed lines and of their context."""
    lines = (line for part in proposal.parts for file in files_of(part.patch) for hunk in file.hunks for line in hunk.lines)
    return frozenset(word for line in lines for word in re.findall(r"\w+", line[1:].decode("utf-8", "replace")))


def _stems(proposal: Proposal) -> Iterator[str]:
    """Return the stems of the names of the changed files, tests last."""
    paths = [file.path for part in proposal.parts for file in files_of(part.patch)]
    for path in sorted(paths, key=lambda path: "test" in path):
        stem = path.rpartition("/")[2].partition(".")[0]
        if "_" in stem.strip("_"):
            yield stem


def _telling(subject: str) -> list[str]:
    """Return a subject's most specific words in their order: identifiers count first, then the longest words."""
    words = [word for word in re.findall(r"[\w.+-]+", re.sub(r"^(\s*\[[^\]]*\])+", "", subject)) if not _EMPTY.fullmatch(word)]
    best = sorted(words, key=lambda word: (not (_NAME.fullmatch(word) or _CAPITALS.fullmatch(word)), -len(word)))[
        :_SUBJECT_WORDS
    ]
    return [word for word in words if word in best]


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
