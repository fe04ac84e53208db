# SPDX-License-Identifier: Apache-2.0
"""Results of jobs, kept in the cache by what they depend on, so that a second run takes up where the first one ended."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stack.matrix.job import Job
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.store import cache, results

KIND = "matrix"
"""The folder of the kept results."""
_TIMES = "matrix-times"


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of a job that passed: its seconds, the machine that ran it, and the SHA-256 of each file that it left."""

    seconds: float
    host: str
    outputs: Mapping[str, str]


class Shelf:
    """The kept results of one stack."""

    def __init__(self, home: Path, stack: Stack) -> None:
        self._results = results.results(home, KIND)
        self._times = results.results(home, _TIMES)
        self._root = stack.root
        self._upstreams = repr(sorted(pin.git for pin in stack.pins))

    def get(self, key: Sha256) -> Kept | None:
        """Return the result under a key, if the files that the job left are as it left them."""
        found = self._results.get(key)
        kept = None if found is None else _read(found)
        return kept if kept is not None and all(_same(self._root, *each) for each in kept.outputs.items()) else None

    def put(self, key: Sha256, job: Job, seconds: float, host: str) -> None:
        """Keep the result of a job that passed."""
        outputs = hashes(self._root, job)
        self._results.put(key, {"job": job.name, "seconds": round(seconds, 1), "host": host, "outputs": outputs})
        self._times.put(self._name(job), {"seconds": round(seconds, 1)})

    def timed(self, job: Job) -> Job:
        """Return a job with the minutes that it took last, if it ran."""
        found = self._times.get(self._name(job))
        seconds = found.get("seconds") if found is not None else None
        if not isinstance(seconds, int | float):
            return job
        return replace(job, needs=replace(job.needs, minutes=round(seconds / 60, 1)))

    def _name(self, job: Job) -> Sha256:
        return results.key({"command": job.command, "upstreams": self._upstreams})


def hashes(root: Path, job: Job) -> dict[str, str]:
    """Return the SHA-256 of each file that a job left, by its path below the stack's folder."""
    return {file.relative_to(root).as_posix(): cache.hash_of(file) for file in left(root, job)}


def left(root: Path, job: Job) -> Iterator[Path]:
    """Yield the regular files that a job left; links are not followed, and a pipe would not end."""
    for output in job.outputs:
        place = root / output
        if place.resolve() != root.resolve() / output:
            continue  # it, or a folder above it, is a link
        if place.is_file():
            yield place
        for folder, _, names in os.walk(place):
            yield from (file for name in sorted(names) if stat.S_ISREG((file := Path(folder, name)).lstat().st_mode))


def _same(root: Path, path: str, sha256: str) -> bool:
    file = root / path
    return file.is_file() and cache.hash_of(file) == sha256


def _read(found: Mapping[str, Any]) -> Kept | None:
    """Rebuild a kept result; None if it is damaged."""
    try:
        outputs = {str(path): str(sha256) for path, sha256 in found["outputs"].items()}
        return Kept(float(found["seconds"]), str(found["host"]), outputs)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
