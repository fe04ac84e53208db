# SPDX-License-Identifier: Apache-2.0
"""Run `stack ARGS` in a process of its own, forked from one that has imported the command line.

Most of a small command's time is Python's start and the imports. A fork has its own environment, folder, files and limits, and its
exit status. Tests of the start itself, of signals and of terminals start Python anew.
"""

import atexit
import functools
import importlib
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PACKAGES = ("stack.cli", "stack.carry", "stack.doctor", "stack.store", "stack.upstreaming")
"""The modules that commands import; a fork imports the rest itself."""
PATIENCE = 3600.0
"""Seconds until a step gets a line of its own: on a busy machine every step may take long, and tests read what is printed."""
_LONGEST = 1 << 20
"""Bytes of a request: arguments and environment."""


def run(
    args: Sequence[object], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, largest: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `stack ARGS` to its end without standard input; no file that it writes grows beyond `largest` bytes."""
    command = [str(arg) for arg in args]
    order = {
        "args": command,
        "env": dict(os.environ if env is None else env),
        "cwd": str(cwd or Path.cwd()),
        "largest": largest,
    }
    pipes = [os.pipe() for _ in range(2)]
    texts = ["", ""]
    server = _server()
    with open(os.devnull) as nothing:  # noqa: PTH123
        socket.send_fds(server, [json.dumps(order).encode()], [nothing.fileno(), *(write for _, write in pipes)])

    def read(number: int) -> None:
        with os.fdopen(pipes[number][0], encoding="utf-8") as file:
            texts[number] = file.read()

    for _, write in pipes:
        os.close(write)
    readers = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for reader in readers:
        reader.start()
    status = int(server.recv(99))
    for reader in readers:
        reader.join()
    return subprocess.CompletedProcess(command, status, *texts)


@functools.cache
def _server() -> socket.socket:
    """Start the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, _LONGEST)
    path = os.pathsep.join(str(Path(folder).absolute()) for folder in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(requests: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for package in PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(module.name)
    importlib.import_module("stack.cli.progress_lines")._PATIENCE = PATIENCE
    while True:
        message, files, _, _ = socket.recv_fds(requests, _LONGEST, 3)
        if not message:
            return
        child = os.fork()
        if child == 0:
            requests.close()
            _command(json.loads(message), files)
        for file in files:
            os.close(file)
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _command(order: dict[str, Any], files: list[int]) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        # Python may have opened files when it started, and would seek in them. The second names keep both open.
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(order["env"])
        time.tzset()
        sys.dont_write_bytecode = bool(order["env"].get("PYTHONDONTWRITEBYTECODE"))
        if order["largest"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest"], order["largest"]))
        sys.argv = ["stack", *order["args"]]
        importlib.import_module("stack.cli").main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
