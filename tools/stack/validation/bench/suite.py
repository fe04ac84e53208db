# SPDX-License-Identifier: Apache-2.0
"""The suite `bench`: a case for each size that is measured, and one for each number that a baseline has of it."""

import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.model.verdict import Case, Outcome
from stack.validation.bench import benchy
from stack.validation.bench.baseline import Baseline, Subject
from stack.validation.bench.benchy import Measured, Size, Target, UnmeasuredError
from stack.validation.bench.statistics import Way, compare, outliers
from stack.validation.suite import Job

PROMPTS = (512, 2048, 8192)
ANSWERS = (32, 128)
RUNS = 5
AGAINST = "bench/against/"
"""How the names of comparisons begin."""

_UNITS = {"came": "tokens", "prefill": "t/s", "decode": "t/s", "peak": "t/s", "ttfr": "ms", "est_ppt": "ms", "e2e_ttft": "ms"}
_OUTCOMES = {
    Way.BETTER: Outcome.PASSED,
    Way.SAME: Outcome.PASSED,
    Way.WORSE: Outcome.FAILED,
    Way.NOT_COMPARABLE: Outcome.NOT_RUN,
}


@dataclass(frozen=True, slots=True)
class Bench:
    """What is measured and held against what. `length` is the most tokens that the server takes in a request, None: unknown.

    `stack`: whether the server is of the stack that the verdict is about, where that is known.
    """

    python: Path
    target: Target
    subject: Subject
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
        found = [one for case in cases if case is not None and (one := measured(case)) is not None]
        yield from (case for case in self._comparisons(found) if job.wants(case.name))

    def needs(self) -> str:
        """What the numbers are numbers of."""
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
            one = benchy.measure(self.python, self.target, size, tell, self.patience)
        except benchy.TooShortError as short:
            return Case(case_name(size), Outcome.NOT_RUN, str(short), (self.needs(),), seconds=time.monotonic() - began)
        except UnmeasuredError as refused:
            return Case(case_name(size), Outcome.FAILED, str(refused), (self.needs(),), seconds=time.monotonic() - began)
        return Case(
            case_name(size), Outcome.PASSED, needs=(self.needs(),), measured=numbers(one), seconds=time.monotonic() - began
        )

    def _comparisons(self, found: Sequence[Measured]) -> Iterator[Case]:
        prefills = prefill_runs(found)
        for baseline in self.baselines:
            if unlike := baseline.unlike(self.subject):
                why = f"{Way.NOT_COMPARABLE}: {unlike}"
                yield Case(f"{AGAINST}{baseline.name}", Outcome.NOT_RUN, why, (self.needs(),))
                continue
            for prompt, runs in prefills.items():
                yield from self._against(baseline, f"pp{prompt}", runs, baseline.prefills(prompt))
            for one in found:
                size = one.size
                yield from self._against(baseline, size.name, one.decode, baseline.decodes(size.answer, size.prompt))

    def _against(self, baseline: Baseline, size: str, ours: Sequence[float], theirs: Sequence[float]) -> Iterator[Case]:
        if not theirs:
            return
        name, needs = f"{AGAINST}{baseline.name}/{size}", (self.needs(),)
        means = {"ours t/s": statistics.fmean(ours), "theirs t/s": statistics.fmean(theirs)}
        result = compare(ours, theirs)
        interval = {"ratio": result.ratio, "low": result.low, "high": result.high}
        why = {
            Way.WORSE: f"worse than {baseline.source} ({baseline.date}): {result.low:.1%} to {result.high:.1%} of it",
            Way.NOT_COMPARABLE: f"{Way.NOT_COMPARABLE}: {result.why}",
        }.get(result.way, "")
        measured = {**means, **interval, "outcome": result.way.value}
        yield Case(name, _OUTCOMES[result.way], why, needs, measured, means["theirs t/s"])


def _counting(job: Job, before: int, total: int) -> Callable[[int], None]:
    return lambda done: job.step("measuring", before + done, total)


def case_name(size: Size) -> str:
    """The name of the case in which a size is measured."""
    return f"bench/{size.name}"


def measured(case: Case) -> Measured | None:
    """What a case has measured; None where it did not, or is of another kind."""
    named = re.fullmatch(r"bench/pp(\d+)-tg(\d+)", case.name)
    if named is None or case.outcome is not Outcome.PASSED:
        return None
    runs = [tuple(map(float, str(case.measured[f"{kind} runs"]).split())) for kind in _UNITS]
    return Measured(Size(int(named[1]), int(named[2]), len(runs[0])), *runs)


def prefill_runs(found: Sequence[Measured]) -> dict[int, tuple[float, ...]]:
    """The runs of each length of prompt, whatever was asked for in answer: the work is the same."""
    runs: dict[int, tuple[float, ...]] = {}
    for one in found:
        runs[one.size.prompt] = runs.get(one.size.prompt, ()) + one.prefill
    return runs


def table(model: str, found: Sequence[Measured]) -> str:
    """The table that llama-benchy prints and users post, in Markdown: mean and standard deviation over the runs."""
    head = ("model", "test", "t/s", "peak t/s", "ttfr (ms)", "est_ppt (ms)", "e2e_ttft (ms)")
    model = model.rstrip("/").rpartition("/")[2] if model.startswith("/") else model
    rows = [head, (":-----", *("-----:" for _ in head[1:]))]
    for one in found:
        waits = tuple(_mean(runs) for runs in (one.ttfr, one.est_ppt, one.e2e_ttft))
        rows.append((model, f"pp{one.size.prompt}", _mean(one.prefill), "", *waits))
        rows.append((model, f"tg{one.size.answer}", _mean(one.decode), _mean(one.peak), "", "", ""))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _mean(runs: Sequence[float]) -> str:
    return f"{statistics.fmean(runs):.2f} ± {statistics.pstdev(runs):.2f}"


def numbers(one: Measured) -> dict[str, float | str]:
    """Means, the runs themselves, and those that stand apart: nothing is averaged away."""
    numbers: dict[str, float | str] = {}
    for kind, unit in _UNITS.items():
        runs: tuple[float, ...] = getattr(one, kind)
        numbers[f"{kind} {unit}"] = round(statistics.fmean(runs), 3)
        numbers[f"{kind} runs"] = " ".join(f"{value:.6g}" for value in runs)
    for kind in ("prefill", "decode"):
        runs = getattr(one, kind)
        if apart := outliers(runs):
            numbers[f"{kind} apart"] = ", ".join(f"run {place + 1}: {runs[place]:.4g}" for place in apart)
    return numbers
