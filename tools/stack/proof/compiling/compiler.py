# SPDX-License-Identifier: Apache-2.0
"""One unit through the compiler: what it depends on, whether it compiles, how long that takes and how much memory."""

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.proof.compiling import toolkit as toolkits
from stack.proof.compiling.listing import Unit
from stack.proof.compiling.toolkit import Toolkit

_MISSING = re.compile(r"fatal error: (\S+): No such file or directory")
_ERROR = re.compile(r"\b(?:error|fatal)(?: #?[\w-]+)?\s*:")
"""In the words of nvcc (`error:`, `error #349:`, `nvcc error   :`), ptxas (`ptxas fatal   :`) and gcc (`fatal error:`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a compiler: `error` is its own first one, empty where it compiled; `peak` is in bytes, of its largest process."""

    error: str
    seconds: float
    peak: int


def compile_unit(unit: Unit, source: Path, built: Path, toolkit: Toolkit, tree: Path) -> Run:
    """Compile a source with a unit's flags into an object; through ccache where that is on PATH.

    `source` is the unit's, or what is left of it with one instantiation.
    """
    ccache = shutil.which("ccache")
    arguments = [*unit.flags, *_beside(unit, source), "-c", str(source), "-o", str(built)]
    return _run([*([ccache] if ccache else []), *_program(unit, toolkit), *arguments], toolkit, tree)


def dependencies(unit: Unit, toolkit: Toolkit, tree: Path) -> tuple[frozenset[Path], str]:
    """The files that a unit is compiled from, by its preprocessor; and its first error, with what was found empty."""
    with tempfile.TemporaryDirectory(prefix="stack-depends-") as work:
        rule = Path(work) / "rule.d"
        run = _run([*_program(unit, toolkit), *unit.flags, "-M", str(unit.source), "-o", str(rule)], toolkit, tree)
        if run.error:
            return frozenset(), run.error
        names = rule.read_text().replace("\\\n", " ").partition(" : ")[2] or rule.read_text().partition(":")[2]
        return frozenset(Path(os.path.normpath(name)) for name in names.split()), ""


def _program(unit: Unit, toolkit: Toolkit) -> list[str]:
    return [str(toolkit.nvcc)] if unit.is_cuda else [os.environ.get("CXX", "g++")]


def _beside(unit: Unit, source: Path) -> list[str]:
    """A cut source stands elsewhere; what it includes stands beside the whole one."""
    return [] if source == unit.source else [f"-I{unit.source.parent}"]


def _run(command: Sequence[str], toolkit: Toolkit, tree: Path) -> Run:
    """Run a compiler; a library's header that is missing is brought, and it runs again."""
    while True:
        run, said = _once([*command, "-isystem", str(toolkit.headers / "include")], toolkit, tree)
        missing = _MISSING.search(said) if run.error else None
        if missing is None or not toolkits.add_header(toolkit, missing[1]):
            return run


def _once(command: Sequence[str], toolkit: Toolkit, tree: Path) -> tuple[Run, str]:
    # ccache takes paths in the cache relative to the tree: the same source in another tree is the same source.
    environment = toolkit.environment | {"CCACHE_BASEDIR": str(tree.parents[1]), "CCACHE_NOHASHDIR": "1"}
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=output, stderr=subprocess.STDOUT)
        # The usage of a child that was waited for has that of its own children: cicc and ptxas take the memory.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read().decode("utf-8", "replace")
    error = _first_error(said, process.returncode, tree) if process.returncode else ""
    return Run(error, time.monotonic() - started, usage.ru_maxrss * 1024), said


def _first_error(said: str, code: int, tree: Path) -> str:
    lines = said.replace(f"{tree}/", "").splitlines()
    return next((line.strip() for line in lines if _ERROR.search(line)), f"it ended with {code} and no error message")
