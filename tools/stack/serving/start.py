# SPDX-License-Identifier: Apache-2.0
"""Start a recipe's server, wait for its first answer, compare it with the recipe, and always end it."""

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.base.progress import Progress
from stack.deploy import vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import Mismatch, Reading
from stack.serving.memory_guard import MemoryGuard
from stack.serving.waiting import Awaited, Output, Watch, mismatches
from stack.validation.python_env import Process
from stack.validation.serve import parent_watchdog

_PAUSE = 0.25


@dataclass(frozen=True, slots=True)
class Start:
    """A start: recipe, process and folder; the server's address (None without an API) and key; seconds to wait for it.

    `guard`: ends the server when the machine has too little memory left; None lets it run.
    """

    recipe: Recipe
    process: Process
    folder: Path
    url: str | None
    key: str | None
    longest: float
    guard: MemoryGuard | None = None


@dataclass(frozen=True, slots=True)
class Up:
    """A server that has answered: its log, its differences from the recipe, and the seconds that it took.

    `model`: its name for clients; None without an API. `wait`: waits until it ends, for whatever reason, and returns its exit code.
    """

    reading: Reading
    mismatches: tuple[Mismatch, ...]
    url: str | None
    model: str | None
    seconds: float
    wait: Callable[[], int]


@contextmanager
def started(start: Start, out: Callable[[bytes], None], tell: Progress) -> Iterator[Up]:
    """Run a server for the duration of the block, after its first answer. It is ended afterwards, even if this process is killed.

    Args:
        start: the server to start.
        out: gets all of its output as it comes.
        tell: gets its progress: the step, the position, and the total.

    Raises:
        NotServing: it ended, is not ready in time, or gives no answer.

    """
    with (
        contextlib.ExitStack() as afterwards,
        parent_watchdog.kept(start.process.command, start.process.environment, subprocess.PIPE, start.folder) as process,
    ):
        assert process.stdout is not None
        if start.guard is not None:
            afterwards.enter_context(start.guard.watching(lambda: parent_watchdog.kill(process)))
        output = Output(process.stdout, out)
        afterwards.callback(output.close)
        began = time.monotonic()
        awaited = Awaited(start.recipe, start.url, start.key, start.longest, process.poll, start.guard)
        model = Watch(awaited, output, tell, began).wait()
        text = output.text()
        reading = vllm_log.read(text)
        output.forget()
        yield Up(
            reading,
            mismatches(start.recipe, reading, text),
            start.url,
            model,
            time.monotonic() - began,
            lambda: _ended(process),
        )


def _ended(process: "subprocess.Popen[bytes]") -> int:
    """Wait until a server ends; return its exit code.

    `Popen.wait` sleeps through a signal that comes after Python's last look for signals and before its system call.
    """
    while (code := process.poll()) is None:
        time.sleep(_PAUSE)
    return code
