# SPDX-License-Identifier: Apache-2.0
"""Kill the writers of verdicts at every step; a program of its own, since it forks. Prints the number of steps of each writer."""

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stack.model import verdict as verdicts
from stack.owner import kept_verdicts
from stack.owner.sharing import prepared

from ..model.crash_injection import killed_at
from ..validation.factories import passed, verdict

OLD = verdict(passed("doctor/content"), made="2026-11-21T21:40:00Z")
NEW = replace(OLD, cases=(passed("doctor/content"), passed("doctor/stream")))
"""Of the same second, so that it takes the place of the old one."""


def steps(folder: Path, write: Callable[[verdicts.Verdict], Path]) -> int:
    """Kill a writer at each of its steps: the file is the old one or the new one, and writing again succeeds."""
    for last in itertools.count(1):
        file = write(OLD)
        was_killed = killed_at(last, lambda: write(NEW))
        assert verdicts.load(file) in (OLD, NEW)
        assert not was_killed or kept_verdicts.newest(folder) is not None
        assert verdicts.load(write(NEW)) == NEW
        if not was_killed:
            return last - 1
    raise AssertionError


def main(folder: Path) -> None:
    """Kill both writers."""
    kept, shared = folder / "kept", folder / "shared"
    kept_verdicts.write(shared, OLD)
    found = {
        "kept": steps(kept, lambda one: kept_verdicts.write(kept, one)),
        "shared": steps(shared, lambda one: prepared.beside(shared, one).file),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
