# SPDX-License-Identifier: Apache-2.0
"""Run pytest in the environment of the proofs, through a server process per interpreter, and read its reports."""

import contextlib
import itertools
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stack.base import die_with_parent
from stack.base.errors import StackError
from stack.proof import fork_server

LONGEST = 3600
"""Time limit of one run of a proof."""
MARK = "STACK_PROOF_TREE"
"""Variable in a proof's environment: the folder of the tree under test."""
PRELOAD = "preload.py"
"""A file beside the proofs that imports the other packages they need, once for all."""
_PRELOADING = 900.0
"""Seconds that a server may take for its imports; torch takes 5 to 60."""
_ENDING = 10
"""Seconds that a server may take to end after its standard input is closed."""
_ENDED = (0, 1)
"""Exit statuses of pytest after all tests ran: all passed, or some failed."""
_OF_THE_MACHINE = re.compile("No space left on device|MemoryError|Cannot allocate memory|out of memory", re.IGNORECASE)
"""Signs of failures that do not depend on the tree."""
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TEMP|TMP|TZ|LANG|LC_\w+|TERM|XDG_\w+|LD_LIBRARY_PATH|LD_PRELOAD|CC|CXX|CUDA_\w+"
    r"|OPENBLAS_CORETYPE|MKL_CBWR|SSL_CERT_\w+|STACK_CACHE|VALIDATION_\w+"
)
"""The variables that a proof sees of the caller's environment. Others would change a result without being part of its key."""
_INDIFFERENT = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TEMP|TMP|TERM|XDG_\w+|SSL_CERT_\w+|STACK_CACHE")
"""Those of them that only say where things are, so they are not part of a result's key."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test in one run: its name without parameters, its outcome, and its seconds."""

    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest: its tests and its output."""

    cases: tuple[Case, ...]
    output: str
    returncode: int
    broken: str = ""
    """Why the run has no result: pytest was killed, took too long, or did not start."""
    lacks: str = ""
    """A package that tests could not import and that is not the upstream's own; such tests neither passed nor failed."""
    cached: bool = False
    """Whether the result comes from an earlier run with the same inputs."""

    @property
    def passed(self) -> tuple[str, ...]:
        """The names of the tests that passed."""
        return self._ended("passed")

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the tests that failed."""
        return self._ended("failed")

    @property
    def skipped(self) -> tuple[str, ...]:
        """The names of the tests that were skipped."""
        return self._ended("skipped")

    @property
    def good(self) -> bool:
        """Whether tests ran and all of them passed."""
        return self.returncode == 0 and bool(self.passed) and not self.failed

    @property
    def settled(self) -> bool:
        """Whether the same inputs would give the same result again: every test itself passed, failed or was skipped."""
        outcomes = {case.outcome for case in self.cases}
        ended = self.returncode in _ENDED and not (self.broken or self.lacks or _OF_THE_MACHINE.search(self.output))
        return ended and bool(outcomes) and outcomes <= {"passed", "failed", "skipped"}

    @property
    def whole(self) -> bool:
        """Whether the run is settled and no test was skipped: a skipped proof proves nothing."""
        return self.settled and not self.skipped

    def decides(self, tests: Sequence[str]) -> bool:
        """Whether the same inputs would give these tests the same result again, whatever became of the run's other tests."""
        if not tests or self.broken or self.returncode not in _ENDED or _OF_THE_MACHINE.search(self.output):
            return False
        passed, failed, skipped = {*self.passed}, {*self.failed}, {*self.skipped}
        if self.lacks and not {*tests} <= passed | failed | skipped:
            return False
        return bool({*tests} & failed) or {*tests} <= passed - skipped

    def _ended(self, outcome: str) -> tuple[str, ...]:
        return tuple(case.name for case in self.cases if case.outcome == outcome)


def variables(*, of_key: bool = False) -> dict[str, str]:
    """Return the environment variables that a proof sees; with `of_key` only those that may change its result."""
    seen = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    return {name: value for name, value in seen.items() if not (of_key and _INDIFFERENT.fullmatch(name))}


