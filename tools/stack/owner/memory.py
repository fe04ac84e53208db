# SPDX-License-Identifier: Apache-2.0
"""Compare the memory that a recipe takes with what this machine has available now."""

import time

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.deploy import available_memory, memory_advice
from stack.deploy.recipes import Recipe
from stack.validation import machine

_TINY = 5e9
"""Bytes that a server with one of the validation's models takes."""
_PAUSE = 1.0


def demand(recipe: Recipe, patience: float, tell: Progress) -> None:
    """Wait until a recipe's server fits into the memory that is available; refuse it if it does not after `patience` seconds.

    Raises:
        StackError: There is too little memory; the message has the numbers.

    """
    wanted = _wanted(recipe)
    until = time.monotonic() + patience
    while wanted is not None and (memory := available_memory.read()).usable < wanted:
        if time.monotonic() >= until:
            steps = [*memory_advice.steps(memory), "--wait-for-memory SECONDS waits for it"]
            raise StackError(
                f"recipe {recipe.name} takes {memory_advice.gigabytes(wanted)}, and {memory_advice.numbers(memory)}",
                "; or ".join(steps),
            )
        tell("waiting for memory, in GB", round(memory.usable / 1e9), round(wanted / 1e9))
        time.sleep(_PAUSE)


def _wanted(recipe: Recipe) -> float | None:
    """Return the bytes of the machine's own memory that a server takes; None if its GPU has a memory of its own, or nobody knows."""
    if recipe.hardware is None:
        return _TINY if recipe.is_ours else None
    gpus = machine.here().gpus
    return recipe.hardware.memory * 1e9 if gpus and gpus[0].memory is None else None
