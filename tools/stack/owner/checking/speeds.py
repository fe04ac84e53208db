# SPDX-License-Identifier: Apache-2.0
"""Lay measured speeds beside published ones and beside the limit that the memory sets."""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.deploy.hardware import Profile
from stack.deploy.recipes import Recipe
from stack.model.verdict import Case
from stack.serving import roofline
from stack.validation.bench.baseline import Baseline, MeasuredSubject
from stack.validation.bench.suite import measured, prefill_runs


@dataclass(frozen=True, slots=True)
class Published:
    """A published speed in tokens per second, with its source."""

    speed: float
    source: str


@dataclass(frozen=True, slots=True)
class Speed:
    """A measured speed: mean and standard deviation of its runs, the best published one, and the memory's limit, each if known.

    `answer`: tokens of the answer; None for the speed of reading a prompt.
    """

    prompt: int
    answer: int | None
    mean: float
    spread: float
    published: Published | None = None
    limit: float | None = None

    @property
    def test(self) -> str:
        """Its name in tables of llama-benchy, with the prompt before an answer."""
        return f"pp{self.prompt}" if self.answer is None else f"tg{self.answer} after {self.prompt}"

    @property
    def of_limit(self) -> float | None:
        """Its share of the limit."""
        return None if self.limit is None else self.mean / self.limit

    @property
    def of_published(self) -> float | None:
        """Its share of the published speed."""
        return None if self.published is None else self.mean / self.published.speed


def of(
    cases: Iterable[Case], subject: MeasuredSubject, baselines: Sequence[Baseline], limits: Mapping[int, float]
) -> Iterator[Speed]:
    """Yield the speeds in the cases of a bench.

    Args:
        cases: the cases.
        subject: what was measured; speeds that were published for anything else are left out.
        baselines: published and recorded speeds.
        limits: the most tokens per second after a prompt, by its tokens.

    """
    results = [result for case in cases if (result := measured(case)) is not None]
    alike = [each for each in baselines if not each.unlike(subject)]
    for prompt, runs in sorted(prefill_runs(results).items()):
        yield Speed(prompt, None, *_mean(runs), _best((each, each.prefills(prompt)) for each in alike))
    for result in sorted(results, key=lambda each: (each.size.answer, each.size.prompt)):
        size = result.size
        known = _best((each, each.decodes(size.answer, size.prompt)) for each in alike)
        yield Speed(size.prompt, size.answer, *_mean(result.decode), known, limits.get(size.prompt))


def limits(recipe: Recipe | None, profile: Profile | None, prompts: Iterable[int]) -> Mapping[int, float]:
    """Compute the memory's limit after prompts of these lengths; empty where it is not modelled."""
    if recipe is None or profile is None:
        return {}
    try:
        return {prompt: roofline.limit(recipe, profile, prompt) for prompt in prompts}
    except StackError:
        return {}


def _mean(runs: Sequence[float]) -> tuple[float, float]:
    return statistics.fmean(runs), statistics.pstdev(runs)


def _best(known: Iterable[tuple[Baseline, Sequence[float]]]) -> Published | None:
    speeds = [Published(statistics.median(runs), f"{each.source}, {each.date}") for each, runs in known if runs]
    return max(speeds, key=lambda each: each.speed, default=None)
