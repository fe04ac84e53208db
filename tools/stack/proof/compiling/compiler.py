# SPDX-License-Identifier: Apache-2.0
"""One unit through the compiler: what it depends on, whether it compiles, how long that takes and how much memory."""

import os
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

# What a process has at most counts what its parent had when it was started. So a small one starts the compiler, and says what
# that and its children (cicc and ptxas take the memory) had.
_WITNESS = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[2:], check=False).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(ended if ended >= 0 else 128 - ended)
"""
_MISSING = re.compile(r"fatal error: (\S+): No such file or directory")
_ERROR = re.compile(r"\b(?:error|fatal)(?: #?[\w-]+)?\s*:")
"""In the words of nvcc (`error:`, `error #349:`, `nvcc error   :`), ptxas (`ptxas fatal   :`) and gcc (`fatal error:`)."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a compiler: `error` is its own first one, empty where it compiled; `peak` is in bytes, of its largest process.

    `sources`: the files that it read, by its dependency file.
    """

    error: str
    seconds: float
    peak: int
    sources: frozenset[Path] = frozenset()


def compile_unit(unit: Unit, source: Path, built: Path, toolkit: Toolkit, tree: Path) -> Run:
    """Compile a source with a unit's flags into an object; through ccache where that is on PATH.

    `source` is the unit's, or what is left of it with one instantiation.
    """
    ccache = shutil.which("ccache")
    rule = built.with_suffix(".d")
    arguments = [*unit.flags, *_beside(unit, source), "-MD", "-MF", str(rule), "-c", str(source), "-o", str(built)]
    run = _run([*([ccache] if ccache else []), *_program(unit, toolkit), *arguments], toolkit, tree)
    return run if run.error else replace(run, sources=_prerequisites(rule))


def dependencies(unit: Unit, toolkit: Toolkit, tree: Path) -> tuple[frozenset[Path], str]:
    """The files that a unit is compiled from, by its preprocessor; and its first error, with what was found empty."""
    with tempfile.TemporaryDirectory(prefix="stack-depends-") as work:
        rule = Path(work) / "rule.d"
        run = _run([*_program(unit, toolkit), *unit.flags, "-M", str(unit.source), "-o", str(rule)], toolkit, tree)
        if run.error:
            return frozenset(), run.error
        return _prerequisites(rule), ""


def _prerequisites(rule: Path) -> frozenset[Path]:
    """Read the files that a compiler's dependency file names; none where it wrote no such file."""
    if not rule.is_file():
        return frozenset()
    text = rule.read_text()
    names = text.replace("\\\n", " ").partition(" : ")[2] or text.replace("\\\n", " ").partition(":")[2]
    return frozenset(Path(os.path.normpath(name)) for name in names.split())


def _program(unit: Unit, toolkit: Toolkit) -> list[str]:
    return [str(toolkit.nvcc)] if unit.is_cuda else cxx()


def cxx() -> list[str]:
    """How the C++ compiler is started: CXX may start it through another program (`ccache g++`).

    Raises:
        StackError: CXX is no command.

    """
    named = os.environ.get("CXX", "")
    try:
        return shlex.split(named) or ["g++"]
    except ValueError as bad:
        raise StackError(f"CXX is no command: {named}", "write it as for a shell, such as CXX='ccache g++'") from bad


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
    said = done.stdout.decode("utf-8", "replace")
    error = _first_error(said, done.returncode, tree) if done.returncode else ""
    return Run(error, time.monotonic() - started, peak), said


def _first_error(said: str, code: int, tree: Path) -> str:
    lines = said.replace(f"{tree}/", "").splitlines()
    return next((line.strip() for line in lines if _ERROR.search(line)), f"it ended with {code} and no error message")
