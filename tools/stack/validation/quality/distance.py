# SPDX-License-Identifier: Apache-2.0
"""Measure how far one server's next-token distributions are from another's.

Only the likeliest tokens of a distribution are known. All others count as one event, "another token". The divergence over these
events is at most that over all tokens (data-processing inequality), so the result is a lower bound. It is reported with the share of
the probability for which it is exact.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stack.validation.bench.statistics import quantile
from stack.validation.quality.scores import Likely, TokenPlace

_REST = 1e-7
"""Least probability of "another token"; below it, sums in single precision are noise."""
_MANY = 200.0
"""Degrees of freedom from which Student's t equals the normal distribution to three digits."""


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance of a server from a reference, over the tokens of a text.

    `kl`: mean Kullback-Leibler divergence of the server from the reference, in nats (a lower bound), with `kl_99`, its 99th
    percentile, and `kl_most`, its maximum. `covered`: the reference's probability of the tokens that both name. `agreement`: how
    often both have the same likeliest token. `perplexity`: of the reference and of the server. `low` and `high`: the 95 % interval
    of the ratio of perplexities, from paired differences, if tokens are independent.
    """

    tokens: int
    kl: float
    kl_99: float
    kl_most: float
    covered: float
    agreement: float
    perplexity: tuple[float, float]
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """The server's perplexity divided by the reference's."""
        return self.perplexity[1] / self.perplexity[0]


def between(reference: Sequence[TokenPlace], other: Sequence[TokenPlace]) -> Distance:
    """Compare two records of the same two or more tokens."""
    divergences = [divergence(ours.likely, theirs.likely) for ours, theirs in zip(reference, other, strict=True)]
    kls = sorted(kl for kl, _ in divergences)
    losses = [[-place.likely[place.token] for place in places] for places in (reference, other)]
    more = [after - before for before, after in zip(*losses, strict=True)]
    half = quantile(min(len(more) - 1, _MANY)) * statistics.stdev(more) / math.sqrt(len(more))
    mean = statistics.fmean(more)
    return Distance(
        tokens=len(more),
        kl=statistics.fmean(kls),
        kl_99=kls[math.ceil(0.99 * len(kls)) - 1],
        kl_most=kls[-1],
        covered=statistics.fmean(covered for _, covered in divergences),
        agreement=statistics.fmean(bool(ours.best & theirs.best) for ours, theirs in zip(reference, other, strict=True)),
        perplexity=(math.exp(statistics.fmean(losses[0])), math.exp(statistics.fmean(losses[1]))),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
    )


def divergence(reference: Likely, other: Likely) -> tuple[float, float]:
    """Compute the Kullback-Leibler divergence of `other` from `reference` in nats, and the probability for which it is exact."""
    shared = [(reference[token], other[token]) for token in reference if token in other]
    covered = math.fsum(math.exp(value) for value, _ in shared)
    rest = [max(1 - math.fsum(math.exp(pair[side]) for pair in shared), _REST) for side in (0, 1)]
    known = math.fsum(math.exp(ours) * (ours - theirs) for ours, theirs in shared)
    return max(0.0, known + rest[0] * math.log(rest[0] / rest[1])), min(covered, 1.0)


def blind(reference: Sequence[TokenPlace]) -> list[TokenPlace]:
    """Make a mutant that ignores the context: at each place it has the reference's mean distribution over the text."""
    sums: dict[int, float] = {}
    for place in reference:
        for token, value in place.likely.items():
            sums[token] = sums.get(token, 0.0) + math.exp(value)
    mean = {token: math.log(value / len(reference)) for token, value in sums.items()}
    # Name as many tokens as a server would, so that the mutant is not known better than a server.
    named = sorted(mean, key=lambda token: -mean[token])[: min(len(place.likely) for place in reference)]
    likely = {token: mean[token] for token in named}
    return [TokenPlace(place.token, likely | {place.token: mean[place.token]}) for place in reference]


def late(reference: Sequence[TokenPlace]) -> list[TokenPlace]:
    """Make a mutant that is one token behind: it has the distribution of the previous place."""
    floor = math.log(_REST)
    shifted = [reference[-1], *reference[:-1]]
    return [
        TokenPlace(now.token, {now.token: floor} | dict(before.likely)) for now, before in zip(reference, shifted, strict=True)
    ]


WRONG: Mapping[str, Callable[[Sequence[TokenPlace]], list[TokenPlace]]] = {"blind": blind, "one token behind": late}
"""Mutants. A server must be nearer to the reference than all of them, so the bar is the distance of the nearest one."""
