# SPDX-License-Identifier: Apache-2.0
"""Run each case in its own process, so that its memory, and anything it breaks, ends with it."""

import ctypes
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from stack.validation.numerics import NOT_COMPILED, ON_CPU, sanitizing
from stack.validation.numerics.agreement import differing
from stack.validation.numerics.cases import AnyCase, BesideIdeal, KernelCase, Same, named
from stack.validation.numerics.judging import Judgement, beside_ideal, judge
from stack.validation.numerics.kernels import decode
from stack.validation.numerics.kernels.environment import capability
from stack.validation.numerics.sanitizing import Sanitized

_ENDING = 10.0
"""Seconds that a process has to end after its answer."""
_EACH = 3 * 10**9
"""Bytes that a case takes at most. Cases with large weights take more, and only one of them runs at a time."""
_PR_SET_PDEATHSIG = 1
_UNSEEN = "the PTX of primitives.cuh and csrc/*.cu: a CPU runs replacements for them, only a GPU's cases run them"
WATCHED = ("vllm", "flashinfer")
"""The packages whose imported modules a case reports, because patches change them."""

Json = dict[str, Any]


def run(cases: Sequence[AnyCase]) -> Iterator[Json]:
    """Run cases in parallel; yield the outcome of each as it ends, in the form that a verdict has."""
    jobs = max(1, min(len(os.sched_getaffinity(0)), _memory() // _EACH))
    # One job's threads share the processors with the others: with more threads than processors, BLAS's threads wait for each other.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // jobs))}
    # A process that has initialized CUDA cannot be forked, and importing the libraries initializes it.
    context: Any = multiprocessing.get_context("spawn" if capability() else "forkserver")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(["stack.validation.numerics.preloaded"])
    alone = threading.Lock()

    def run_case(case: AnyCase) -> Json:
        with alone if case.alone else nullcontext():
            return _apart(context, case)

    pool = ThreadPoolExecutor(jobs)
    try:
        for done in as_completed([pool.submit(run_case, case) for case in cases]):
            yield done.result()
    finally:
        # The reader may have stopped: cancel the jobs that have not begun.
        pool.shutdown(cancel_futures=True)


def outcome(case: AnyCase) -> Json:
    """Run a case in this process and return its outcome."""
    began = time.monotonic()
    try:
        result = _sanitized(case) if isinstance(case, Sanitized) else _same(case) if isinstance(case, Same) else _held(case)
    except Exception as error:  # any exception of a kernel is a failure of the case
        result = {"outcome": "failed", "why": _line(f"{type(error).__name__}: {error}")}
    if ON_CPU in case.name and "measured" in result:
        result["measured"][NOT_COMPILED] = _UNSEEN
    here = capability()
    # One of the listed GPUs is enough: if this machine has one, record only that.
    return _json(case, result, time.monotonic() - began, [here] if here in case.needs else None)


def _held(case: KernelCase) -> Json:
    if lacking := case.kernel.lacks():
        return {"outcome": "not-run", "why": lacking}
    # Run on a copy of the problem: a kernel that overwrites its inputs must not change the reference.
    output = case.kernel.run(replace(case.problem))
    truth, bar = case.problem.truth(), case.bar
    more: dict[str, float | str] = {"reduced": case.reduced} if case.reduced else {}
    if isinstance(case, BesideIdeal):
        truth, bar = beside_ideal(truth, case.problem.rounded(truth), case.bar)
        more["rel_l2 of an ideal kernel"] = bar / case.bar
    return _judged(judge(output, truth, bar), bar, more)


def _judged(judgement: Judgement, bar: float, more: Mapping[str, float | str]) -> Json:
    nearest, excess = judgement.nearest
    measured = {
        "rel_l2": judgement.good.rel_l2,
        "rel_l2 of all rows": judgement.good.overall,
        "lean": judgement.good.lean,
        "wrong outputs rejected": len(judgement.mutants) - len(judgement.passed_through),
        "nearest wrong output": nearest,
        **more,
    }
    # Also the nearest by rel-L2 alone: by its definition a lean is always twice its bar.
    by_size = {name: times for name, times in judgement.mutants.items() if not name.startswith("a block")}
    margins = {
        "good": 1 / judgement.excess if judgement.excess else math.inf,
        "nearest wrong output": excess,
        "nearest by rel_l2": min(by_size.values()),
    }
    why = judgement.why
    return {"outcome": "failed" if why else "passed", "why": why, "measured": measured, "bar": bar, "margins": margins}


def _same(case: Same) -> Json:
    if lacking := case.agreement.lacks():
        return {"outcome": "not-run", "why": lacking}
    compared = case.agreement.compare()
    count = differing(compared.ours, compared.theirs)
    wrong = {name: differing(mutant, compared.theirs) for name, mutant in compared.mutants.items()}
    through = [name for name, number in wrong.items() if not number]
    why = f"{count} of {compared.ours.size} differ" if count else ""
    if through:
        why = f"{why}{'; ' if why else ''}the comparison proves nothing, it accepts wrong outputs: {', '.join(through)}"
    nearest = min(wrong, key=lambda name: wrong[name])
    measured = {
        "compared": compared.ours.size,
        "differing": count,
        "wrong outputs rejected": len(wrong) - len(through),
        "nearest wrong output": nearest,
    }
    margins = {"differing in the nearest wrong output": wrong[nearest]}
    return {"outcome": "failed" if why else "passed", "why": why, "measured": measured, "bar": 0, "margins": margins}


def _sanitized(case: Sanitized) -> Json:
    if lacking := sanitizing.lacks():
        return {"outcome": "not-run", "why": lacking}
    planted, kernels = sanitizing.run(case)
    why = sanitizing.why(planted, kernels)
    margins = {"errors of the planted fault": planted.errors}
    return {
        "outcome": "failed" if why else "passed",
        "why": why,
        "measured": {"errors": kernels.errors, "planted fault": planted.lines()},
        "bar": 0,
        "margins": margins,
    }


def touch(cases: Sequence[AnyCase]) -> None:
    """Run kernels in this process without judging them, for a watching tool. Repeat at most twice: under a tool they are slow."""
    decode.RUNS.set(2)
    for case in cases:
        if isinstance(case, Same):
            case.agreement.compare()
        elif isinstance(case, KernelCase):
            case.kernel.run(case.problem)


def _json(case: AnyCase, result: Json, seconds: float, needs: list[str] | None = None) -> Json:
    measured = {name: _finite(value) for name, value in result.get("measured", {}).items()}
    margins = {name: value for name, value in result.get("margins", {}).items() if math.isfinite(value)}
    return {
        "name": case.name,
        "outcome": result["outcome"],
        "why": result["why"],
        "needs": needs if needs is not None else list(case.needs),
        "measured": measured,
        "bar": result.get("bar"),
        "margins": margins,
        "seconds": round(seconds, 3),
    }


def _finite(value: float | str) -> float | str:
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


def _apart(context: Any, case: AnyCase) -> Json:
    """Run a case in its own process; it has failed if the process dies or takes too long."""
    began = time.monotonic()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(case.name, theirs), daemon=True)
    process.start()
    theirs.close()
    patience = case.seconds
    try:
        if ours.poll(patience):
            answer = dict(json.loads(ours.recv_bytes()))
            process.join(_ENDING)
            return answer
        why = f"it took more than {patience:.0f} s"
    except EOFError:
        process.join()
        why = f"its process ended with {_ending(process.exitcode)}"
    finally:
        process.kill()
        process.join()
        ours.close()
    return _json(case, {"outcome": "failed", "why": why}, time.monotonic() - began)


def _child(name: str, answer: Connection) -> None:
    _when_parent_ends(signal.SIGKILL)
    (case,) = named(name)
    answer.send_bytes(json.dumps({**outcome(case), "imports": imported(WATCHED)}, allow_nan=False).encode())


def imported(packages: Sequence[str]) -> list[str]:
    """List the modules of some packages that this process has imported, as paths relative to the package's parent folder."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    paths = set()
    for package in packages:
        top = files.get(package)
        folder = Path(top).parents[1] if top else None
        mine = [Path(file) for name, file in files.items() if file and (name == package or name.startswith(f"{package}."))]
        paths |= {file.relative_to(folder).as_posix() for file in mine if folder is not None and file.is_relative_to(folder)}
    return sorted(paths)


def attach() -> None:
    """End this process group when the parent process ends, however it ends.

    Without this, the fork server of the cases would run on as long as one of them does.
    """
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    _when_parent_ends(signal.SIGTERM)


def _when_parent_ends(number: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _ending(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _line(text: str) -> str:
    return " ".join(text.split())[:500]


def _memory() -> int:
    """Read the available memory in bytes."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["MemAvailable"].split()[0]) * 1024
