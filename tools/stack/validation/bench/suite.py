# SPDX-License-Identifier: Apache-2.0
"""The suite `bench`: a case for each measured size, and one for each comparison of it with a baseline."""

import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.verdict import Case, Outcome
from stack.validation.bench import benchy
from stack.validation.bench.baseline import Baseline, MeasuredSubject
from stack.validation.bench.benchy import Measured, Size, Target, UnmeasuredError
from stack.validation.bench.statistics import Ranking, compare, outliers
from stack.validation.suite import Job

PROMPTS = (512, 2048, 8192)
ANSWERS = (32, 128)
RUNS = 5
AGAINST = "bench/against/"
"""Beginning of the names of comparisons."""

_UNITS = {"came": "tokens", "prefill": "t/s", "decode": "t/s", "peak": "t/s", "ttfr": "ms", "est_ppt": "ms", "e2e_ttft": "ms"}
_OUTCOMES = {
    Ranking.BETTER: Outcome.PASSED,
    Ranking.SAME: Outcome.PASSED,
    Ranking.WORSE: Outcome.FAILED,
    Ranking.NOT_COMPARABLE: Outcome.NOT_RUN,
}


@dataclass(frozen=True, slots=True)
class Bench:
    """The measured server, the sizes, and the baselines. `length` is the most tokens of a request, None if unknown.

    `stack` is the case that says whether the server is of the verdict's stack, if that is known.
    """

    python: Path
    target: Target
    subject: MeasuredSubject
    sizes: Sequence[Size]
    baselines: Sequence[Baseline]
    length: int | None = None
    stack: Case | None = None
    patience: float = benchy.PATIENCE

    def __call__(self, job: Job) -> Iterator[Case]:
        """Measure, then compare."""
        if self.stack is not None and job.wants(self.stack.name):
            yield self.stack
        cases = [job.known.get(case_name(size)) for size in self.sizes]
        wanted = [size for size in self.sizes if job.wants(case_name(size))]
        for number, size in enumerate(wanted):
            case = self._case(size, _counting(job, number * size.runs, len(wanted) * size.runs))
            cases.append(case)
            yield case
        results = [result for case in cases if case is not None and (result := measured(case)) is not None]
        yield from (case for case in self._comparisons(results) if job.wants(case.name))

    def needs(self) -> str:
        """Name the hardware that the numbers belong to, as a need of the cases."""
        machine = self.subject.machine
        if machine is None:
            return "elsewhere"
        return f"sm{machine.gpus[0].capability.replace('.', '')}" if machine.gpus else "cpu"

    def _case(self, size: Size, tell: Callable[[int], None]) -> Case:
        began = time.monotonic()
        room = size.prompt + size.answer + benchy.ROOM
        if self.length is not None and room > self.length:
            why = f"the server takes {self.length} tokens in a request, this size needs {room}"
            return Case(case_name(size), Outcome.NOT_RUN, why, (self.needs(),))
        try:
            result = benchy.measure(self.python, self.target, size, tell, self.patience)
        except benchy.TooShortError as short:
            return Case(case_name(size), Outcome.NOT_RUN, str(short), (self.needs(),), seconds=time.monotonic() - began)
        except UnmeasuredError as refused:
            return Case(case_name(size), Outcome.FAILED, str(refused), (self.needs(),), seconds=time.monotonic() - began)
        return Case(
            case_name(size), Outcome.PASSED, needs=(self.needs(),), measured=numbers(result), seconds=time.monotonic() - began
        )

    def _comparisons(self, results: Sequence[Measured]) -> Iterator[Case]:
        prefills = prefill_runs(results)
        for baseline in self.baselines:
            if unlike := baseline.unlike(self.subject):
                why = f"{Ranking.NOT_COMPARABLE}: {unlike}"
                yield Case(f"{AGAINST}{baseline.name}", Outcome.NOT_RUN, why, (self.needs(),))
                continue
            for prompt, runs in prefills.items():
                yield from self._against(baseline, f"pp{prompt}", runs, baseline.prefills(prompt))
            for result in results:
                size = result.size
                yield from self._against(baseline, size.name, result.decode, baseline.decodes(size.answer, size.prompt))

    def _against(self, baseline: Baseline, size: str, ours: Sequence[float], theirs: Sequence[float]) -> Iterator[Case]:
        if not theirs:
            return
        name, needs = f"{AGAINST}{baseline.name}/{size}", (self.needs(),)
        means = {"ours t/s": statistics.fmean(ours), "theirs t/s": statistics.fmean(theirs)}
        result = compare(ours, theirs)
        interval = {"ratio": result.ratio, "low": result.low, "high": result.high}
        why = {
            Ranking.WORSE: f"worse than {baseline.source} ({baseline.date}): {result.low:.1%} to {result.high:.1%} of it",
            Ranking.NOT_COMPARABLE: f"{Ranking.NOT_COMPARABLE}: {result.why}",
        }.get(result.way, "")
        measured = {**means, **interval, "outcome": result.way.value}
        yield Case(name, _OUTCOMES[result.way], why, needs, measured, means["theirs t/s"])


