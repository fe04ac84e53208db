# SPDX-License-Identifier: Apache-2.0
"""Run pytest in forks of a process that has imported what all runs need: `python fork_server.py [PRELOAD]`.

Importing torch and its dependencies takes longer than most proofs. This process imports pytest, runs the file PRELOAD, and forks
for each request. PRELOAD imports nothing of an upstream, since these modules differ from tree to tree. A fork shares nothing with
other forks: environment variables, threads, imported modules and open files are its own. When it ends, all processes that it
started are killed.

Requests and answers are JSON, one in each line of standard input and output. A request has `id`, `folder` (where it runs), `path`
(folders where Python looks first), `environment` (variables to add), `arguments` (of pytest), `output` (a file), and `seconds` (the
time limit). An answer has `id`, `status` (the exit status, or a signal's number, negative) and `late` (killed at the time limit).
The first answer is `{"ready": true}` or `{"broken": REASON}`. The end of standard input ends everything.

It runs in the environment of the proofs without importing `stack`.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

_PR_SET_CHILD_SUBREAPER = 36
_REWRITTEN_LATE = "ignore:Module already imported so cannot be rewritten"
"""pytest warns of plugins that are already imported: it cannot rewrite their assertions, which only their own tests need."""


def main() -> int:
    """Serve until standard input ends; in a fork, run pytest and return its exit status."""
    del sys.path[0]  # this script's own folder
    # Orphans of a fork become children of this process, in whatever session they are, so it can kill them. Linux only.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches this process, too, but its parent ends it
    try:
        import pytest  # noqa: F401, PLC0415
    except ImportError as missing:
        _answer(answers, broken=str(missing))
        return 1
    _import_plugins()
    try:
        for preload in sys.argv[1:]:
            runpy.run_path(preload)
    except BaseException as failed:
        _answer(answers, broken=f"{Path(preload).name}: {type(failed).__name__}: {failed}")
        return 1
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page that it touches
    _answer(answers, ready=True)
    request = _Server(answers).serve()
    return 0 if request is None else _pytest(request)


def _import_plugins() -> None:
    """Import pytest's plugins, which otherwise every run would import: half of the time of a small run."""
    config = importlib.import_module("_pytest.config")
    names = [
        f"_pytest.{name}" for name in getattr(config, "default_plugins", ())
    ]  # a private name: without it, runs take longer
    if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ:
        installed = [plugin.module for plugin in metadata.entry_points(group="pytest11")]
        # Hypothesis's plugin imports the whole package at the end of every run.
        names += [*installed, *(["hypothesis"] if "_hypothesis_pytestplugin" in installed else [])]
    for name in names:
        with contextlib.suppress(Exception):  # pytest itself reports it
            importlib.import_module(name)


def _answer(answers: BinaryIO, **values: object) -> None:
    answers.write(json.dumps(values).encode() + b"\n")


class _Server:
    """Forks for requests, and answers when forks end."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._running: dict[int, tuple[int, float]] = {}
        self._late: set[int] = set()

    def serve(self) -> dict[str, Any] | None:
        """Serve until standard input ends, then return None; in a fork, return its request."""
        wakes, woken = os.pipe()
        for end in (wakes, woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        unread = b""
        while True:
            readable = select.select([0, wakes], [], [], self._patience())[0]
            if wakes in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakes, 4096)
            if 0 in readable:
                data = os.read(0, 1 << 20)
                if not data:
                    self._kill_all()
                    return None
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    request: dict[str, Any] = json.loads(line)
                    if self._fork(request):
                        signal.set_wakeup_fd(-1)
                        os.close(wakes)
                        os.close(woken)
                        self._answers.close()
                        return request
            self._reap()

    def _fork(self, request: dict[str, Any]) -> bool:
        """Fork; return whether this is the child."""
        child = os.fork()
        if child:
            self._running[child] = (request["id"], time.monotonic() + request["seconds"])
        return child == 0

    def _patience(self) -> float | None:
        waited_for = [until for child, (_, until) in self._running.items() if child not in self._late]
        return max(0.0, min(waited_for) - time.monotonic()) if waited_for else None

    def _reap(self) -> None:
        for child, (_, until) in self._running.items():
            if until <= time.monotonic() and child not in self._late:
                self._late.add(child)
                _kill(child)
        for child, (number, _) in list(self._running.items()):
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                _kill(child)  # kills its process group; the process id stays reserved until waitpid
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                del self._running[child]
                self._kill_orphans()
                _answer(self._answers, id=number, status=status, late=child in self._late)
                self._late.discard(child)

    def _kill_orphans(self) -> None:
        while orphans := [child for child in _children() if child not in self._running]:
            for orphan in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, 0)

    def _kill_all(self) -> None:
        for child in self._running:
            _kill(child)


def _children() -> list[int]:
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            # /proc/PID/stat: the name before the last parenthesis may hold anything; after it stand the state and the parent.
            if int(file.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(file.parent.name))
    return children


def _kill(child: int) -> None:
    """Kill a fork and its process group, which may not exist yet."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)


class _Frozen:
    """A plugin that excludes the imported modules' objects from garbage collections: some test suites force one per test."""

    @staticmethod
    def pytest_collection_finish() -> None:
        gc.collect()
        gc.freeze()


def _pytest(request: dict[str, Any]) -> int:
    """Run pytest in this process as `python -m pytest` would in a new one."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number, source in enumerate((nothing, output, output)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    sys.path[:0] = [request["folder"], *request["path"]]
    sys.argv = ["pytest", *request["arguments"]]
    import pytest  # noqa: PLC0415

    return int(pytest.main(["-W", _REWRITTEN_LATE, *request["arguments"]], plugins=[_Frozen()]))


if __name__ == "__main__":
    sys.exit(main())
