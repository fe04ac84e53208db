# SPDX-License-Identifier: Apache-2.0
"""Compare the memory that a server takes with what this machine has available now."""

from collections.abc import Sequence

from stack.base.progress import Progress, silent
from stack.deploy.recipes import Recipe
from stack.serving import room
from stack.validation import machine


def demand(recipe: Recipe, extra: Sequence[str], patience: float, tell: Progress = silent) -> str | None:
    """Wait until a server fits into the memory that is available; refuse it if it does not after `patience` seconds.

    Return a warning if the driver may still refuse it.

    Raises:
        StackError: There is too little memory; the message has the numbers.

    """
    wanted = room.needed(recipe, machine.here(), extra)
    return room.demand(recipe, wanted, patience, tell) if wanted is not None else None
