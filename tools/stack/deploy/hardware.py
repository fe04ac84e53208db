# SPDX-License-Identifier: Apache-2.0
"""Machines that recipes are for; `validation/hardware.toml`."""

from dataclasses import dataclass

from stack.deploy.data import DATA
from stack.model import document

FILE = DATA / "hardware.toml"


@dataclass(frozen=True, slots=True)
class Profile:
    """A machine: its GPU's compute capability, memory in 10^9 bytes and its bandwidth in 10^9 bytes a second.

    `unified`: CPU and GPU share the memory. `source`: who says so. `gpu`: its GPU as the driver names it, None where nobody has seen it.
    """

    name: str
    title: str
    capability: str
    memory: float
    bandwidth: float
    unified: bool
    source: str
    gpu: str | None = None


def known() -> tuple[str, ...]:
    """The names of all machines."""
    return tuple(document.load(FILE))


def load(name: str) -> Profile:
    """The machine of that name.

    Raises:
        StackError: there is none, or the file is not as it should be.

    """
    table = document.entry(FILE, name, "hardware")
    made = Profile(
        name,
        table.text("title"),
        table.text("capability", pattern=r"\d+\.\d", meaning="a compute capability such as 12.1"),
        table.number("memory"),
        table.number("bandwidth"),
        table.flag("unified"),
        table.text("source"),
        table.optional_text("gpu"),
    )
    table.finish()
    if made.memory <= 0 or made.bandwidth <= 0:
        raise table.error("memory", "or bandwidth is not above 0", "write what the machine has")
    return made
