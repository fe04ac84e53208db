# SPDX-License-Identifier: Apache-2.0
"""All facts about a machine that a server's start depends on, each read once."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from stack.base.progress import Progress, silent
from stack.deploy import available_memory
from stack.deploy.available_memory import Memory
from stack.doctor import kernel_log
from stack.doctor.finding import Found, Severity
from stack.doctor.knowledge import load
from stack.doctor.knowledge.rule import of_capability
from stack.owner.readiness import engine, gpu, places, system
from stack.owner.readiness.engine import EngineFacts
from stack.owner.readiness.gpu import DriverFacts
from stack.owner.readiness.need import Need
from stack.owner.readiness.places import DiskFacts, PortFacts
from stack.owner.readiness.system import SystemFacts

__all__ = ["HERE", "MachineFacts", "gather"]

HERE = system.Sources()
"""Where this machine is read."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The facts.

    `faults`: known faults of the last day in the kernel's log, as far as this user may read it. `own`: the port of the server of
    `spark-stack up`, if it runs here: it holds its memory and its port. `has_image`: the image is here.
    """

    driver: DriverFacts
    engine: EngineFacts
    memory: Memory
    model_disk: DiskFacts | None
    image_disk: DiskFacts | None
    port: PortFacts
    system: SystemFacts
    faults: tuple[Found, ...] = ()
    own: int | None = None
    has_image: bool = False

    @property
    def is_unified(self) -> bool:
        """Whether CPU and GPU share the memory."""
        first = self.driver.first
        return first is not None and first.memory is None


def gather(
    need: Need, engine_name: str | None = None, image: str | None = None, *, own: int | None = None, tell: Progress = silent
) -> MachineFacts:
    """Read the facts about this machine.

    Args:
        need: what is to be served.
        engine_name: the container engine to ask; by default the first that is installed.
        image: an image to start a container of, which lists its GPUs; by default none is started.
        own: the port of the server of `spark-stack up`, if it runs here.
        tell: gets each step.

    Raises:
        StackError: the kernel does not say how much memory there is.

    """
    tell("asking the driver")
    driver = gpu.read(HERE.sys / "bus/pci/devices")
    tell("asking the container engine")
    found = engine.read(engine_name, HERE.devices)
    if image is not None and found.name and not found.problem:
        tell("starting a container that lists its GPUs")
        found = engine.tried(found, image)
    tell("reading memory, disk, port and firmware")
    storage = found.storage
    return MachineFacts(
        driver=driver,
        engine=found,
        memory=available_memory.read(
            available_memory.Sources(HERE.proc, HERE.sys / "fs/cgroup", "nvidia-smi" if shutil.which("nvidia-smi") else None)
        ),
        model_disk=places.of_model(places.model_cache(), need.repository) if need.repository is not None else None,
        image_disk=places.disk(storage) if storage is not None else None,
        port=places.port(need.port, HERE.proc),
        system=system.read(HERE),
        faults=tuple(_faults(driver)),
        own=own,
        has_image=own is not None,
    )


def _faults(driver: DriverFacts) -> Iterator[Found]:
    """Yield the known faults in the kernel's log; on DGX OS only an administrator may read it, so a refusal is not a fault."""
    first = driver.first
    names = of_capability(first.capability, unified=first.memory is None) if first is not None else frozenset[str]()
    for finding in kernel_log.look(load.load(None), names):
        if finding.severity in (Severity.WRONG, Severity.NOTE):
            yield finding.found
