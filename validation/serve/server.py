# SPDX-License-Identifier: Apache-2.0
"""A vLLM server of ours: started on a free port of the loopback interface, waited for, and always ended."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from validation.serve import keeper

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
NAME = "validated"
"""What the model is called by its clients."""
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")
"""What a server takes over from our own environment: settings of vLLM that a user has must not decide."""
_ERROR = re.compile(r"(?:^|ERROR .* )[A-Z]\w*Error: ")
"""The line of a traceback that names the error."""
_IDLE = re.compile(r"Route: /|HTTP/1.1\" 200 ")
LAST = 15
"""Lines of a log that a failure shows."""


class NotServing(Exception):
    """The server did not start; the message says how it ended."""

    @property
    def cause(self) -> str:
        """The first error that it has told: what comes after it is mostly its consequences. Its last line where there is none."""
        lines = str(self).splitlines()
        return next((line for line in lines if _ERROR.search(line)), lines[-1])


@dataclass(frozen=True, slots=True)
class Installed:
    """Where a server's packages are: an interpreter, and folders before its own."""

    python: Path
    folders: tuple[Path, ...] = ()

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process there."""
        kept = {name: value for name, value in os.environ.items() if name in _KEPT}
        return kept | OFFLINE | {"PYTHONPATH": os.pathsep.join(map(str, self.folders))} | dict(extra)


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
    installed: Installed,
    model: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    work: Path,
    longest: float,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[Running]:
    """A server for as long as the block runs; it is gone afterwards, and also when this process is killed.

    Args:
        installed: where vLLM is.
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
    # A patched build with the caches of another one loads what was compiled for that.
    own = {"VLLM_CACHE_ROOT": str(work / "cache"), "HF_HOME": str(work / "hf"), "TMPDIR": str(work)}
    vllm = ["-m", "vllm.entrypoints.cli.main", "serve", str(model), "--served-model-name", NAME]
    command = [str(installed.python), *vllm, "--host", "127.0.0.1", "--port", str(port), *arguments]
    with said.open("wb") as log:
        kept = subprocess.Popen(
            [sys.executable, keeper.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=installed.environment(own | dict(environment)),
            start_new_session=True,  # Ctrl-C is for us: we end it
        )
    assert kept.stdin is not None
    try:
        began = time.monotonic()
        read = lambda: said.read_text(encoding="utf-8", errors="replace")  # noqa: E731
        url = f"http://127.0.0.1:{port}"
        _wait(kept, url, longest, tell, read)
        yield Running(url, NAME, read, time.monotonic() - began)
    finally:
        kept.stdin.close()
        kept.wait()


def _wait(
    kept: subprocess.Popen[bytes], url: str, longest: float, tell: Callable[[str], None], read: Callable[[], str]
) -> None:
    began = time.monotonic()
    while not _healthy(url):
        waited = time.monotonic() - began
        if kept.poll() is not None:
            raise NotServing(f"the server ended with {kept.returncode} after {waited:.0f} s:\n{_telling(read())}")
        if waited > longest:
            raise NotServing(f"the server is not ready after {longest:.0f} s:\n{_telling(read())}")
        tell(f"starting the server, {waited:.0f} s")
        time.sleep(0.5)


def _telling(log: str) -> str:
    """The last lines of a log, with the first error before them: what follows it is mostly its consequences."""
    lines = log.splitlines()
    errors = [line for line in lines[:-LAST] if _ERROR.search(line)][:1]
    return "\n".join((*errors, *lines[-LAST:]))


def _healthy(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
