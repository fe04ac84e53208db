# SPDX-License-Identifier: Apache-2.0
"""Compare what a server takes with the memory that is available, where CPU and GPU share it; refuse, or wait."""

import re
import time
from collections.abc import Callable, Sequence

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.deploy import available_memory, memory_advice
from stack.deploy.available_memory import Memory
from stack.deploy.recipes import Recipe
from stack.model.verdict import Machine

TINY = 5e9
"""Bytes that a server with one of the validation's models takes; 4.4 to 4.9 * 10^9 were measured."""
_FLAG = "--gpu-memory-utilization"
_SHARE = re.compile(r"0?\.[0-9]{1,6}|1(?:\.0{1,6})?")
_PAUSE = 1.0


def needed(recipe: Recipe, machine: Machine, extra: Sequence[str] = ()) -> float | None:
    """Return the bytes of the machine's own memory that a server takes; None if its GPU has a memory of its own, or nobody knows.

    Args:
        recipe: how it is served.
        machine: where.
        extra: further arguments of `vllm serve`, whose share of the memory replaces the recipe's.

    """
    if recipe.hardware is None:
        return TINY if recipe.is_ours else None
    if not machine.gpus or machine.gpus[0].memory is not None:
        return None
    given = share(extra)
    return given * machine.memory if given is not None else recipe.hardware.memory * 1e9


def share(arguments: Sequence[str]) -> float | None:
    """Return the last share of the memory among arguments of `vllm serve`; None if there is none that can be read."""
    found = None
    for place, word in enumerate(arguments):
        name, equals, value = word.replace("_", "-").partition("=")
        if name == _FLAG:
            found = value if equals else arguments[place + 1] if place + 1 < len(arguments) else ""
    return float(found) if found is not None and _SHARE.fullmatch(found) else None


def demand(
    recipe: Recipe,
    wanted: float,
    patience: float,
    tell: Progress,
    look: Callable[[], Memory] | None = None,
) -> str | None:
    """Wait until a server fits into the available memory. Return a warning if the driver may still refuse it.

    Args:
        recipe: its recipe.
        wanted: the bytes that it takes.
        patience: seconds to wait.
        tell: gets what is available, and what is wanted, in GB.
        look: reads the memory; by default this machine's.

    Raises:
        StackError: it does not fit after that time; with what is available, and what frees memory.

    """
    until, look = time.monotonic() + patience, look or available_memory.read
    while (memory := look()).usable < wanted:
        left = until - time.monotonic()
        if left <= 0:
            raise StackError(_refusal(recipe, wanted, memory, patience), _remedy(wanted, memory))
        tell("waiting for memory, in GB", round(memory.usable / 1e9), round(wanted / 1e9))
        time.sleep(min(_PAUSE, left))
    # A recipe for CPUs has no driver.
    return memory_advice.hidden(memory, wanted) if recipe.hardware is not None else None


def _refusal(recipe: Recipe, wanted: float, memory: Memory, patience: float) -> str:
    after = f"after {patience:g} s " if patience else ""
    return f"recipe {recipe.name} takes {memory_advice.gigabytes(wanted)}, and {after}{memory_advice.numbers(memory)}"


def _remedy(wanted: float, memory: Memory) -> str:
    steps = [*memory_advice.steps(memory)]
    if memory.limit is not None and memory.limit < wanted <= memory.available:
        steps = ["raise the memory limit of this container or service"]
    if not steps:
        steps = ["end other programs (free -h; ps aux --sort=-rss), or use a smaller model"]
    return "; or ".join([*steps, "--wait-for-memory SECONDS waits for it"])
