# SPDX-License-Identifier: Apache-2.0
"""Callbacks that long work reports its progress to."""

from collections.abc import Callable
from typing import Protocol

Count = Callable[[int, int | None], None]
"""Receives how much of one step is done, and of how much in total, None if that is unknown."""


class Progress(Protocol):
    """Receives a step in words; for a step that can be measured, also how much is done (such as bytes), and of how much."""

    def __call__(self, step: str, done: int = 0, total: int | None = None, /) -> None:
        """Report progress."""


def silent(_step: str, _done: int = 0, _total: int | None = None, /) -> None:
    """Ignore progress."""
