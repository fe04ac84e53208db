# SPDX-License-Identifier: Apache-2.0
"""Run the validation on the GPU machine: kernels, then each recipe's server with checks and speeds. Each case updates the verdict."""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any

from laboratory.target import bandwidth, checks, numerics, server, speeds
from laboratory.target.checks import Measured, Speed
from laboratory.target.server import Server
from laboratory.target.speeds import Speeds
from stack.base.errors import StackError
from stack.model import digest
from stack.model import stack as stacks
from stack.model.stack import Stack
from stack.model.verdict import Case, Outcome, Weights
from stack.validation import decode_goals, machine, suite
from stack.validation.pack import case_names, contents, targets
from stack.validation.pack.case_names import BANDWIDTH, CONTEXTS, KERNELS, PROMPTS
from stack.validation.pack.recipes import Comparison, Recipe, compared, served
from stack.validation.suite import Job

_VERSIONS = ("torch", "triton", "transformers", "vllm", "flashinfer-python")
_APART = "its two recipes were not both measured since this machine's last start: run both without --resume"
_LONG = ("kernels/*/flashinfer-*",)
"""Cases whose kernels FlashInfer compiles on first use, for minutes."""
_MEMORY = 600.0
"""Seconds for the measurement of the memory, with the start of CUDA."""


@dataclass(slots=True)
class Run:
    """One run: the archive, the working folder, the stack, the request, the GPU, and when to begin no further case."""

    root: Path
    work: Path
    carried: Stack
    job: Job
    gpu: str
    until: float | None = None
    speeds: Speeds = field(init=False)

    def __post_init__(self) -> None:
        """Load the speeds of the run to be resumed."""
        self.speeds = speeds.kept(self.work / "speeds.json", self.job.known, machine.started())

    def late(self) -> bool:
        """Return whether the time is up."""
        return self.until is not None and time.monotonic() > self.until


def main() -> int:
    """Run the requested cases; return 1 if a case failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--minutes", type=float, default=0)
    options = parser.parse_args()
    try:
        return _run(options)
    except StackError as error:
        print(f"validate: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    carried = stacks.load(options.root)
    about = json.loads((options.root / "pack.json").read_text())
    if digest.of(carried) != about["stack"]:
        raise StackError("the stack is not the one that was packed", "unpack the archive again")
    versions = {name: importlib.metadata.version(name) for name in _VERSIONS}
    subject = suite.ValidatedSubject(weights=Weights.DUMMY, versions=MappingProxyType(versions))
    work = options.out.with_name(f"{options.out.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * options.minutes if options.minutes else None

    def cases(job: Job) -> Iterator[Case]:
        run = Run(options.root, work, carried, job, about["gpu"], until)
        for case in _all(run):
            print(f"{case.outcome.value:8} {case.name} {_shown(case)}", flush=True)
            yield case

    verdict = suite.run(carried, cases, subject, suite.RunOptions(options.out, tuple(options.only), options.resume))
    print(f"verdict: {options.out}")
    return 1 if any(case.outcome is Outcome.FAILED for case in verdict.cases) else 0


def _shown(case: Case) -> str:
    return case.why or ", ".join(
        f"{name} {value}" if isinstance(value, str) else f"{name} {value:.4g}" for name, value in case.measured.items()
    )


def _all(run: Run) -> Iterator[Case]:
    yield from _bandwidth(run)
    yield from _numerics(run)
    yield from _timed(run)
    patches = {ref.path for ref in run.carried.patches}
    for recipe in served(patches, run.gpu):
        yield from _served(run, recipe)
    for comparison in compared(patches, run.gpu):
        yield from _compared(run, comparison)


def _bandwidth(run: Run) -> Iterator[Case]:
    """Measure the memory, in a process of its own, which gives it back."""
    if not run.job.wants(BANDWIDTH):
        return
    command = [sys.executable, "-m", "laboratory.target.bandwidth"]
    environment = os.environ | {"PYTHONPATH": contents.python_path(run.root)}
    begun, last = time.monotonic(), f"no answer in {_MEMORY:.0f} s"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=_MEMORY)
        last = done.stderr.strip()[-300:]
        found = bandwidth.measured(done.stdout)
    except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        yield Case(BANDWIDTH, Outcome.FAILED, f"it was not measured: {last}", (run.gpu,))
        return
    yield Case(BANDWIDTH, Outcome.PASSED, "", (run.gpu,), found, seconds=time.monotonic() - begun)


def _numerics(run: Run) -> Iterator[Case]:
    """Run the kernels' cases for this GPU, each in its own process."""
    process = numerics.Numerics(run.root, run.work)
    names = [name for name, needs in process.names() if run.gpu in needs and run.job.wants(name)]
    named = set(run.job.only)
    patient = [name for name in names if named or not any(fnmatchcase(name, glob) for glob in _LONG)]
    if patient:
        yield from process.run(patient)
    yield from (
        _not_run(run, name, "FlashInfer compiles it for minutes: name it with --only to run it")
        for name in names
        if name not in patient
    )


