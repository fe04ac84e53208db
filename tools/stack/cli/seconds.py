# SPDX-License-Identifier: Apache-2.0
"""The type of options that say how long to wait."""

import math
from typing import Any

import click

_DAY = 86_400


class Seconds(click.FloatRange):
    """Seconds, from one to a day; click's own range lets NaN pass."""

    def __init__(self) -> None:
        super().__init__(min=1, max=_DAY)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that was given.

        Raises:
            click.BadParameter: it is none, or out of the range.

        """
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds
