# SPDX-License-Identifier: Apache-2.0
"""Find measured speeds above the limit that is shown for them: the measurement or the limit has to be wrong."""

from collections.abc import Iterator
from dataclasses import dataclass

from stack.serving.measured import Measured
from stack.serving.roofline import Point, Roofline


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A measured speed above a limit. `of`: what the limit is of, in words."""

    speed: Measured
    of: str
    point: Point

    @property
    def words(self) -> str:
        """Say it in a sentence."""
        sheet = self.point.sheet_limit
        beside = "" if sheet is None else f" ({sheet:.1f} by the data sheet's bandwidth)"
        return (
            f"One of both is wrong: {self.speed.decode:.1f} tok/s were measured ({self.speed.source}), and at most "
            f"{self.point.limit:.1f}{beside} are possible at {self.point.context} tokens for {self.of}"
        )


def found(roofline: Roofline, *, steps: bool) -> tuple[Contradiction, ...]:
    """List the measured speeds above a limit; with `steps`, also those of a release above what the release can reach."""
    name = roofline.recipe.name or roofline.model
    own = (
        Contradiction(speed, name, point) for point in roofline.points for speed in point.measured if speed.decode > point.limit
    )
    listed = (*own, *(_of_release(roofline) if steps and roofline.steps else ()))
    # A speed without a context stands beside each one.
    return tuple({(each.speed, each.of, each.speed.context): each for each in reversed(listed)}.values())[::-1]


def _of_release(roofline: Roofline) -> Iterator[Contradiction]:
    released = roofline.steps[0]
    best = max(released.points, key=lambda point: point.limit)
    for speed in dict.fromkeys(speed for point in roofline.points for speed in point.measured if speed.released):
        point = next((point for point in released.points if point.context == speed.context), best)
        if speed.decode > point.limit:
            yield Contradiction(speed, f"`{released.title}`", point)