def _timed(run: Run) -> Iterator[Case]:
    """Check the speed goals of the decode kernels by one run of their benchmark."""
    names = [f"{KERNELS}/all", *(case_names.of_goal(goal.name) for goal in decode_goals.GOALS)]
    todo = [name for name in names if run.job.wants(name)]
    if not todo:
        return
    if run.late():
        yield from (_not_run(run, name, "the time was up before they were measured") for name in todo)
        return
    answer = run.work / "decode-kernels.json"
    answer.unlink(missing_ok=True)
    command = [sys.executable, "-m", "laboratory.decoding", "--quick", "--json", str(answer)]
    path = contents.python_path(run.root)
    left = None if run.until is None else run.until - time.monotonic()
    try:
        with (run.work / "decode-kernels.log").open("wb") as log:
            environment = os.environ | {"PYTHONPATH": path}
            ended = subprocess.call(command, stdout=log, stderr=subprocess.STDOUT, env=environment, timeout=left)
    except subprocess.TimeoutExpired:
        yield from (
            _not_run(run, name, f"the time was up while they were measured: see {run.work.name}/decode-kernels.log")
            for name in todo
        )
        return
    if ended not in (0, 1) or not answer.exists():
        yield Case(todo[0], Outcome.FAILED, f"it ended with {ended}: see {run.work.name}/decode-kernels.log", (run.gpu,))
        return
    yield from (case for case in timed(json.loads(answer.read_text()), run.gpu) if case.name in todo)


def timed(report: Mapping[str, Any], gpu: str) -> Iterator[Case]:
    """Yield a case for each goal of the decode kernels' benchmark, and one for all failures and wrong results."""
    failed = [f"{row['part']}, {row['kernel']}, M = {row['tokens']}: {row['why']}" for row in report["rows"] if row["failed"]]
    about = {str(name): value for name, value in report["about"].items() if isinstance(value, float | str)}
    yield Case(f"{KERNELS}/all", Outcome.FAILED if failed else Outcome.PASSED, "; ".join(failed), (gpu,), about)
    for goal in report["goals"]:
        name = case_names.of_goal(goal["name"])
        if goal["met"] is None:
            yield Case(name, Outcome.NOT_RUN, f"not measured: see {KERNELS}/all and the log", (gpu,))
            continue
        found, least = float(goal["found"]), float(goal["least"])
        why = "" if goal["met"] else f"{found:.3f}, which must be at least {least:.2f}"
        outcome = Outcome.FAILED if why else Outcome.PASSED
        yield Case(name, outcome, why, (gpu,), {"found": found}, least, MappingProxyType({"found": found - least}))


def _served(run: Run, recipe: Recipe) -> Iterator[Case]:
    """Run the cases of one recipe against one server."""
    todo = {name: check for name, check in _cases(run, recipe).items() if run.job.wants(name)}
    if not todo:
        return
    if run.late():
        yield from (_not_run(run, name, "the time was up before its server was started") for name in todo)
        return
    begun = time.monotonic()
    try:
        with server.serving(run.root, recipe, run.work, run.until, targets.named(run.gpu)) as running:
            for name, check in todo.items():
                yield _judged(run, name, lambda check=check: check(running))  # type: ignore[misc]
    except server.TooLate as late:
        yield from (_not_run(run, name, late.problem) for name in todo)
    except server.NotServing as failed:
        first, *rest = todo
        yield Case(first, Outcome.FAILED, failed.problem, (run.gpu,), seconds=time.monotonic() - begun)
        yield from (_not_run(run, name, "its server did not become ready") for name in rest)


