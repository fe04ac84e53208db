# SPDX-License-Identifier: Apache-2.0
"""Write the table of all recipes into `docs/recipes.md`; the rest of that page is written by hand."""

from pathlib import Path

from stack.deploy import recipes
from stack.deploy.recipes import Recipe, Speed

_PAGE = Path(__file__).parents[1] / "recipes.md"
_BEGIN, _END = "<!-- recipes: `make reference` writes this table -->\n", "<!-- /recipes -->\n"
_HEAD = "| recipe | serves | hardware | GB a node | tokens/s |\n|---|---|---|---|---|\n"


def page() -> str:
    """Return the page with the table as the recipes are now."""
    before, begin, rest = _PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert begin and end, f"{_PAGE} has no place for the table"
    rows = "".join(_row(recipes.load(name)) for name in recipes.known())
    return f"{before}{_BEGIN}\n{_HEAD}{rows}\n{_END}{after}"


def _row(recipe: Recipe) -> str:
    machine = recipe.hardware
    where = "a CPU" if recipe.is_ours else "any"
    if machine is not None:
        where = f"{machine.nodes} x {machine.name}" if machine.nodes > 1 else machine.name
    proof = "" if recipe.proven is None else f" ([proof](../{recipe.proven}))"
    memory = "" if machine is None else f"{machine.memory:g}"
    return f"| `{recipe.name}` | {recipe.title}{proof} | {where} | {memory} | {_speeds(recipe)} |\n"


def _speeds(recipe: Recipe) -> str:
    measured = (*recipe.speeds[:1], *recipe.batch_speeds[:1])
    return "; ".join(map(_speed, measured)) or "-"


def _speed(speed: Speed) -> str:
    together = f" with {speed.requests} requests" if speed.requests > 1 else ""
    return f"{speed.decode:.0f}{together} ({speed.by})"
