# SPDX-License-Identifier: Apache-2.0
"""The options of `stack serve` about memory: wait until there is enough, and end the server before there is none."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from stack.base.progress import Progress
from stack.cli import sentences
from stack.cli.seconds import Gigabytes, Seconds
from stack.deploy.recipes import Recipe
from stack.model.verdict import Machine
from stack.serving import room
from stack.serving.memory_guard import MemoryGuard


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about memory to a command."""
    for option in (
        click.option(
            "--keep-free",
            type=Gigabytes(zero=False),
            metavar="GB",
            help="End the server when less memory and swap than this is left, before the machine freezes. On a DGX Spark take 8.",
        ),
        click.option(
            "--wait-for-memory",
            type=Seconds(),
            help="Seconds to wait until the memory that the recipe takes is available. Default: refuse at once.",
        ),
    ):
        command = option(command)
    return command


def demand(recipes: Sequence[Recipe], here: Machine, extra: Sequence[str], patience: float | None, tell: Progress) -> None:
    """Refuse recipes that take more memory than is available after `patience` seconds (None: at once); warn where the driver may refuse them.

    Raises:
        StackError: one of them takes more.

    """
    wanted = [(amount, recipe) for recipe in recipes if (amount := room.needed(recipe, here, extra)) is not None]
    if not wanted:
        return
    amount, recipe = max(wanted, key=lambda each: each[0])
    if warning := room.demand(recipe, amount, patience or 0.0, tell):
        sentences.tell(warning)


def guard(keep_free: float | None) -> MemoryGuard | None:
    """Return the guard that --keep-free asks for."""
    return MemoryGuard(round(keep_free * 1e9)) if keep_free is not None else None
