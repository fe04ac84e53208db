# SPDX-License-Identifier: Apache-2.0
"""Run a list of jobs with an engine, and keep each result as soon as it is there."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base import files
from stack.base.progress import Progress, silent
from stack.matrix import inputs, kept
from stack.matrix.ended import Ended, Engine, State
from stack.matrix.job import Job
from stack.model.stack import Stack
from stack.store import cache


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a list: the stack as each lane sees it, the cache, and whether kept results are ignored."""

    stacks: Mapping[str | None, Stack]
    home: Path
    again: bool = False
    tell: Progress = silent

    def stack(self, job: Job) -> Stack:
        """Return the stack that a job is of."""
        return self.stacks[job.lane]

    def jobs(self, jobs: Sequence[Job], engine: Engine) -> Iterator[Ended]:
        """Yield the jobs with kept results, then run the others; keep each one that passes.

        A result is kept only if nothing that it depends on changed during the run.

        Raises:
            StackError: The engine cannot run.

        """
        shelves = {lane: kept.Shelf(self.home, stack) for lane, stack in self.stacks.items()}
        keys = {job.name: inputs.key(self.stack(job), job) for job in jobs}
        left = []
        for job in jobs:
            found = None if self.again else shelves[job.lane].get(keys[job.name])
            if found is None:
                left.append(shelves[job.lane].timed(job))
            else:
                yield Ended(job, State.KEPT, found.seconds, found.host, 0)
        for ended in engine(left, self.tell) if left else ():
            job = ended.job
            if ended.state is State.PASSED and inputs.key(self.stack(job), job) == keys[job.name]:
                shelves[job.lane].put(keys[job.name], job, ended.seconds, ended.host)
            yield ended


@contextlib.contextmanager
def alone(root: Path, waiting: Callable[[], None]) -> Iterator[int]:
    """Hold the lock of the runs of a stack; yield its descriptor.

    The processes of a killed run may hold it for some seconds more. `waiting` is called once if another process holds it.

    Raises:
        StackError: The lock file cannot be made, or its folder is a link.

    """
    with files.opened(root) as top, top.below(".stack", "matrix", create=True):
        pass  # a link in a checkout would have the lock file made elsewhere
    with cache.lock(root / ".stack/matrix/run", waiting) as held:
        yield held
