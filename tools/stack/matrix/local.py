# SPDX-License-Identifier: Apache-2.0
"""Run jobs on this machine, several at once, each as a process with a log file."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from stack.base import die_with_parent
from stack.base.progress import Progress
from stack.matrix import ended, log
from stack.matrix.ended import Ended, State
from stack.matrix.job import Job
from stack.validation import machine

_LOOKED = 0.05
"""Seconds between two looks at the running jobs."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What this machine has for jobs: how many at once, memory in 10^9 bytes, the labels of its GPUs, and how many there are."""

    jobs: int
    memory: float
    labels: frozenset[str] = frozenset()
    gpus: int = 0

    def lacks(self, job: Job) -> str:
        """Say what a job needs that this machine does not have; empty if nothing."""
        missing = [label for label in job.needs.labels if label not in self.labels]
        return f"this machine has no {', '.join(missing)}" if missing else ""


def here(jobs: int | None = None) -> Capacity:
    """Return what this machine has. `jobs`: how many at once; default: one for each processor."""
    found = machine.here()
    labels = frozenset(f"sm{gpu.capability.replace('.', '')}" for gpu in found.gpus)
    return Capacity(jobs or found.cores, found.memory / 1e9, labels, len(found.gpus))


@dataclass(slots=True)
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    began: float
    gpus: tuple[int, ...] = ()


@dataclass(slots=True)
class Local:
    """The engine of this machine.

    `held` is the descriptor of a lock that the jobs' processes hold, too: if this process is killed, it is free when they have ended.
    """

    root: Path
    cache: Path
    capacity: Capacity
    held: int
    _now: list[_Running] = field(default_factory=list)

    def __call__(self, jobs: Sequence[Job], tell: Progress) -> Iterator[Ended]:
        """Run jobs as far as processors, memory and GPUs allow, the longest first; yield each one as it ends.

        Raises:
            OSError: A log cannot be written, or no process can be started.

        """
        away = [job for job in jobs if self.capacity.lacks(job)]
        yield from (Ended(job, State.NOT_HERE, why=self.capacity.lacks(job)) for job in away)
        waiting = sorted((job for job in jobs if job not in away), key=lambda job: -(job.needs.minutes or 0.0))
        total, done = len(waiting), 0
        try:
            while waiting or self._now:
                self._start_all(waiting)
                tell(", ".join(each.job.name for each in self._now), done, total)
                for finished in self._finished():
                    done += 1
                    yield finished
        finally:
            self._stop()

    def _start_all(self, waiting: list[Job]) -> None:
        """Start the jobs for which there is room, and take them out of the list."""
        for job in tuple(waiting):
            if self._fits(job):
                waiting.remove(job)
                self._now.append(self._start(job))

    def _fits(self, job: Job) -> bool:
        """Return whether a job may start beside the running ones; the only one always may."""
        if not self._now:
            return True
        memory = sum(each.job.needs.memory for each in self._now) + job.needs.memory
        return (
            len(self._now) < self.capacity.jobs and memory <= self.capacity.memory and len(self._free_gpus()) >= job.needs.gpus
        )

    def _free_gpus(self) -> list[int]:
        taken = {gpu for each in self._now for gpu in each.gpus}
        return [gpu for gpu in range(self.capacity.gpus) if gpu not in taken]

    def _start(self, job: Job) -> _Running:
        opened = log.create(self.root, job)
        gpus = tuple(self._free_gpus()[: job.needs.gpus])
        process = subprocess.Popen(
            command(self.root, self.cache, job),
            cwd=self.root,
            env={**os.environ, **_gpu_variables(gpus)},
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
            pass_fds=(self.held,),
        )
        return _Running(job, process, opened, time.monotonic(), gpus)

    def _finished(self) -> Iterator[Ended]:
        """Wait for a while; yield the jobs that have ended."""
        time.sleep(_LOOKED)
        for each in self._now:
            if each.process.poll() is None:
                log.bound(each.log, each.process)
        for each in [each for each in self._now if each.process.poll() is not None]:
            self._now.remove(each)
            with each.log as opened:
                text = log.tail(opened)
            seconds = time.monotonic() - each.began
            yield ended.of_process(each.job, each.process.returncode, seconds, platform.node(), text)

    def _stop(self) -> None:
        """End the running jobs: this process was interrupted, or whoever asked for the jobs has gone."""
        for each in self._now:
            each.process.terminate()
        for each in self._now:
            log.end(each.process)
            each.log.close()
        self._now.clear()


def command(root: Path, cache: Path, job: Job) -> list[str]:
    """Return the command line of a job's process, which ends with the one that starts it, however that ends."""
    watchdog = [sys.executable, "-I", die_with_parent.__file__, "-"]
    return [*watchdog, sys.executable, "-m", "stack", "--root", str(root), "--cache", str(cache), *job.arguments]


def _gpu_variables(gpus: Sequence[int]) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}