def _cases(run: Run, recipe: Recipe) -> dict[str, Callable[[Server], Measured]]:
    """Return the checks of a recipe by case name, in order."""
    serve, bench = f"serve/{recipe.name}", f"bench/{recipe.name}"

    def keep(name: str, measured: Callable[[], Speed]) -> Measured:
        speed = measured()
        run.speeds.add(name, speed)
        return speed.measured()

    cases: dict[str, Callable[[Server], Measured]] = {
        f"{serve}/starts": lambda running: {"seconds to healthy": running.seconds},
        f"{serve}/backends": lambda one: checks.backends(one.log_text(), recipe),
        f"{serve}/version": lambda running: checks.version(running.port, importlib.metadata.version("vllm")),
        f"{serve}/models": lambda running: checks.models(running.port),
        f"{serve}/chat": lambda running: checks.chat(running.port),
        f"{serve}/echoes": lambda running: checks.echoes(running.port),
    }
    for context in CONTEXTS:
        name = f"{bench}/decode/{context}"
        cases[name] = lambda running, name=name, context=context: keep(name, lambda: checks.decode(running.port, context))  # type: ignore[misc]
    for length in PROMPTS:
        name = f"{bench}/prefill/{length}"
        cases[name] = lambda running, name=name, length=length: keep(name, lambda: checks.prefill(running.port, length))  # type: ignore[misc]
    if recipe.profiled:
        folder = server.traces(run.work, recipe)
        cases[f"{bench}/profile/{CONTEXTS[0]}"] = lambda running: checks.profiled(running.port, folder, CONTEXTS[0])
    return cases


def _judged(run: Run, name: str, check: Callable[[], Measured]) -> Case:
    if run.late():
        return _not_run(run, name, "the time was up")
    begun = time.monotonic()
    try:
        measured = check()
    except (StackError, OSError, KeyError, ValueError) as failed:  # an answer in another form is a failure, too
        why = str(failed) if isinstance(failed, StackError) else f"{type(failed).__name__}: {failed}"
        return Case(name, Outcome.FAILED, why, (run.gpu,), seconds=time.monotonic() - begun)
    return Case(name, Outcome.PASSED, "", (run.gpu,), measured, seconds=time.monotonic() - begun)


def _not_run(run: Run, name: str, why: str) -> Case:
    return Case(name, Outcome.NOT_RUN, why, (run.gpu,))


def _compared(run: Run, comparison: Comparison) -> Iterator[Case]:
    """Compare the speeds of two recipes on this machine, measured since its last start."""
    kinds = [("decode", context) for context in CONTEXTS] + [("prefill", length) for length in PROMPTS]
    for kind, size in kinds:
        name = f"bench/{comparison.name}/{kind}/{size}"
        if kind not in comparison.least or not run.job.wants(name):
            continue
        one, other = (run.speeds.measured.get(f"bench/{recipe}/{kind}/{size}") for recipe in (comparison.one, comparison.other))
        yield ratio(name, run.gpu, one, other, comparison.least[kind])


def ratio(name: str, gpu: str, one: Speed | None, other: Speed | None, least: float) -> Case:
    """Make the case of a ratio of two speeds, which must be at least `least`."""
    if one is None or other is None:
        return Case(name, Outcome.NOT_RUN, _APART, (gpu,))
    found = one.median / other.median
    measured = {"ratio": found, "tok/s": one.median, "tok/s of the other": other.median}
    measured["spread"] = max((max(speed.runs) - min(speed.runs)) / speed.median for speed in (one, other))
    failed = "" if found >= least else f"{one.median:.1f} tok/s against {other.median:.1f}: {found:.3f} times as fast"
    outcome = Outcome.FAILED if failed else Outcome.PASSED
    return Case(name, outcome, failed, (gpu,), measured, least, MappingProxyType({"ratio": found - least}))


if __name__ == "__main__":
    sys.exit(main())
