# SPDX-License-Identifier: Apache-2.0
"""Compile one unit: find its dependencies, its first error, its time and its memory."""

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base import die_with_parent
from stack.base.errors import StackError
from stack.proof.compiling import toolkit as toolkits
from stack.proof.compiling.listing import Unit
from stack.proof.compiling.toolkit import Toolkit

# A new process's peak memory starts with that of its parent. So a small process starts the compiler and reports the peak of its
# children (cicc and ptxas need the memory).
_WITNESS = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[2:], check=False).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(ended if ended >= 0 else 128 - ended)
"""
_MISSING = re.compile(r"fatal error: (\S+): No such file or directory")
_ERROR = re.compile(r"\b(?:error|fatal)(?: #?[\w-]+)?\s*:")
"""Matches nvcc (`error:`, `error #349:`, `nvcc error   :`), ptxas (`ptxas fatal   :`) and gcc (`fatal error:`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a compiler: `error` is its first error, empty on success; `peak` in bytes, of its largest process.

    `sources`: the files that it read, from its dependency file.
    """

    error: str
    seconds: float
    peak: int
    sources: frozenset[Path] = frozenset()


def compile_unit(unit: Unit, source: Path, built: Path, toolkit: Toolkit, tree: Path) -> Run:
    """Compile a source with a unit's flags into an object, through ccache if it is on PATH.

    `source` is the unit's own source, or a copy cut down to one instantiation.
    """
    ccache = shutil.which("ccache")
    rule = built.with_suffix(".d")
    arguments = [*unit.flags, *_beside(unit, source), "-MD", "-MF", str(rule), "-c", str(source), "-o", str(built)]
    run = _run([*([ccache] if ccache else []), *_program(unit, toolkit), *arguments], toolkit, tree)
    return run if run.error else replace(run, sources=_prerequisites(rule))


def dependencies(unit: Unit, toolkit: Toolkit, tree: Path) -> tuple[frozenset[Path], str]:
    """Return the files that the preprocessor reads for a unit, and its first error; one of the two is empty."""
    with tempfile.TemporaryDirectory(prefix="stack-depends-") as work:
        rule = Path(work) / "rule.d"
        run = _run([*_program(unit, toolkit), *unit.flags, "-M", str(unit.source), "-o", str(rule)], toolkit, tree)
        if run.error:
            return frozenset(), run.error
        return _prerequisites(rule), ""


def _prerequisites(rule: Path) -> frozenset[Path]:
    """Read the files named in a compiler's dependency file; empty if it wrote none."""
    if not rule.is_file():
        return frozenset()
    text = rule.read_text()
    names = text.replace("\\\n", " ").partition(" : ")[2] or text.replace("\\\n", " ").partition(":")[2]
    return frozenset(Path(os.path.normpath(name)) for name in names.split())


def _program(unit: Unit, toolkit: Toolkit) -> list[str]:
    if not unit.is_cuda:
        return cxx()
    if processor() == platform.machine():
        return [str(toolkit.nvcc)]
    # For a cross compiler nvcc looks for headers of its target, which are the same as this machine's.
    own = toolkit.home / "targets" / f"{platform.machine()}-linux" / "include"
    headers = own if own.is_dir() else toolkit.home / "include"
    return [str(toolkit.nvcc), f"-ccbin={cxx()[-1]}", "-isystem", str(headers)]


def processor() -> str:
    """Return the processor that the C++ compiler compiles for, as the kernel names it: that of CXX may be a cross compiler."""
    try:
        done = subprocess.run([*cxx(), "-dumpmachine"], capture_output=True, text=True, check=False)
    except OSError:
        return platform.machine()
    return done.stdout.partition("-")[0].strip() or platform.machine()


def cxx() -> list[str]:
    """Return the command of the C++ compiler; CXX may start it through another program (`ccache g++`).

    Raises:
        StackError: CXX is not a valid command.

    """
    named = os.environ.get("CXX", "")
    try:
        return shlex.split(named) or ["g++"]
    except ValueError as bad:
        raise StackError(f"CXX is not a valid command: {named}", "write it as for a shell, such as CXX='ccache g++'") from bad


def _beside(unit: Unit, source: Path) -> list[str]:
    """Return an include flag for a cut source: it stands elsewhere, but includes files beside the original."""
    return [] if source == unit.source else [f"-I{unit.source.parent}"]


def _run(command: Sequence[str], toolkit: Toolkit, tree: Path) -> Run:
    """Run a compiler; if a library's header is missing, download it and run again."""
    while True:
        run, output = _once([*command, "-isystem", str(toolkit.headers / "include")], toolkit, tree)
        missing = _MISSING.search(output) if run.error else None
        if missing is None or not toolkits.add_header(toolkit, missing[1]):
            return run


def _once(command: Sequence[str], toolkit: Toolkit, tree: Path) -> tuple[Run, str]:
    # ccache makes paths relative to the cache's folder of trees, so that equal sources in different trees share results.
    environment = toolkit.environment | {"CCACHE_BASEDIR": str(tree.parents[1]), "CCACHE_NOHASHDIR": "1"}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        usage = Path(folder) / "usage"
        python = (sys.executable, "-I", "-S")
        done = subprocess.run(
            [*python, die_with_parent.__file__, str(os.getpid()), *python, "-c", _WITNESS, str(usage), *command],
            cwd=tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        peak = int(usage.read_text()) * 1024 if usage.exists() else 0
    output = done.stdout.decode("utf-8", "replace")
    error = _first_error(output, done.returncode, tree) if done.returncode else ""
    return Run(error, time.monotonic() - started, peak), output


def _first_error(output: str, code: int, tree: Path) -> str:
    lines = output.replace(f"{tree}/", "").splitlines()
    return next((line.strip() for line in lines if _ERROR.search(line)), f"it ended with {code} and no error message")