def _counting(job: Job, before: int, total: int) -> Callable[[int], None]:
    return lambda done: job.tell("measuring", before + done, total)


def case_name(size: Size) -> str:
    """Name the case that measures a size."""
    return f"bench/{size.name}"


def measured(case: Case) -> Measured | None:
    """Read back the measurements of a case; None if it did not pass, is of another kind, or has other numbers than a measurement."""
    named = re.fullmatch(r"bench/pp(\d+)-tg(\d+)", case.name)
    if named is None or case.outcome is not Outcome.PASSED:
        return None
    try:
        runs = [tuple(map(float, str(case.measured[f"{kind} runs"]).split())) for kind in _UNITS]
    except (KeyError, ValueError):
        return None
    if (
        not runs[0]
        or {len(each) for each in runs} != {len(runs[0])}
        or not all(0 <= one < math.inf for each in runs for one in each)
    ):
        return None
    return Measured(Size(int(named[1]), int(named[2]), len(runs[0])), *runs)


def prefill_runs(results: Sequence[Measured]) -> dict[int, tuple[float, ...]]:
    """Collect the runs of each prompt length over all answer lengths, since the work is the same."""
    runs: dict[int, tuple[float, ...]] = {}
    for result in results:
        runs[result.size.prompt] = runs.get(result.size.prompt, ()) + result.prefill
    return runs


def table(model: str, results: Sequence[Measured]) -> str:
    """Format llama-benchy's table, which users post, in Markdown: mean and standard deviation over the runs."""
    head = ("model", "test", "t/s", "peak t/s", "ttfr (ms)", "est_ppt (ms)", "e2e_ttft (ms)")
    model = model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model
    rows = [head, (":-----", *("-----:" for _ in head[1:]))]
    for result in results:
        waits = tuple(_mean(runs) for runs in (result.ttfr, result.est_ppt, result.e2e_ttft))
        rows.append((model, f"pp{result.size.prompt}", _mean(result.prefill), "", *waits))
        rows.append((model, f"tg{result.size.answer}", _mean(result.decode), _mean(result.peak), "", "", ""))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _mean(runs: Sequence[float]) -> str:
    return f"{statistics.fmean(runs):.2f} ± {statistics.pstdev(runs):.2f}"


def numbers(result: Measured) -> dict[str, float | str]:
    """Return means, all runs, and outliers, so that the mean hides nothing."""
    numbers: dict[str, float | str] = {}
    for kind, unit in _UNITS.items():
        runs: tuple[float, ...] = getattr(result, kind)
        numbers[f"{kind} {unit}"] = round(statistics.fmean(runs), 3)
        numbers[f"{kind} runs"] = " ".join(f"{value:.6g}" for value in runs)
    for kind in ("prefill", "decode"):
        runs = getattr(result, kind)
        if apart := outliers(runs):
            numbers[f"{kind} apart"] = ", ".join(f"run {place + 1}: {runs[place]:.4g}" for place in apart)
    return numbers
