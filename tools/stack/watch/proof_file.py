# SPDX-License-Identifier: Apache-2.0
"""The file with which the job that runs proofs, and has no token, hands their results to the job that writes.

Upstream's code ran where the file was written, so its content is not trusted: it is read within bounds, and its sentences are
shown as quoted text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.base.text import printable
from stack.model import document
from stack.watch.observing import Proving

SCHEMA = "stack/watch-prove/1"
"""The document that `stack watch prove --json` prints, too."""
LARGEST = 256 * 1024
"""Bytes of the largest file that is read."""
_MOST = 500
"""Sentences that are taken of one upstream."""
_LONGEST = 300
_MISSING = ("not run: the job that runs them gave no result",)
_INVALID = ("not run: the result of the job that runs them is invalid",)
_OTHER = ("not run: the job that runs them had another commit of this repository",)


@dataclass(frozen=True, slots=True)
class Proved:
    """How the proofs of a carried stack ended. `commit` names the stack's files; `release` is None if there was none to prove."""

    upstream: str
    lane: str
    release: str | None
    commit: str | None
    proofs: tuple[str, ...] = ()


def content(found: Sequence[Proved]) -> dict[str, Any]:
    """Return the results as JSON."""
    return {
        "upstreams": [
            {
                "upstream": each.upstream,
                "lane": each.lane,
                "release": each.release,
                "commit": each.commit,
                "proofs": list(each.proofs),
            }
            for each in found
        ]
    }


def write(path: Path, found: Sequence[Proved]) -> None:
    """Write a file, whole or not at all.

    Raises:
        StackError: it cannot be written.

    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(json.dumps({"schema": SCHEMA, **content(found)}) + "\n", encoding="utf-8")
        part.replace(path)
    except OSError as failed:
        raise StackError(f"{path} cannot be written ({failed.strerror})", "name another file") from failed


class ProofFile:
    """The results in a file, by the commit of the carried stack. Upstream's code cannot stop the night by what it writes there."""

    def __init__(self, path: Path) -> None:
        """Read a file. One that is missing, empty, too large or invalid has no results."""
        self._found: Mapping[tuple[str, str], tuple[str, ...]] = {}
        self._otherwise = _MISSING
        try:
            raw = document.read_bytes(path, largest=LARGEST) if path.exists() else b""
            if raw.strip():
                self._found, self._otherwise = _parsed(raw), _OTHER
        except (AttributeError, LookupError, RecursionError, StackError, TypeError, ValueError):
            self._otherwise = _INVALID

    def of(self, wanted: Proving) -> tuple[str, ...]:
        """Return the results for a carried stack, or one sentence that says why there are none."""
        return self._found.get((wanted.upstream, wanted.commit), self._otherwise)


def _parsed(raw: bytes) -> Mapping[tuple[str, str], tuple[str, ...]]:
    read = json.loads(raw)
    if read["schema"] != SCHEMA:
        raise ValueError
    return dict(_entries(read["upstreams"]))


def _entries(listed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    for entry in listed:
        upstream, commit, proofs = entry["upstream"], entry["commit"], entry["proofs"]
        if isinstance(commit, str) and isinstance(upstream, str):
            yield (upstream, commit), tuple(printable(_sentence(each))[:_LONGEST] for each in list(proofs)[:_MOST])


def _sentence(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
