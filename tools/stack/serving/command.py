# SPDX-License-Identifier: Apache-2.0
"""Build the command that starts a recipe's server: all arguments of `vllm serve`, and its variables.

It contains no secret: a server takes its API key from VLLM_API_KEY in its environment.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy.recipes import GIVEN, RANK, Recipe, filled

HOST = "127.0.0.1"
"""Default address of a server: only this machine can reach it."""
PORT = 8000
"""vLLM's default port."""
_OPEN = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
HEAD = "0"
"""Rank of the node that clients connect to; the others have no API."""


@dataclass(frozen=True, slots=True)
class Command:
    """Arguments, and the variables that are added to the environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        """Return a line for a shell."""
        # A name is quoted, too: a shell runs a word that is not a variable's name as a command.
        given = [f"{shlex.quote(name)}={_word(value)}" for name, value in self.environment.items()]
        return " ".join((*given, *map(_word, self.arguments)))


def command(
    recipe: Recipe,
    variables: Mapping[str, str],
    *,
    host: str = HOST,
    port: int | str = PORT,
    model_path: Path | None = None,
    extra: Sequence[str] = (),
) -> Command:
    """Build the command that starts a recipe's server.

    Args:
        recipe: how to serve.
        variables: values of all variables of the recipe.
        host: the address at which the server listens. A node without an API does not listen.
        port: the port, or a placeholder in a file.
        model_path: the folder of the checkpoint; without it, the published one is served at its pinned revision.
        extra: further arguments of `vllm serve`; if a flag is given twice, the last one counts.

    Raises:
        StackError: a variable is missing or unknown, or the recipe's model is not published and has no folder.

    """
    _demand(recipe, variables)
    made = [*_model(recipe, model_path), *(filled(argument, variables) for argument in recipe.arguments)]
    made += ["--headless"] if variables.get(RANK, HEAD) != HEAD else ["--host", host, "--port", str(port)]
    environment = {name: filled(value, variables) for name, value in recipe.environment.items()}
    return Command(("vllm", "serve", *made, *extra), MappingProxyType(environment))


def shown(recipe: Recipe, variables: Mapping[str, str], model_path: Path | None = None) -> tuple[Command, ...]:
    """Build the commands of a recipe for display, one per node; variables without a value are left to the shell.

    Raises:
        StackError: a variable is unknown, or a rank is out of range.

    """
    if model_path is None and recipe.checkpoint is None:
        model_path = Path("${MODEL}")
    values = {name: f"${{{name}}}" for name in recipe.variables} | dict(variables)
    if RANK not in recipe.variables or RANK in variables:
        return (command(recipe, values, model_path=model_path),)
    nodes = recipe.hardware.nodes if recipe.hardware is not None else 1
    return tuple(command(recipe, values | {RANK: str(rank)}, model_path=model_path) for rank in range(nodes))


def pairs(given: Iterable[str]) -> Mapping[str, str]:
    """Parse variables in the form NAME=VALUE.

    Raises:
        StackError: one has another form, or is given twice.

    """
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name) or not value:
            raise StackError(f"{text!r:.100} sets no variable", "write NAME=VALUE")
        if name in values:
            raise StackError(f"{name} is set twice", "set it once")
        values[name] = value
    return MappingProxyType(values)


def _word(text: str) -> str:
    """Quote a word for a shell; variables in it are left to the shell."""
    plain, *rest = _OPEN.split(text)
    if not rest:
        return shlex.quote(text)
    names, between = rest[::2], (plain, *rest[1::2])
    if between == ("", ""):
        return f'"${names[0]}"'
    kept = [re.sub(r'([\\"`$])', r"\\\1", part) for part in between]
    return f'"{kept[0]}{"".join(f"${{{name}}}{after}" for name, after in zip(names, kept[1:], strict=True))}"'


def _demand(recipe: Recipe, variables: Mapping[str, str]) -> None:
    for name, meaning in recipe.variables.items():
        if not variables.get(name):
            raise StackError(f"recipe {recipe.name} needs {name}, {meaning}", f"--set {name}=…")
    if odd := sorted({*variables} - {*recipe.variables}):
        named = ", ".join(recipe.variables) or "none"
        raise StackError(f"recipe {recipe.name} has no variable {odd[0]}", f"it has {named}")
    if recipe.hardware is not None and (rank := variables.get(RANK, HEAD)) not in map(str, range(recipe.hardware.nodes)):
        raise StackError(f"{RANK} is {rank!r:.100}", f"recipe {recipe.name} has nodes 0 to {recipe.hardware.nodes - 1}")


def _model(recipe: Recipe, folder: Path | None) -> tuple[str, ...]:
    if (checkpoint := recipe.checkpoint) is not None:
        if folder is not None:
            # Clients call it by the published name.
            return (str(folder), "--served-model-name", checkpoint.repository)
        return (checkpoint.repository, *(() if checkpoint.revision is None else ("--revision", checkpoint.revision)))
    if folder is None:
        what = "is the one that you serve" if recipe.model == GIVEN else "is written by the validation"
        raise StackError(f"the model of recipe {recipe.name} {what}", "name its folder with --model")
    return (str(folder),)