class Servers:
    """The server processes of a command, one per interpreter and preload file. A context manager."""

    def __init__(self) -> None:
        self._running: dict[tuple[Path, Path | None, str], _Server] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        while self._running:
            self._running.popitem()[1].close()

    def run(
        self,
        python: Path,
        folder: Path,
        helpers: Path,
        arguments: Sequence[str],
        *,
        rootdir: Path | None = None,
        files: Sequence[str] = (),
    ) -> Run:
        """Run pytest on the files of a tree.

        Args:
            python: The interpreter.
            folder: The files of the tree, first on the module search path.
            helpers: The folder of the proof, second on that path.
            arguments: Arguments for pytest.
            rootdir: pytest's root folder; by default `helpers`.
            files: Test files of the tree. The names of their tests begin with the file: `tests/test_file.py::test_name`.

        """
        with tempfile.TemporaryDirectory(prefix="stack-proof-", ignore_cleanup_errors=True) as work:
            report, output = Path(work) / "report.xml", Path(work) / "output"
            options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", f"--rootdir={rootdir or helpers}"]
            options += [f"--confcutdir={rootdir or helpers}"]
            path = [str(folder), str(helpers)]
            (Path(work) / "here").mkdir()
            request = {
                "folder": str(Path(work) / "here"),
                "path": path,
                "environment": {"PYTHONPATH": os.pathsep.join(path), MARK: str(folder)},
                "arguments": [*options, *arguments],
                "output": str(output),
                "seconds": LONGEST,
            }
            answer = self._ask(python, helpers, request)
            printed = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
            return _read(answer, report, printed, folder, files)

    def _ask(self, python: Path, helpers: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
        preload = helpers / PRELOAD
        chosen = (python, preload, _text(preload)) if preload.is_file() else (python, None, "")
        server = self._running.get(chosen)
        if server is None:
            server = self._running[chosen] = _Server(*chosen[:2])
        try:
            return server.ask(request)
        except EOFError:
            self._running.pop(chosen).close()
            return {"broken": "the process that starts proofs has ended"}
        except BaseException:  # Ctrl-C: end the run before its folder is removed
            self._running.pop(chosen).close()
            raise


class _Server:
    def __init__(self, python: Path, preload: Path | None) -> None:
        self._numbers = itertools.count()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the server)
        script = [str(python), "-s", fork_server.__file__, *([str(preload)] if preload is not None else [])]
        self._process = subprocess.Popen(
            [sys.executable, die_with_parent.__file__, str(os.getpid()), *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env=variables(),
        )
        self._broken = ""
        self._preload = preload
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _PRELOADING)[0]:
            self._process.terminate()
            self.close()
            raise StackError(
                f"{preload or python}: did not end in {_PRELOADING:.0f} seconds", "mend it: nothing can be started from it"
            )
        try:
            self._broken = str(self._answer().get("broken", ""))
        except EOFError:
            self._printed.seek(0)
            lines = self._printed.read()[-4000:].decode(errors="replace").strip().splitlines()
            ended = f"{python} ended with status {self._process.wait()} before it ran pytest"
            self._broken = lines[-1][:200] if lines else ended
        if self._broken and preload is not None and preload.name in self._broken:
            self.close()
            raise StackError(
                f"{preload}: {self._broken.partition(': ')[2]}", "mend it: proofs are started from what it imports"
            )

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Start a run and wait for its end.

        Raises:
            EOFError: The server has ended.

        """
        if self._broken:
            return {"broken": self._broken}
        assert self._process.stdin is not None
        number = next(self._numbers)
        try:
            self._process.stdin.write(json.dumps({**request, "id": number}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as ended:
            raise EOFError from ended
        return self._answer()

    def _answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the server and all processes that it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.terminate()  # `die_with_parent` kills all its descendants
            self._process.wait()
        self._process.stdout.close()
        self._printed.close()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def combined(runs: Sequence[Run]) -> Run:
    """Return several runs, at least one, as one: it is as good as the worst of them."""
    if len(runs) == 1:
        return runs[0]
    return Run(
        cases=tuple(case for run in runs for case in run.cases),
        output="\n".join(run.output for run in runs),
        returncode=max((run.returncode for run in runs), key=abs),
        broken=next((run.broken for run in runs if run.broken), ""),
        lacks=next((run.lacks for run in runs if run.lacks), ""),
        cached=all(run.cached for run in runs),
    )


def _read(answer: Mapping[str, Any], report: Path, printed: str, folder: Path, files: Sequence[str]) -> Run:
    cases = _reported(report)
    status = int(answer.get("status", -1))
    broken = answer.get("broken") or (f"it took longer than {LONGEST // 60} minutes" if answer["late"] else "")
    return Run(
        cases=tuple(Case(_name(case, files), _outcome(case, folder), float(case.get("time") or 0)) for case in cases),
        output=printed,
        returncode=status,
        broken=broken or _broken(status, printed, report.exists()),
        lacks=next((missing for case in cases if (missing := _missing(case, folder))), ""),
    )


def _broken(status: int, printed: str, reported: bool) -> str:
    """Return why pytest itself failed; empty if it did not (exit status 3: internal error, 4: wrong usage)."""
    if status < 0:
        return f"pytest was ended by signal {-status}"
    if status in (3, 4):
        return (printed.strip().splitlines() or [f"pytest ended with {status}"])[-1][:200]
    return "" if reported else "there is no report"


def _reported(report: Path) -> list[ET.Element]:
    # Written by the pytest that was just started; a killed one leaves an incomplete file.
    with contextlib.suppress(ET.ParseError, FileNotFoundError):
        return list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314
    return []


def _name(case: ET.Element, files: Sequence[str]) -> str:
    """Return a test's name without parameters, with its classes in front if it has some, and its file if that is among `files`."""
    whole, name = f".{case.get('classname', '')}.", case.get("name", "").partition("[")[0]
    # The longest first: the module of a file in a folder ends like that of a file outside of it.
    for file in sorted(files, key=len, reverse=True):
        module = f".{file.removesuffix('.py').replace('/', '.')}."
        if module in whole:
            return "::".join([file, *filter(None, whole.rpartition(module)[2].split(".")), name])
    place = case.get("classname", "").rpartition(".")[2]
    return f"{place}::{name}" if place.startswith("Test") else name


def _outcome(case: ET.Element, folder: Path) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "lacking" if _missing(case, folder) else "failed"
    return "skipped" if "skipped" in kinds else "passed"


def _missing(case: ET.Element, folder: Path) -> str:
    """Return the package that the environment lacks for a test; a module missing from the upstream's own tree is a failure."""
    messages = " ".join(child.text or "" for child in case if child.tag in ("failure", "error"))
    names = _MISSING.findall(messages)
    return next((name for name in names if not any((folder / place).exists() for place in (name, f"{name}.py"))), "")
