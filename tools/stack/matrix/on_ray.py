# SPDX-License-Identifier: Apache-2.0
"""Run jobs on a Ray cluster, each as a task with its resources. Ray schedules and repeats them."""

import contextlib
import importlib
import math
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import counted, last_line, printable, shortened
from stack.matrix import ended, log, on_node, parcel
from stack.matrix.ended import Ended, State
from stack.matrix.job import Job

if TYPE_CHECKING:
    from types import ModuleType

RETRIES = 2
"""How often a job is repeated whose machine died."""
_SHARE = 0.001
"""How much of a label's resource a job takes: a label says what a machine is, not how many jobs it takes."""
_LOOKED = 1.0
"""Seconds between two looks at the machines."""
_PATIENCE = 30.0
"""Seconds for which a job may have no machine that fits; one that restarts needs some."""
_ADDRESS = re.compile(r"(ray://)?(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})")
_REACHED = 10.0
"""Seconds that the cluster may take to accept a connection."""
_REASON = 200
"""Characters of a reason."""
_HOST = 80
"""Characters of a machine's name."""


@dataclass(slots=True)
class Ray:
    """The engine of a Ray cluster.

    `cache` is the folder of the cache on its machines; None: that of the user there. `retries`: see `RETRIES`.
    """

    root: Path
    address: str
    cache: str | None = None
    retries: int = RETRIES
    patience: float = _PATIENCE
    _hopeless: dict[Any, float] = field(default_factory=dict)

    def __call__(self, jobs: Sequence[Job], tell: Progress) -> Iterator[Ended]:
        """Run jobs where a machine of the cluster has what they need; yield each one as it ends.

        Raises:
            StackError: Ray is not installed, no cluster answers, or the stack's files are too large.

        """
        ray = _ray()
        packed = parcel.pack(self.root)
        with _connected(ray, self.address):
            machines = _machines(ray)
            away = [(job, _lacks(job, machines)) for job in jobs]
            yield from (Ended(job, State.NOT_HERE, why=why) for job, why in away if why)
            todo = sorted((job for job, why in away if not why), key=lambda job: -(job.needs.minutes or 0.0))
            stack = ray.put(packed)
            yield from self._collect(ray, {self._submit(ray, job, stack): job for job in todo}, tell)

    def _submit(self, ray: "ModuleType", job: Job, stack: Any) -> Any:
        task = ray.remote(on_node.run).options(
            name=job.name,
            num_cpus=job.needs.cpus,
            num_gpus=job.needs.gpus,
            memory=job.needs.memory * 10**9,
            resources=dict.fromkeys(job.needs.labels, _SHARE),
            max_retries=self.retries,
        )
        return task.remote(on_node.Order(job, self.cache), stack)

    def _collect(self, ray: "ModuleType", waiting: dict[Any, Job], tell: Progress) -> Iterator[Ended]:
        total = len(waiting)
        while waiting:
            tell("running on the cluster", total - len(waiting), total)
            ready, _ = ray.wait([*waiting], num_returns=1, timeout=_LOOKED)
            for task in ready:
                yield self._ended(ray, task, waiting.pop(task))
            for task, why in self._without_machine(ray, waiting):
                ray.cancel(task, force=True)
                yield Ended(waiting.pop(task), State.LOST, why=why)

    def _ended(self, ray: "ModuleType", task: Any, job: Job) -> Ended:
        """Bring back what a task returns: its log and its files."""
        try:
            back: on_node.Returned = ray.get(task)
        except ray.exceptions.RayTaskError as failed:
            return Ended(job, State.FAILED, why=_said(failed))
        except ray.exceptions.RayError as failed:
            return Ended(
                job, State.LOST, why=f"its machine died, also in {counted(self.retries, 'repetition')}: {_said(failed)}"
            )
        try:
            _check(back)
            log.write(self.root, job, back.log)
            parcel.bring(back.outputs, self.root, job)
        except StackError as failed:
            return Ended(job, State.FAILED, why=shortened(failed.problem, _REASON))
        return ended.of_process(job, back.code, back.seconds, shortened(printable(back.host), _HOST), back.log)

    def _without_machine(self, ray: "ModuleType", waiting: Mapping[Any, Job]) -> list[tuple[Any, str]]:
        """Return the tasks for which no machine has been there for long: the last one that fits has died."""
        machines, now = _machines(ray), time.monotonic()
        lacking = {task: why for task, job in waiting.items() if (why := _lacks(job, machines))}
        self._hopeless = {task: self._hopeless.get(task, now) for task in lacking}
        return [(task, lacking[task]) for task, since in self._hopeless.items() if now - since > self.patience]


def _ray() -> "ModuleType":
    try:
        return importlib.import_module("ray")  # an extra, and it takes half a second
    except ImportError as missing:
        raise StackError("--ray needs the package ray", "pip install 'git-carry[ray]'") from missing


@contextlib.contextmanager
def _connected(ray: "ModuleType", address: str) -> Iterator[None]:
    """Connect with a cluster; at the end, what still runs for this process is ended there."""
    _reach(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, OSError) as failed:
        reason = shortened(printable(" ".join(str(failed).split())), _REASON)
        raise StackError(f"no Ray cluster answers at {address} ({reason})", "start one: ray start --head") from failed
    # It prints what it hears of dying machines to standard output, from a thread of its own; how each job ended says that, too.
    with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing):  # noqa: PTH123
        try:
            yield
        finally:
            ray.shutdown()


def _reach(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself tries for minutes."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 1 << 16:
        raise StackError(
            f"--ray {printable(address)!r:.100} is not an address",
            "write HOST:PORT, or ray://HOST:PORT for a server of clients",
        )
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), timeout=_REACHED).close()
    except OSError as failed:
        raise StackError(
            f"no Ray cluster answers at {address} ({failed.strerror or failed})", "start one: ray start --head"
        ) from failed


def _machines(ray: "ModuleType") -> list[Mapping[str, float]]:
    """Return the resources of each machine that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _lacks(job: Job, machines: Sequence[Mapping[str, float]]) -> str:
    """Say what a job needs that no machine has; empty if one has it all."""
    wanted: dict[str, float] = {"CPU": job.needs.cpus, "GPU": job.needs.gpus, "memory": job.needs.memory * 10**9}
    wanted |= dict.fromkeys(job.needs.labels, _SHARE)
    if any(all(machine.get(name, 0) >= much for name, much in wanted.items()) for machine in machines):
        return ""
    words = [*job.needs.labels, counted(job.needs.cpus, "CPU"), f"{job.needs.memory} GB"]
    return f"no machine of the cluster has {', '.join(words)}"


def _check(back: on_node.Returned) -> None:
    """Refuse what is no result of this program.

    Raises:
        StackError: It has another form.

    """
    kinds = {"code": int, "seconds": float, "host": str, "log": bytes, "outputs": bytes}
    fits = isinstance(back, on_node.Returned) and all(type(getattr(back, name)) is kind for name, kind in kinds.items())
    if not fits or not math.isfinite(back.seconds) or len(back.log) > log.LARGEST:
        raise StackError("its machine returned something other than a result", "install the same git-carry there")


def _said(failed: Exception) -> str:
    return shortened(printable(last_line(str(failed))), _REASON)
