# SPDX-License-Identifier: Apache-2.0
"""Start a vLLM server on a free port of the loopback interface, wait until it is ready, and always end it."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.base import addresses, bounded_http
from stack.base.progress import Progress, silent
from stack.deploy import vllm_log
from stack.validation.python_env import Packages
from stack.validation.serve import parent_watchdog

NAME = "validated"
"""Name of the model for clients."""
_IDLE = re.compile(r"Route: /|HTTP/1.1\" 200 ")
LAST = 15
"""Lines of the log that an error shows."""


class NotServing(Exception):
    """Raised when a server did not start. The first line says how it ended and why, then come the last lines of its log.

    `explained`: `how` says why, whatever the log says.
    """

    def __init__(self, how: str, log: str, *, explained: bool = False) -> None:
        self.log = log
        """All of its output."""
        lines = log.splitlines() or ["it printed nothing"]
        first = vllm_log.read(log).error
        self.cause = first.text if first is not None else lines[-1]
        """The first error in the log, since later ones are mostly its consequences; without one, the last line."""
        super().__init__("\n".join((how if explained else f"{how}: {self.cause}", *lines[-LAST:])))


@dataclass(frozen=True, slots=True)
class Running:
    """A ready server. `log` reads all of its output; it is empty for a server that is not ours."""

    url: str
    model: str
    log: Callable[[], str]
    started: float = 0.0
    """Seconds until it was ready."""

    def last(self) -> str:
        """Return the last lines of the log, without those about successful requests."""
        lines = [line for line in self.log().splitlines() if not _IDLE.search(line)]
        return "\n".join(lines[-LAST:])


@contextmanager
def serving(
    packages: Packages,
    model: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    work: Path,
    longest: float,
    tell: Progress = silent,
) -> Iterator[Running]:
    """Run a server for the duration of the block. It is ended afterwards, even if this process is killed.

    Args:
        packages: the environment with vLLM.
        model: the folder of the checkpoint.
        arguments: of `vllm serve`, after the model.
        environment: variables in addition to those that keep it offline.
        work: an empty folder for its log and caches.
        longest: seconds to wait until it is ready.
        tell: gets a line of progress now and then.

    Raises:
        NotServing: it ended, or is not ready in time.

    """
    port = addresses.free_port()
    file = work / "server.log"
    command = ["serve", str(model), "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), *arguments]
    process = packages.server(command, environment, work, [model])
    with file.open("wb") as log, parent_watchdog.kept(process.command, process.environment, log, work) as watchdog:
        began = time.monotonic()
        read = lambda: file.read_text(encoding="utf-8", errors="replace")  # noqa: E731
        url = f"http://127.0.0.1:{port}"
        _wait(watchdog, url, longest, tell, read)
        yield Running(url, NAME, read, time.monotonic() - began)


def _wait(process: subprocess.Popen[bytes], url: str, longest: float, tell: Progress, read: Callable[[], str]) -> None:
    began = time.monotonic()
    while not healthy(url):
        waited = time.monotonic() - began
        if process.poll() is not None:
            raise NotServing(f"the server ended with {process.returncode} after {waited:.0f} s", read())
        if waited > longest:
            raise NotServing(f"the server is not ready after {longest:.0f} s", read())
        tell(f"starting the server, {waited:.0f} s")
        time.sleep(0.5)


def healthy(url: str) -> bool:
    """Return whether the server reports that it is healthy; a front end does so even if its engine is dead."""
    try:
        with bounded_http.asked(f"{url}/health", None, 5) as answer:
            return answer.status_code == 200
    except bounded_http.BROKEN:
        return False
