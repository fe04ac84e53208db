# SPDX-License-Identifier: Apache-2.0
"""Machines for which there are recipes; `validation/hardware.toml`."""

from dataclasses import dataclass

from stack.deploy.data import DATA
from stack.model import document
from stack.model.document import Table

FILE = DATA / "hardware.toml"


@dataclass(frozen=True, slots=True)
class Precaution:
    """Something to do before a server is started: what, why, and who found that."""

    do: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """A machine: its GPU's compute capability, memory in 10^9 bytes, and memory bandwidth in 10^9 bytes per second.

    `unified`: CPU and GPU share the memory. `source`: where the bandwidth comes from. `gpu`: the driver's name of the GPU, None if
    unknown. `sheet`: the data sheet's bandwidth, if `bandwidth` is a measured one. `before`: what to do before a start.
    """

    name: str
    title: str
    capability: str
    memory: float
    bandwidth: float
    unified: bool
    source: str
    gpu: str | None = None
    sheet: float | None = None
    before: tuple[Precaution, ...] = ()


def known() -> tuple[str, ...]:
    """Name all machines."""
    return tuple(document.load(FILE))


def load(name: str) -> Profile:
    """Load the machine of that name.

    Raises:
        StackError: there is no such machine, or the file is invalid.

    """
    table = document.entry(FILE, name, "hardware")
    made = Profile(
        name,
        table.text("title"),
        table.text("capability", pattern=r"[0-9]+\.[0-9]", meaning="a compute capability such as 12.1"),
        table.number("memory"),
        table.number("bandwidth"),
        table.flag("unified"),
        table.text("source"),
        table.optional_text("gpu"),
        table.number("sheet") if table.given("sheet") else None,
        tuple(map(_precaution, table.tables("before"))),
    )
    table.finish()
    if made.memory <= 0 or made.bandwidth <= 0:
        raise table.error("memory", "or bandwidth is not above 0", "write the machine's numbers")
    if made.sheet is not None and made.sheet < made.bandwidth:
        raise table.error("sheet", "is below the measured bandwidth", "write the data sheet's number")
    return made


def _precaution(table: Table) -> Precaution:
    made = Precaution(table.text("do"), table.text("why"), table.text("source"))
    table.finish()
    return made
