# SPDX-License-Identifier: Apache-2.0
"""Run one job on a machine of a cluster: with a copy of the stack, in a folder of its own."""

import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from stack import __version__
from stack.base import die_with_parent
from stack.base.errors import StackError
from stack.matrix import local, log, parcel
from stack.matrix.job import Job
from stack.store import cache

_LONGEST = 8 << 20
"""Bytes of a log that are brought back, from its end."""
_LOOKED = 0.2
"""Seconds between two looks at the job."""


@dataclass(frozen=True, slots=True)
class Order:
    """A job for a machine of a cluster. `cache`: the folder of its cache; None: its user's. `version`: that of the sender's tool."""

    job: Job
    cache: str | None
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Returned:
    """What comes back: the exit code, seconds, the machine, the end of the log, and the packed files that the job left."""

    code: int
    seconds: float
    host: str
    log: bytes
    outputs: bytes


def run(order: Order, packed: bytes) -> Returned:
    """Run a job on the packed stack.

    Raises:
        StackError: This machine has another version of the tool, or the files that the job leaves are too large.

    """
    if order.version != __version__:
        raise StackError(
            f"{platform.node()} has git-carry {__version__}, not {order.version}", "install the same on all machines"
        )
    home = cache.root(Path(order.cache) if order.cache is not None else None)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stack-job-") as name, tempfile.TemporaryFile() as opened:
        root = Path(name, "stack")
        parcel.unpack(packed, root)
        log.begin(opened, order.job)
        process = subprocess.Popen(
            # A worker of Ray that ends kills its children, which would orphan theirs: the second watchdog ends them.
            [sys.executable, "-I", die_with_parent.__file__, "-", *local.command(root, home, order.job)],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                time.sleep(_LOOKED)
                log.bound(opened, process)
        finally:
            if process.poll() is None:
                log.end(process)
        text, outputs = log.tail(opened, _LONGEST), parcel.outputs(root, order.job)
        return Returned(process.returncode, time.monotonic() - began, platform.node(), text, outputs)
