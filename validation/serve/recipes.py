# SPDX-License-Identifier: Apache-2.0
"""Recipes: how a server is started, and what is expected of it; `validation/recipes/*.toml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stack.model import document
from stack.model.document import Table
from stack.model.errors import StackError

FOLDER = Path(__file__).parents[1] / "recipes"
NAME = r"[a-z][a-z0-9-]*"
GIVEN = "given"
"""The model of a recipe that asks a server of somebody's own, with gpt-oss in whatever size and with whatever weights."""
MODELS = ("tiny", "tiny-mxfp4", GIVEN)
"""The models that the validation writes itself, and those that it is given."""


@dataclass(frozen=True, slots=True)
class Bar:
    """How far log-probabilities may be off the reference, by `measure` (`largest` or `rms` of all differences).

    `blind`: faults that drown in this server's rounding; all others have to be farther off than `at`.
    """

    measure: str
    at: float
    blind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to serve: `flags` are what the CPU has to have, `log` what the server's log has to say of its backends."""

    name: str
    title: str
    model: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    flags: tuple[str, ...]
    log: tuple[str, ...] = ()
    bar: Bar | None = None


def ours() -> tuple[str, ...]:
    """The names of the recipes that serve a model of our own."""
    return tuple(name for name in known() if load(name).model != GIVEN)


def known() -> tuple[str, ...]:
    """The names of all recipes."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        StackError: there is none, or it is not as it should be.

    """
    if name not in known():
        raise StackError(f"unknown recipe {name!r}", f"{FOLDER.name}/ has {', '.join(known())}")
    return read(FOLDER / f"{name}.toml")


def read(file: Path) -> Recipe:
    """A recipe from its file.

    Raises:
        StackError: it is not as it should be.

    """
    table = document.load(file)
    recipe = Recipe(
        name=file.stem,
        title=table.text("title"),
        model=table.text("model", pattern="|".join(MODELS), meaning=" or ".join(MODELS)),
        arguments=table.texts("arguments"),
        environment=_environment(table.table("environment")),
        flags=table.texts("flags"),
        log=table.texts("log"),
        bar=_bar(table.table("bar")) if table.given("bar") else None,
    )
    table.finish()
    if recipe.model == GIVEN:
        return recipe
    if recipe.bar is None:
        raise table.error("bar", "is missing", "say how far log-probabilities may be off the reference")
    if not re.fullmatch(NAME, recipe.name):
        raise StackError(f"{file} is no name for a recipe", "use lower-case letters, digits and dashes")
    if not recipe.log:
        raise table.error("log", "is empty", "name what the log says of the backends: a server may have chosen others")
    return recipe


def _environment(table: Table) -> Mapping[str, str]:
    found = {name: table.text(name) for name in table}
    table.finish()
    return MappingProxyType(found)


def _bar(table: Table) -> Bar:
    bar = Bar(table.text("measure", pattern="largest|rms", meaning="largest or rms"), table.number("at"), table.texts("blind"))
    table.finish()
    if bar.at <= 0:
        raise table.error("at", f"is {bar.at}", "no two computations agree so well")
    return bar
