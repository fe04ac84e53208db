# SPDX-License-Identifier: Apache-2.0
"""Option types for numbers: waiting times, and amounts of memory."""

import math
from typing import Any

import click

_DAY = 86_400
_MOST_GIGABYTES = 100_000


class _Number(click.FloatRange):
    """A number within a range; click's own range accepts NaN."""

    unit = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse and check the number.

        Raises:
            click.BadParameter: The value is not a number, or out of range.

        """
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is no {self.unit}.", param, ctx)
        return number


class Seconds(_Number):
    """Seconds, from one to a day."""

    unit = "number of seconds"

    def __init__(self) -> None:
        super().__init__(min=1, max=_DAY)


class Gigabytes(_Number):
    """GB of memory; `zero`: whether it may be 0."""

    unit = "number of GB"

    def __init__(self, *, zero: bool) -> None:
        super().__init__(min=0, max=_MOST_GIGABYTES, min_open=not zero)
