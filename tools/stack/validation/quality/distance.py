# SPDX-License-Identifier: Apache-2.0
"""How far one server's distributions over the next token are from another's.

All that is known of a distribution is its likeliest tokens. Everything else is one event, "another token": the divergence over
these events is at most that over all tokens (the data-processing inequality), so what is reported is a lower bound, beside
the share of the probability for which it is exact.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stack.validation.bench.statistics import quantile
from stack.validation.quality.scores import Likely, Place

_REST = 1e-7
"""The least that is left for "another token": below it, sums in single precision are noise."""
_MANY = 200.0
"""Degrees of freedom from which Student's t is the normal distribution's to three digits."""


@dataclass(frozen=True, slots=True)
class Distance:
    """A server against a reference, over the tokens of a text.

    `kl`: mean Kullback-Leibler divergence of the server from the reference, in nats (a lower bound), with `kl_99`, its 99th
    percentile, and `kl_most`; `covered`: the reference's probability of the tokens that both name; `agreement`: how often both
    hold the same token for the likeliest; `perplexity` of the reference's and the server's, and `low` to `high`, the 95 % interval of
    their ratio from paired differences, which takes tokens for independent.
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
        """The server's perplexity by the reference's."""
        return self.perplexity[1] / self.perplexity[0]


def between(reference: Sequence[Place], other: Sequence[Place]) -> Distance:
    """Compare two records of the same tokens, at least two."""
    divergences = [divergence(one.likely, two.likely) for one, two in zip(reference, other, strict=True)]
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
        agreement=statistics.fmean(bool(one.best & two.best) for one, two in zip(reference, other, strict=True)),
        perplexity=(math.exp(statistics.fmean(losses[0])), math.exp(statistics.fmean(losses[1]))),
        low=math.exp(mean - half),
        high=math.exp(mean + half),
    )


def divergence(reference: Likely, other: Likely) -> tuple[float, float]:
    """The Kullback-Leibler divergence of `other` from `reference` in nats, and the probability for which it is exact."""
    shared = [(reference[token], other[token]) for token in reference if token in other]
    covered = math.fsum(math.exp(one) for one, _ in shared)
    rest = [max(1 - math.fsum(math.exp(pair[side]) for pair in shared), _REST) for side in (0, 1)]
    known = math.fsum(math.exp(one) * (one - two) for one, two in shared)
    return max(0.0, known + rest[0] * math.log(rest[0] / rest[1])), min(covered, 1.0)


def blind(reference: Sequence[Place]) -> list[Place]:
    """A server that does not look at what stands before: everywhere the reference's mean distribution over the text."""
    sums: dict[int, float] = {}
    for place in reference:
        for token, value in place.likely.items():
            sums[token] = sums.get(token, 0.0) + math.exp(value)
    mean = {token: math.log(value / len(reference)) for token, value in sums.items()}
    # As many as a server would name, or the mutant would be known better than a server is.
    named = sorted(mean, key=lambda token: -mean[token])[: min(len(place.likely) for place in reference)]
    likely = {token: mean[token] for token in named}
    return [Place(place.token, likely | {place.token: mean[place.token]}) for place in reference]


def late(reference: Sequence[Place]) -> list[Place]:
    """A server that is one token behind: what the reference expected in the place before."""
    floor = math.log(_REST)
    shifted = [reference[-1], *reference[:-1]]
    return [Place(at.token, {at.token: floor} | dict(from_.likely)) for at, from_ in zip(reference, shifted, strict=True)]


WRONG: Mapping[str, Callable[[Sequence[Place]], list[Place]]] = {"blind": blind, "one token behind": late}
"""What a server must be nearer than, or it does not run the model at all: the bar lies at the nearest of them."""
