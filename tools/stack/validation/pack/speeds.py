# SPDX-License-Identifier: Apache-2.0
"""Speeds of servers beside a verdict, for the run that resumes it: of this machine, and since it was started.

A verdict names a machine by what it is made of, and two of one kind may differ by a fifth in what their hosts need for a token, so that
one's server and the other's are not to be compared.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document
from stack.store import cache as places
from stack.validation.pack.checks import Speed


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured, by case, on a machine since it was started (`machine.started`); `file` keeps it."""

    file: Path
    machine: str
    measured: dict[str, Speed]

    def add(self, case: str, speed: Speed) -> None:
        """Keep what a case measured."""
        self.measured[case] = speed
        runs = {name: list(one.runs) for name, one in self.measured.items()}
        places.put(self.file, json.dumps({"machine": self.machine, "runs": runs}).encode())


def kept(file: Path, cases: Collection[str], machine: str) -> Speeds:
    """The speeds of those cases that an earlier run kept, if it was on this machine and that has not been started anew since.

    Raises:
        StackError: speeds are wanted, and the file is not one that `Speeds` wrote.

    """
    now = Speeds(file, machine, {})
    if not cases or not file.exists():
        return now
    try:
        said = json.loads(document.read_text(file))
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{file} is no record of speeds", "remove it: servers of this run are compared without it") from bad
    before = document.Table({"speeds": said}, file=file).table("speeds")
    runs = before.table("runs")
    if before.text("machine") == machine:
        now.measured.update({case: _speed(runs, case) for case in runs if case in cases})
    return now


def _speed(runs: document.Table, case: str) -> Speed:
    found = runs.numbers(case)
    if not found or min(found) <= 0:
        raise runs.error(case, f"is {found}", "a run has more than 0 tokens a second: remove the file")
    return Speed(found)
