# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding: what a recipe drafts, and how many tokens a step then makes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stack.base.errors import StackError
from stack.base.text import counted
from stack.deploy.recipes import Recipe
from stack.serving import counting, layout

OPTION = "--speculative-config"
MOST = 64
"""Most drafted tokens of a step."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: drafted tokens of a step, and the probability that one is accepted.

    `counted`: the bytes of the draft layers are known and counted; otherwise a step reads more than is counted.
    """

    drafts: int
    acceptance: float
    counted: bool

    @property
    def tokens(self) -> float:
        """Mean number of tokens of a step and request."""
        return counting.expected(self.drafts, self.acceptance)


def drafted(given: Mapping[str, str], name: str) -> int | None:
    """Return how many tokens a server's options draft in a step; None without speculation.

    Raises:
        StackError: the option is not valid, or does not say how many.

    """
    if OPTION not in given:
        return None
    try:
        value = json.loads(given[OPTION])
    except (ValueError, RecursionError):
        value = None
    count = value.get("num_speculative_tokens") if isinstance(value, dict) else None
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise StackError(f"recipe {name} has {OPTION} without num_speculative_tokens", "name --drafts, or correct the recipe")
    return count


def demand(drafts: int | None, acceptance: float | None) -> None:
    """Refuse numbers that cannot be.

    Raises:
        StackError: a number is out of range, or one is missing.

    """
    if drafts is not None and not 0 <= drafts <= MOST:
        raise StackError(f"--drafts {drafts} is out of range", f"it goes from 0 to {MOST}")
    if acceptance is not None and not 0 <= acceptance <= 1:
        raise StackError(f"--acceptance {acceptance:g} is out of range", "it goes from 0 to 1")
    if drafts and acceptance is None:
        raise StackError("--drafts without --acceptance", "name the share of the drafts that is accepted, such as 0.7")


def asked(
    recipe: Recipe, drafts: int | None, acceptance: float | None
) -> tuple[Recipe, tuple[int, float] | None, tuple[str, ...]]:
    """Return the recipe without speculation, the drafts of a step and their acceptance, and what has to be said about it.

    Raises:
        StackError: there is an acceptance, and nothing is drafted.

    """
    given = layout.options(recipe.arguments)
    own = drafted(given, recipe.name) if drafts is None else drafts or None
    if OPTION in given:
        recipe = replace(recipe, arguments=_without(recipe.arguments, OPTION))
    if own is None and acceptance is not None:
        who = f"recipe {recipe.name} drafts" if recipe.name else "without a recipe a server drafts"
        raise StackError(f"--acceptance without --drafts: {who} nothing", "name --drafts, or leave --acceptance out")
    if own is None:
        return recipe, None, ()
    if acceptance is None:
        return (
            recipe,
            None,
            (f"the recipe drafts {counted(own, 'token')} a step: --acceptance counts drafts, this is without them",),
        )
    return recipe, (own, acceptance), ()


def _without(arguments: Sequence[str], option: str) -> tuple[str, ...]:
    """Leave an option and its value out of arguments."""
    kept: list[str] = []
    skips = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name.replace("_", "-") == option:
            skips = not equals
        elif skips and not argument.startswith("-"):
            skips = False
        else:
            kept.append(argument)
            skips = False
    return tuple(kept)
