# SPDX-License-Identifier: Apache-2.0
"""Recipes: how a server is started, and its expected properties; `validation/recipes/*.toml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.deploy import checkpoints, hardware
from stack.deploy.data import DATA
from stack.model import document
from stack.model.document import Table

FOLDER = DATA / "recipes"
NAME = r"[a-z][a-z0-9-]*"
_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
GIVEN = "given"
"""The model of a recipe for a user's own server, which serves gpt-oss in any size with any weights."""
RANK = "NODE_RANK"
"""The variable with the number of the node on which a server is started; clients connect to node 0."""
TINY = ("tiny", "tiny-mxfp4")
"""The models that the validation generates."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar for the differences of log-probabilities from the reference, by `measure` (`largest` or `rms` of all differences).

    `blind`: faults that are smaller than this server's rounding errors. All other faults must differ by more than `at`.
    """

    measure: str
    at: float
    blind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of a recipe: a machine of `hardware.toml`, the number of nodes, and 10^9 bytes that the server takes on each."""

    name: str
    nodes: int
    memory: float


@dataclass(frozen=True, slots=True)
class Backends:
    """The expected backends of a server, in the words of its log; None if any is accepted.

    `decode`: the kernel for experts of few tokens, if it is not their backend's; `kv`: the type of the cache's values.
    """

    moe: str | None = None
    decode: str | None = None
    linear: str | None = None
    attention: str | None = None
    kv: str | None = None
    graphs: bool | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second that one request decodes after a prompt of `context` tokens, and the source of that measurement."""

    context: int
    decode: float
    source: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to serve a model. `flags` are required CPU flags, `log` texts that the server's log must contain.

    `variables` are names that the user must set (`${NAME}` in arguments and environment), each with its meaning. `proven`: a verdict
    in the repository that shows the recipe at work; None if there is none.
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
    backends: Backends = Backends()
    speeds: tuple[Speed, ...] = ()
    proven: str | None = None

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


def known() -> tuple[str, ...]:
    """Name all recipes."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load(name: str) -> Recipe:
    """Load the recipe of that name.

    Raises:
        StackError: there is no such recipe, or it is invalid.

    """
    if name not in known():
        raise unknown_name("recipe", name, known(), holder=f"{FOLDER.name}/", lister="stack recipe list")
    return read(FOLDER / f"{name}.toml")


def read(file: Path) -> Recipe:
    """Read a recipe from its file.

    Raises:
        StackError: it is invalid.

    """
    table = document.load(file)
    models = (*TINY, GIVEN, *checkpoints.known())
    recipe = Recipe(
        name=file.stem,
        title=table.text("title"),
        model=table.text("model", pattern="|".join(map(re.escape, models)), meaning=f"one of {', '.join(models)}"),
        arguments=table.texts("arguments", unique=False),
        environment=_pairs(table.table("environment")),
        flags=table.texts("flags"),
        log=table.texts("log"),
        bar=_bar(table.table("bar")) if table.given("bar") else None,
        variables=_pairs(table.table("variables")) if table.given("variables") else MappingProxyType({}),
        hardware=_hardware(table.table("hardware")) if table.given("hardware") else None,
        backends=_backends(table.table("backends")) if table.given("backends") else Backends(),
        speeds=tuple(map(_speed, table.tables("speed"))),
        proven=table.optional_text("proven"),
    )
    table.finish()
    _demand_named(table, recipe)
    if recipe.is_ours:
        _demand_tested(table, recipe)
    elif recipe.model != GIVEN and recipe.hardware is None:
        raise table.error("hardware", "is missing", "name its hardware")
    if (recipe.hardware is not None and recipe.hardware.nodes > 1) != (RANK in recipe.variables):
        raise table.error(
            "variables", f"and hardware.nodes disagree on {RANK}", "give it to recipes of several nodes, and to no other"
        )
    if not re.fullmatch(NAME, recipe.name):
        raise StackError(f"{file} is not a valid name of a recipe", "use lower-case letters, digits and dashes")
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


def _hardware(table: Table) -> Hardware:
    names = hardware.known()
    made = Hardware(
        table.text("name", pattern="|".join(map(re.escape, names)), meaning=f"one of {', '.join(names)}"),
        table.whole("nodes"),
        table.number("memory"),
    )
    table.finish()
    if made.nodes < 1 or made.memory <= 0:
        raise table.error(
            "nodes", f"are {made.nodes} with {made.memory} GB", "write how many nodes and how much memory it takes"
        )
    return made


def _backends(table: Table) -> Backends:
    made = Backends(
        moe=table.optional_text("moe"),
        decode=table.optional_text("decode"),
        linear=table.optional_text("linear"),
        attention=table.optional_text("attention"),
        kv=table.optional_text("kv"),
        graphs=table.flag("graphs") if table.given("graphs") else None,
    )
    table.finish()
    return made


def _speed(table: Table) -> Speed:
    made = Speed(table.whole("context"), table.number("decode"), table.text("source"))
    table.finish()
    if made.decode <= 0:
        raise table.error("decode", f"is {made.decode}", "write tokens per second")
    return made


def _pairs(table: Table) -> Mapping[str, str]:
    texts = {name: table.text(name) for name in table}
    table.finish()
    return MappingProxyType(texts)


def _bar(table: Table) -> Bar:
    bar = Bar(table.text("measure", pattern="largest|rms", meaning="largest or rms"), table.number("at"), table.texts("blind"))
    table.finish()
    if bar.at <= 0:
        raise table.error("at", f"is {bar.at}", "set it above 0: no two computations agree exactly")
    return bar
