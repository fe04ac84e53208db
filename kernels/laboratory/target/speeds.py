# SPDX-License-Identifier: Apache-2.0
"""Keep servers' speeds beside a verdict for a run that resumes it. They count only on the same machine, until it is restarted.

A verdict identifies a machine by its hardware. Two such machines may differ by a fifth in the host's time for a token, so servers on
different machines must not be compared.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from laboratory.target.checks import Speed
from stack.base.errors import StackError
from stack.model import document
from stack.store import cache as places


@dataclass(frozen=True, slots=True)
class Speeds:
    """Measured speeds by case, on a machine since its start (`machine.started`). `file` keeps them."""

    file: Path
    machine: str
    measured: dict[str, Speed]

    def add(self, case: str, speed: Speed) -> None:
        """Add the speed of a case, and write the file."""
        self.measured[case] = speed
        runs = {name: list(speed.runs) for name, speed in self.measured.items()}
        places.put(self.file, json.dumps({"machine": self.machine, "runs": runs}).encode())


def kept(file: Path, cases: Collection[str], machine: str) -> Speeds:
    """Load the speeds that an earlier run kept for those cases, if this machine has not been restarted since.

    Raises:
        StackError: speeds are needed, and the file was not written by `Speeds`.

    """
    now = Speeds(file, machine, {})
    if not cases or not file.exists():
        return now
    try:
        content = json.loads(document.read_text(file))
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{file} is not a record of speeds", "remove it: servers of this run are compared without it") from bad
    before = document.Table({"speeds": content}, file=file).table("speeds")
    runs = before.table("runs")
    if before.text("machine") == machine:
        now.measured.update({case: _speed(runs, case) for case in runs if case in cases})
    return now


def _speed(runs: document.Table, case: str) -> Speed:
    rates = runs.numbers(case)
    if not rates or min(rates) <= 0:
        raise runs.error(case, f"is {rates}", "a run has more than 0 tokens a second: remove the file")
    return Speed(rates)
