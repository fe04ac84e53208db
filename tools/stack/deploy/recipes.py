# SPDX-License-Identifier: Apache-2.0
"""Recipes: how a server is started, and its expected properties; `validation/recipes/*.toml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from stack.base import files
from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.deploy import checkpoints, derived_recipes, hardware, recipe_checks
from stack.deploy.checkpoints import Checkpoint
from stack.deploy.data import DATA
from stack.deploy.recipe_parts import (
    NO_BACKENDS,
    Backends,
    Bar,
    Hardware,
    Speed,
    read_backends,
    read_bar,
    read_hardware,
    read_speed,
)
from stack.model.document import Table

__all__ = ["Backends", "Bar", "Hardware", "Recipe", "Speed", "hardware", "known", "load", "read"]

FOLDER = DATA / "recipes"
OWN = Path("validation/recipes")
"""The folder of a stack's own recipes, below the stack's folder."""
NAME = derived_recipes.NAME
REPOSITORY = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
"""A model that is named by its repository, for recipes whose checkpoint is not in `checkpoints.toml`."""
_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
GIVEN = "given"
"""The model of a recipe for a user's own server, which serves gpt-oss in any size with any weights."""
RANK = "NODE_RANK"
"""The variable with the number of the node on which a server is started; clients connect to node 0."""
_MOST = 1000
"""Recipes of a stack's own."""
TINY = ("tiny", "tiny-mxfp4")
"""The models that the validation generates."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to serve a model. `flags` are required CPU flags, `log` texts that the server's log must contain.

    `model`: a checkpoint of `checkpoints.toml`, one of the validation, `given`, or a repository with the `revision` of it to serve.
    `variables` are names that the user must set (`${NAME}` in arguments and environment), each with its meaning. `proven`: a verdict
    in the repository that shows the recipe at work; None if there is none. `base`: the recipe that this one changes. `speeds` are of
    one request, `batch_speeds` of several at once.
    """

    name: str
    title: str
    model: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    flags: tuple[str, ...]
    log: tuple[str, ...] = ()
    bar: Bar | None = None
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hardware: Hardware | None = None
    backends: Backends = NO_BACKENDS
    speeds: tuple[Speed, ...] = ()
    batch_speeds: tuple[Speed, ...] = ()
    proven: str | None = None
    base: str | None = None
    revision: str | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The published checkpoint that it serves; None for a model of the validation or the user."""
        if self.model in checkpoints.known():
            return checkpoints.load(self.model)
        return Checkpoint(self.model, self.model, self.revision, None, None) if "/" in self.model else None

    @property
    def is_ours(self) -> bool:
        """Whether the validation generates its model."""
        return self.model in TINY


def filled(text: str, variables: Mapping[str, str]) -> str:
    """Replace `${NAME}` in an argument or a value of a recipe by the variable's value."""
    return _VARIABLE.sub(lambda found: variables[found[1]], text)


def ours() -> tuple[str, ...]:
    """Name the recipes that serve a model of our own."""
    return tuple(name for name in known() if load(name).is_ours)


def servable(name: str, otherwise: str) -> Recipe:
    """Load the recipe of that name, which must serve a model of our own. `otherwise` is the alternative that an error names.

    Raises:
        StackError: there is no such recipe, or it has another model.

    """
    recipe = load(name)
    if not recipe.is_ours:
        raise StackError(f"recipe {name} has no model of ours", f"{otherwise}, or use {', '.join(ours())}")
    return recipe


def known(root: Path | None = None) -> tuple[str, ...]:
    """Name all recipes: those that come with the package, and those of the stack in `root`."""
    return tuple(sorted(_files(root)))


def load(name: str, root: Path | None = None) -> Recipe:
    """Load the recipe of that name. One of the stack in `root` comes before one of the package.

    Raises:
        StackError: there is no such recipe, or it is invalid.

    """
    found = _files(root)
    if name not in found:
        raise unknown_name("recipe", name, sorted(found), holder=f"{FOLDER.name}/", lister="stack recipe list")
    return read(found[name])


