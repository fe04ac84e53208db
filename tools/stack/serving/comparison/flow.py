# SPDX-License-Identifier: Apache-2.0
"""Serve two recipes in turn, measure each, and always end the servers."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stack.base.progress import Progress
from stack.serving.comparison import estimate
from stack.serving.comparison.estimate import Estimate
from stack.serving.start import Start, Up, started
from stack.validation.bench.benchy import Measured, Size

Measure = Callable[[Up, Callable[[int], None]], Sequence[Measured]]
"""Measures a server that is up; the second argument gets the number of finished requests."""


class UnfitError(Exception):
    """Raised when the kernels that run are not those of the recipe."""

    def __init__(self, label: str, up: Up) -> None:
        self.label, self.up = label, up
        super().__init__(f"{label} does not run as its recipe says")


@dataclass(frozen=True, slots=True)
class Contestant:
    """One of the two servers, `A` or `B`. `ready` is called before each start: it refuses a port that is taken."""

    label: str
    start: Start
    ready: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The two servers, the number of rounds, how to measure, and whether other kernels than the recipes' are accepted."""

    contestants: tuple[Contestant, Contestant]
    rounds: int
    measure: Measure
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurements of one start: the number of the round, the server's label, and what it measured."""

    round: int
    label: str
    up: Up
    measured: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A speed of both servers, one value per round (the median of its runs), and the estimate of their ratio.

    `kind` is `decode` or `prefill`; `answer` is None for prefill.
    """

    kind: str
    prompt: int
    answer: int | None
    first: tuple[float, ...]
    second: tuple[float, ...]
    estimate: Estimate

    @property
    def title(self) -> str:
        """Its name in a table."""
        if self.answer is None:
            return f"prefill {self.prompt}"
        return f"decode {self.answer} at {self.prompt}"


def run(
    plan: Plan, out: Callable[[bytes], None], tell: Progress, finished: Callable[[Sample], None] = lambda _: None
) -> tuple[Sample, ...]:
    """Serve and measure the two recipes in alternating order. Every server is ended before the next one starts.

    Args:
        plan: the servers and how to measure them.
        out: gets the output of all servers as it comes.
        tell: gets the progress.
        finished: gets each sample when its server has ended.

    Raises:
        StackError: a port is taken, or a server cannot be measured in the first place.
        NotServing: a server did not start.
        UnfitError: other kernels run than those of the recipe.
        UnmeasuredError: a measurement failed.
        TooShortError: a size takes too little time to be measured.

    """
    by_label = {contestant.label: contestant for contestant in plan.contestants}
    samples: list[Sample] = []
    for number, labels in enumerate(estimate.order(plan.rounds), 1):
        for label in labels:
            sample = _sample(by_label[label], number, plan, out, _prefixed(tell, number, plan.rounds, by_label[label]))
            samples.append(sample)
            finished(sample)
    return tuple(samples)


def _sample(contestant: Contestant, number: int, plan: Plan, out: Callable[[bytes], None], tell: Progress) -> Sample:
    contestant.ready()
    with started(contestant.start, out, tell) as up:
        if up.mismatches and not plan.fallback:
            raise UnfitError(contestant.label, up)
        measured = plan.measure(up, lambda done: tell("measuring", done, None))
    return Sample(number, contestant.label, up, tuple(measured))


def _prefixed(tell: Progress, number: int, rounds: int, contestant: Contestant) -> Progress:
    """Return a progress that names the round and the server."""
    before = f"round {number} of {rounds}, {contestant.label} ({contestant.start.recipe.name})"
    return lambda step, done=0, total=None: tell(f"{before}: {step}", done, total)


def results(samples: Sequence[Sample]) -> tuple[Result, ...]:
    """Compare the two servers at each size: decoding by prompt and answer, reading by prompt."""
    sizes = dict.fromkeys(measured.size for sample in samples for measured in sample.measured)
    found = [_result("decode", size.prompt, size.answer, samples, _decode(size)) for size in sizes]
    prompts = dict.fromkeys(size.prompt for size in sizes)
    found += [_result("prefill", prompt, None, samples, _prefill(prompt)) for prompt in prompts]
    return tuple(found)


def _decode(size: Size) -> Callable[[Measured], Sequence[float]]:
    return lambda measured: measured.decode if measured.size == size else ()


def _prefill(prompt: int) -> Callable[[Measured], Sequence[float]]:
    return lambda measured: measured.prefill if measured.size.prompt == prompt else ()


def _result(
    kind: str, prompt: int, answer: int | None, samples: Sequence[Sample], runs: Callable[[Measured], Sequence[float]]
) -> Result:
    values: Mapping[str, dict[int, float]] = {"A": {}, "B": {}}
    for sample in samples:
        speeds = [speed for measured in sample.measured for speed in runs(measured)]
        values[sample.label][sample.round] = statistics.median(speeds)
    numbers = sorted(values["A"])
    first, second = (tuple(values[label][number] for number in numbers) for label in ("A", "B"))
    return Result(kind, prompt, answer, first, second, estimate.paired(first, second))
