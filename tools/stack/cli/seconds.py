# SPDX-License-Identifier: Apache-2.0
"""The option type for waiting times."""

import math
from typing import Any

import click

_DAY = 86_400


class Seconds(click.FloatRange):
    """Seconds, from one to a day; click's own range accepts NaN."""

    def __init__(self) -> None:
        super().__init__(min=1, max=_DAY)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse and check the number.

        Raises:
            click.BadParameter: The value is not a number, or out of range.

        """
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds
