# SPDX-License-Identifier: Apache-2.0
"""Plant a fault in the decode kernels, build them for this CPU, and ask the judges of the header that has it."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from laboratory.emulated import Machine, building
from laboratory.emulated.building import BuildPlan
from laboratory.faults.judges import (
    BF16,
    BYTES,
    CHOOSE,
    ENTRIES,
    FIXED,
    GEMV,
    JUDGES,
    MATRIX,
    MOE,
    PRODUCTS,
    QUANTIZE,
    RING,
    ROUTE,
    ROWS,
    STREAM,
    refused,
)

_UNUSED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((MOE, ENTRIES, ROUTE, CHOOSE, RING, BYTES, FIXED, MATRIX), frozenset({GEMV, QUANTIZE})),
    **dict.fromkeys((ROWS, PRODUCTS), frozenset({QUANTIZE})),
    **dict.fromkeys((GEMV, STREAM, BF16), frozenset({MOE, QUANTIZE})),
    QUANTIZE: frozenset({MOE, GEMV}),
}
"""For each header the launchers' headers that do not include it: they are left out of the library of its faults."""

Judge = Callable[[Machine], str]


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a header: `was` becomes `becomes` wherever it stands. A judge has to say `says` of it."""

    header: str
    was: str
    becomes: str
    says: str

    def planted(self, kernels: Mapping[str, bytes]) -> BuildPlan:
        """Plan the library of the kernels with this fault."""
        text = kernels[self.header].decode()
        assert self.was in text, f"{self.header} has no {self.was}"
        changed = {**kernels, self.header: text.replace(self.was, self.becomes).encode()}
        return building.plan({name: data for name, data in changed.items() if name not in _UNUSED[self.header]})

    def inputs(self, plan: BuildPlan) -> dict[str, str]:
        """Name the inputs of the judges' answers, besides their code and the environment."""
        return {"sources and compiler": plan.digest, "fault": repr(self)}

    def judged(self, plan: BuildPlan, machine: Path, judges: Sequence[Judge] | None = None) -> list[str]:
        """Build the library and ask the judges until one says what is expected: all answers so far.

        The library goes when the judges have answered. `machine`: compiled without kernels.

        Raises:
            AssertionError: no judge says it.

        """
        said: list[str] = []
        with tempfile.TemporaryDirectory(prefix="stack-fault-") as folder:
            kernels = Machine.load(plan.build(Path(folder) / plan.name, machine))
            for judge in JUDGES[self.header] if judges is None else judges:
                said.append(refused(partial(judge, kernels)))
                if self.says in said[-1]:
                    return said
        raise AssertionError(f"no judge says {self.says!r} of {self}: {said}")
