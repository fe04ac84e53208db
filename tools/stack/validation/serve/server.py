# SPDX-License-Identifier: Apache-2.0
"""A vLLM server of ours: started on a free port of the loopback interface, waited for, and always ended."""

import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stack.base import bounded_http
from stack.deploy import vllm_log
from stack.validation.python_env import Packages, Process
from stack.validation.serve import parent_watchdog

NAME = "validated"
"""What the model is called by its clients."""
_IDLE = re.compile(r"Route: /|HTTP/1.1\" 200 ")
LAST = 15
"""Lines of a log that a failure shows."""


class NotServing(Exception):
    """The server did not start; the message says how it ended and of what, in its first line, then the last lines of its log."""

    def __init__(self, how: str, log: str) -> None:
        self.log = log
        """All that it has said."""
        lines = log.splitlines() or ["it said nothing"]
        first = vllm_log.read(log).error
        self.cause = first.text if first is not None else lines[-1]
        """The first error that it has told: what comes after it is mostly its consequences. Its last line where there is none."""
        super().__init__("\n".join((f"{how}: {self.cause}", *lines[-LAST:])))


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers. `log`: all that it has said (empty where it is not ours)."""

    url: str
    model: str
    log: Callable[[], str]
    started: float = 0.0
    """Seconds until it was ready."""

    def last(self) -> str:
        """The last lines of the log, without those that say only that something was asked."""
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
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[Running]:
    """A server for as long as the block runs; it is gone afterwards, and also when this process is killed.

    Args:
        packages: what has vLLM in it.
        model: the folder of the checkpoint.
        arguments: of `vllm serve`, after the model.
        environment: variables for it, beside those that keep it offline.
        work: an empty folder for its log and caches.
        longest: seconds to wait for it.
        tell: gets a line now and then.

    Raises:
        NotServing: it ended, or is not ready in time.

    """
    port = _free_port()
    said = work / "server.log"
    asked = ["serve", str(model), "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), *arguments]
    process = packages.server(asked, environment, work, [model])
    with said.open("wb") as log, kept(process, log, work) as one:
        began = time.monotonic()
        read = lambda: said.read_text(encoding="utf-8", errors="replace")  # noqa: E731
        url = f"http://127.0.0.1:{port}"
        _wait(one, url, longest, tell, read)
        yield Running(url, NAME, read, time.monotonic() - began)


@contextmanager
def kept(process: Process, output: IO[bytes] | int, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process for as long as the block runs; it and all that it started are gone afterwards, also when this process is killed.

    Args:
        process: what to start.
        output: where all that it says goes.
        folder: where it runs.

    """
    one = subprocess.Popen(
        [sys.executable, parent_watchdog.__file__, *process.command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=dict(process.environment),
        start_new_session=True,  # Ctrl-C is for us: we end it
    )
    assert one.stdin is not None
    try:
        yield one
    finally:
        one.stdin.close()
        one.wait()


def _wait(
    process: subprocess.Popen[bytes], url: str, longest: float, tell: Callable[[str], None], read: Callable[[], str]
) -> None:
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
    """Whether the server there says that it is: its front end does so with a dead engine, too."""
    try:
        with bounded_http.asked(f"{url}/health", None, 5) as answer:
            return answer.status_code == 200
    except bounded_http.BROKEN:
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
