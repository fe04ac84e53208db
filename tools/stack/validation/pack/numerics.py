# SPDX-License-Identifier: Apache-2.0
"""The kernels' cases on the GPU machine, by `python -m stack.validation.numerics`."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.verdict import Case, Outcome
from stack.validation import numerics_protocol
from stack.validation.numerics.sm120_on_sm90 import LIBRARY
from stack.validation.pack.contents import SITE

EMULATED = "sm120-on-sm90.so"
"""The file of the archive with FlashInfer's kernels for SM120, compiled for SM90."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """Where the archive is, and where what a process says beside its cases goes."""

    root: Path
    work: Path

    def names(self) -> list[tuple[str, tuple[str, ...]]]:
        """All cases with what they need.

        Raises:
            StackError: they cannot be asked for.

        """
        lines = [numerics_protocol.table(line) for line in self._said("list")]
        return [(line.text("name"), line.texts("needs")) for line in lines]

    def run(self, names: Sequence[str]) -> Iterator[Case]:
        """The cases as they end; one that the process does not come to has failed.

        Raises:
            StackError: what it hands back is no case, or one that nobody asked for.

        """
        left = dict.fromkeys(names)
        yield from numerics_protocol.cases(self._said("run", *names), left)
        for name in left:
            yield Case(name, Outcome.FAILED, f"the numerics ended before it: see {self._log}")

    @property
    def _log(self) -> Path:
        return self.work / "numerics.log"

    def _said(self, *arguments: str) -> Iterator[bytes]:
        path = os.pathsep.join(map(str, (self.root / SITE, self.root / "tools")))
        command = [sys.executable, "-m", "stack.validation.numerics", *arguments]
        variables = os.environ | {"PYTHONPATH": path, LIBRARY: str(self.root / EMULATED)}
        with (
            self._log.open("ab") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=variables) as process,
        ):
            assert process.stdout is not None
            yield from process.stdout