def verdict_file(recipe: Recipe, root: Path | None = None) -> Path | None:
    """Return the file of the verdict that shows a recipe at work; None if it has none, or this installation has no such file.

    A recipe of the stack in `root` has its verdict there. The package leaves out archived verdicts, which only the repository has.

    Raises:
        StackError: the path leads through a link.

    """
    if recipe.proven is None:
        return None
    is_own = root is not None and FOLDER not in _files(root)[recipe.name].parents
    place = recipe_checks.proof(root / OWN.parent if root is not None and is_own else DATA, recipe.proven)
    return place if is_own or place.exists() else None


def _files(root: Path | None) -> dict[str, Path]:
    """Find the recipes' files by name."""
    found = {path.stem: path for path in FOLDER.glob("*.toml")}
    if root is None or not (own := root / OWN).is_dir():
        return found
    files.check_tree(own)  # a checkout's files may come from somebody else
    named = {path.stem: path for path in own.glob("*.toml")}
    if len(named) > _MOST:
        raise StackError(f"{own} has more than {_MOST} recipes", "remove some")
    return found | named


def read(file: Path) -> Recipe:
    """Read a recipe from its file, with what it takes from its base.

    Raises:
        StackError: it is invalid.

    """
    if not re.fullmatch(NAME, file.stem):
        raise StackError(f"{file} is not a valid name of a recipe", "use lower-case letters, digits and dashes")
    table, base = derived_recipes.load(file, FOLDER)
    models = (*TINY, GIVEN, *checkpoints.known())
    speeds = tuple(map(read_speed, table.tables("speed")))
    recipe = Recipe(
        name=file.stem,
        title=table.text("title"),
        model=table.text(
            "model",
            pattern="|".join((*map(re.escape, models), REPOSITORY)),
            meaning=f"a repository (OWNER/NAME), or one of {', '.join(models)}",
        ),
        arguments=table.texts("arguments", unique=False),
        environment=recipe_checks.pairs(table.table("environment")),
        flags=table.texts("flags"),
        log=table.texts("log"),
        bar=read_bar(table.table("bar")) if table.given("bar") else None,
        variables=recipe_checks.pairs(table.table("variables")) if table.given("variables") else MappingProxyType({}),
        hardware=read_hardware(table.table("hardware")) if table.given("hardware") else None,
        backends=read_backends(table.table("backends")) if table.given("backends") else NO_BACKENDS,
        speeds=tuple(each for each in speeds if each.requests == 1),
        batch_speeds=tuple(each for each in speeds if each.requests > 1),
        proven=table.optional_text(
            "proven", pattern=recipe_checks.PROOF, meaning="a verdict below validation/verdicts, FOLDER/NAME.json"
        ),
        base=base,
        revision=table.optional_text("revision", pattern="[0-9a-f]{40}", meaning="40 hex digits"),
    )
    table.finish()
    if recipe.revision is not None and "/" not in recipe.model:
        raise table.error("revision", f"is of {recipe.model}, which is no repository", "leave it out")
    recipe_checks.demand_printable(table, recipe)
    _demand_named(table, recipe)
    if recipe.is_ours:
        _demand_tested(table, recipe)
    elif recipe.model != GIVEN and recipe.hardware is None:
        raise table.error("hardware", "is missing", "name its hardware")
    if (recipe.hardware is not None and recipe.hardware.nodes > 1) != (RANK in recipe.variables):
        raise table.error(
            "variables", f"and hardware.nodes disagree on {RANK}", "give it to recipes of several nodes, and to no other"
        )
    return recipe


def _demand_tested(table: Table, recipe: Recipe) -> None:
    if recipe.bar is None:
        raise table.error("bar", "is missing", "set how far log-probabilities may be off the reference")
    if not recipe.log:
        raise table.error("log", "is empty", "name the log's lines about backends: a server may choose others")


def _demand_named(table: Table, recipe: Recipe) -> None:
    """Check that exactly the named variables are used."""
    texts = (*recipe.arguments, *recipe.environment.values())
    used = {name for text in texts for name in _VARIABLE.findall(text)}
    if odd := [text for text in texts if "$" in _VARIABLE.sub("", text)]:
        raise table.error("arguments", f"or environment has {odd[0]!r:.100}", "write $ before a variable's name in braces only")
    if odd := sorted(used ^ {*recipe.variables}):
        raise table.error(
            "variables",
            f"and the arguments disagree on {odd[0]}",
            "name every variable that is used, and use every one that is named",
        )
