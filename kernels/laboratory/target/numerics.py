# SPDX-License-Identifier: Apache-2.0
"""Run the kernels' cases on the GPU machine with `python -m stack.validation.numerics`."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.verdict import Case, Outcome
from stack.validation import numerics_protocol
from stack.validation.numerics import SM120_ON_SM90
from stack.validation.pack import contents


@dataclass(frozen=True, slots=True)
class Numerics:
    """The folder of the archive, and the folder for the log of the numerics' process."""

    root: Path
    work: Path

    def names(self) -> list[tuple[str, tuple[str, ...]]]:
        """List all cases with their needs.

        Raises:
            StackError: the numerics cannot list them.

        """
        lines = [numerics_protocol.table(line) for line in self._output("list")]
        return [(line.text("name"), line.texts("needs")) for line in lines]

    def run(self, names: Sequence[str]) -> Iterator[Case]:
        """Yield the cases as they end. Cases that the process did not reach have failed.

        Raises:
            StackError: a line is not a case, or the case was not requested.

        """
        left = dict.fromkeys(names)
        yield from numerics_protocol.cases(self._output("run", *names), left)
        for name in left:
            yield Case(name, Outcome.FAILED, f"the numerics ended before this case: see {self.work.name}/{self._log.name}")

    @property
    def _log(self) -> Path:
        return self.work / "numerics.log"

    def _output(self, *arguments: str) -> Iterator[bytes]:
        command = [sys.executable, "-m", "stack.validation.numerics", *arguments]
        variables = os.environ | {
            "PYTHONPATH": contents.python_path(self.root),
            SM120_ON_SM90: str(self.root / contents.EMULATED),
        }
        with (
            self._log.open("ab") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=variables) as process,
        ):
            assert process.stdout is not None
            yield from process.stdout
