# SPDX-License-Identifier: Apache-2.0
"""How a job ended, and what an engine is: it runs jobs and yields how each one ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stack.base.progress import Progress
from stack.base.text import last_line, printable, shortened
from stack.matrix.job import Job

_LONGEST = 200
"""Characters of a reason."""


class State(StrEnum):
    """The outcome of a job."""

    PASSED = "passed"
    KEPT = "kept"
    FAILED = "failed"
    LOST = "lost"
    NOT_HERE = "not here"


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job. `host` is the machine that ran it, `code` its exit code, `why` the reason if it has not passed."""

    job: Job
    state: State
    seconds: float = 0.0
    host: str = ""
    code: int | None = None
    why: str = ""

    @property
    def good(self) -> bool:
        """Whether the job has a result that counts."""
        return self.state in (State.PASSED, State.KEPT)

    @property
    def bad(self) -> bool:
        """Whether the job failed, or no machine could finish it."""
        return self.state in (State.FAILED, State.LOST)


class Engine(Protocol):
    """Runs jobs."""

    def __call__(self, jobs: Sequence[Job], tell: Progress, /) -> Iterator[Ended]:
        """Run jobs; yield each one as it ends."""


def of_process(job: Job, code: int, seconds: float, host: str, log: bytes) -> Ended:
    """Judge a job by its exit code; the last line of `log`, the end of its log, is the reason of a failure."""
    if code == 0:
        return Ended(job, State.PASSED, seconds, host, 0)
    said = printable(last_line(log.decode("utf-8", "replace")))
    return Ended(job, State.FAILED, seconds, host, code, shortened(f"exit code {code}: {said}", _LONGEST))
