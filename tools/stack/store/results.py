# SPDX-License-Identifier: Apache-2.0
"""Results of long runs, kept in the user's cache under the hash of all their inputs.

A result is a small JSON object. Losing one only costs the time to compute it again. So a full or read-only cache and a damaged
file count as "not kept".
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.model.ids import Sha256
from stack.store import cache as places

FOLDER = "results"
"""The cache's folder for results, with a folder per kind."""
AGAIN = "STACK_AGAIN"
"""Environment variable; 1 ignores kept results."""
_LARGEST = 8 << 20
"""Bytes of the largest result; a larger file was not written by this module."""


def key(inputs: Mapping[str, str]) -> Sha256:
    """Hash the named inputs of a run; their order does not matter."""
    return Sha256(hashlib.sha256(json.dumps(dict(inputs), sort_keys=True).encode()).hexdigest())


def again() -> bool:
    """Tell whether the user asked to ignore kept results."""
    return os.environ.get(AGAIN) == "1"


@dataclass(frozen=True, slots=True)
class Results:
    """The kept results of one kind of run."""

    folder: Path

    def get(self, name: Sha256) -> dict[str, Any] | None:
        """Read the result under a key; None if there is none or it cannot be read."""
        path = self._path(name)
        try:
            if not path.is_file():  # Opening a named pipe would wait for its writer.
                return None
            with path.open("rb") as file:
                result = json.loads(file.read(_LARGEST + 1))
        except (OSError, ValueError, RecursionError):
            return None
        with contextlib.suppress(OSError):
            path.touch()  # `stack cache prune` removes what was not used for long
        return result if isinstance(result, dict) else None

    def put(self, name: Sha256, result: Mapping[str, Any]) -> None:
        """Keep a result under a key. A kill leaves the old file or the new one."""
        path = self._path(name)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            places.put(path, json.dumps(dict(result)).encode())

    def _path(self, name: Sha256) -> Path:
        return self.folder / f"{name}.json"


def results(cache: Path, kind: str) -> Results:
    """Open the kept results of a kind, such as `proofs`, in a cache folder."""
    return Results(cache / FOLDER / kind)
