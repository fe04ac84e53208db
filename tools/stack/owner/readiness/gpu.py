# SPDX-License-Identifier: Apache-2.0
"""Read the GPUs, their driver and their clocks from nvidia-smi."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.doctor.facts import has_nvidia_gpu
from stack.owner.readiness import programs

_IDENTITY = ("name", "compute_cap", "memory.total", "driver_version")
_CLOCKS = ("clocks.sm", "clocks.max.sm", "utilization.gpu", "power.draw", "temperature.gpu", "clocks_event_reasons.active")
"""A driver that does not know one of these names refuses the whole query, so they are asked apart from the identity."""
_FORMAT = "--format=csv,noheader,nounits"
_CUDA = re.compile(r"CUDA (?:UMD )?Version: ([0-9]{1,3}\.[0-9]{1,3})")
_MASK = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The state of a GPU at one moment; None for what the driver does not say.

    `now` and `highest` in MHz, `busy` in percent, `power` in watts, `temperature` in degrees Celsius. `reasons`: the bit mask of what
    holds the clock back.
    """

    now: float | None = None
    highest: float | None = None
    busy: float | None = None
    power: float | None = None
    temperature: float | None = None
    reasons: int = 0


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A GPU. `memory` in bytes; None if it shares the machine's memory."""

    name: str
    capability: str
    driver: str
    memory: int | None = None
    clocks: Clocks = Clocks()


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """The GPUs that the driver lists, and the CUDA that it knows.

    `problem`: what nvidia-smi says instead; `missing`: there is no nvidia-smi; `has_device`: the PCI bus has a GPU of NVIDIA.
    """

    gpus: tuple[GpuFacts, ...] = ()
    cuda: str | None = None
    problem: str = ""
    missing: bool = False
    has_device: bool = False

    @property
    def first(self) -> GpuFacts | None:
        """The first GPU."""
        return self.gpus[0] if self.gpus else None


def read(devices: Path = Path("/sys/bus/pci/devices")) -> DriverFacts:
    """Ask the driver for its GPUs, and the PCI bus (`devices`) whether there is one."""
    listed = programs.run("nvidia-smi", f"--query-gpu={','.join(_IDENTITY)}", _FORMAT)
    device = has_nvidia_gpu(devices)
    if not listed.works:
        return DriverFacts(problem=listed.problem, missing=listed.missing, has_device=device)
    states = [*clocks()]
    gpus = tuple(
        GpuFacts(name, capability, driver, memory, states[place] if place < len(states) else Clocks())
        for place, (name, capability, memory, driver) in enumerate(_identities(listed.text))
    )
    found = _CUDA.search(programs.run("nvidia-smi").text)
    return DriverFacts(gpus, found[1] if found else None, has_device=device or bool(gpus))


def clocks() -> Iterator[Clocks]:
    """Yield the state of each GPU; nothing if the driver does not tell it."""
    for line in programs.run("nvidia-smi", f"--query-gpu={','.join(_CLOCKS)}", _FORMAT).text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == len(_CLOCKS):
            now, highest, busy, power, temperature = map(_number, parts[:-1])
            yield Clocks(now, highest, busy, power, temperature, int(parts[-1], 16) if _MASK.fullmatch(parts[-1]) else 0)


def _identities(text: str) -> Iterator[tuple[str, str, int | None, str]]:
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == len(_IDENTITY) and re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", parts[1]):
            # A GB10 says [N/A]: it has no memory of its own (XuehaiPan/nvitop#208).
            yield parts[0], parts[1], int(parts[2]) * 2**20 if parts[2].isdigit() else None, parts[3]


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,7}(?:\.[0-9]{1,4})?", text) else None
