# SPDX-License-Identifier: Apache-2.0
"""The command that starts a recipe's server: all arguments of `vllm serve`, and the variables that it gets.

No secret is part of it: a server takes its API key from VLLM_API_KEY in the environment that it is started in.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy import checkpoints
from stack.deploy.recipes import GIVEN, RANK, Recipe, filled

HOST = "127.0.0.1"
"""Where a server listens unless it is told otherwise: nobody but this machine can ask it."""
PORT = 8000
"""vLLM's own."""
_OPEN = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")
HEAD = "0"
"""The rank of the node that clients ask; the others have no API."""


@dataclass(frozen=True, slots=True)
class Command:
    """What is run, and the variables beside those that are there already."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def __str__(self) -> str:
        """A line for a shell."""
        given = [f"{name}={_word(value)}" for name, value in self.environment.items()]
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
    """The command that starts a recipe's server.

    Args:
        recipe: how to serve.
        variables: what the recipe leaves to the user; all of it.
        host: where the server listens. A node that has no API listens nowhere.
        port: the port there, or what stands for it in a file that somebody else fills in.
        model_path: the folder of the checkpoint; without it the published one is served, at its pinned revision.
        extra: further arguments of `vllm serve`; the last one counts where a flag is given twice.

    Raises:
        StackError: a variable is missing or unknown, or the recipe's model is none that is published.

    """
    _demand(recipe, variables)
    made = [*_model(recipe, model_path), *(filled(one, variables) for one in recipe.arguments)]
    made += ["--headless"] if variables.get(RANK, HEAD) != HEAD else ["--host", host, "--port", str(port)]
    environment = {name: filled(value, variables) for name, value in recipe.environment.items()}
    return Command(("vllm", "serve", *made, *extra), MappingProxyType(environment))


def shown(recipe: Recipe, variables: Mapping[str, str], model_path: Path | None = None) -> tuple[Command, ...]:
    """The commands of a recipe for people to read: one for each node, with what they have not said left to the shell.

    Raises:
        StackError: a variable is unknown, or a rank is none.

    """
    if model_path is None and recipe.model not in checkpoints.known():
        model_path = Path("${MODEL}")
    asked = {name: f"${{{name}}}" for name in recipe.variables} | dict(variables)
    if RANK not in recipe.variables or RANK in variables:
        return (command(recipe, asked, model_path=model_path),)
    nodes = recipe.hardware.nodes if recipe.hardware is not None else 1
    return tuple(command(recipe, asked | {RANK: str(rank)}, model_path=model_path) for rank in range(nodes))


def pairs(given: Iterable[str]) -> Mapping[str, str]:
    """Variables as a user writes them: NAME=VALUE.

    Raises:
        StackError: one is written otherwise, or twice.

    """
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name) or not value:
            raise StackError(f"{one!r:.100} sets no variable", "write NAME=VALUE")
        if name in found:
            raise StackError(f"{name} is set twice", "set it once")
        found[name] = value
    return MappingProxyType(found)


def _word(text: str) -> str:
    """A word for a shell; what is still to be filled in is the shell's to fill in."""
    plain, *rest = _OPEN.split(text)
    if not rest:
        return shlex.quote(text)
    names, between = rest[::2], (plain, *rest[1::2])
    if between == ("", ""):
        return f'"${names[0]}"'
    kept = [re.sub(r'([\\"`$])', r"\\\1", one) for one in between]
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
    if recipe.model in checkpoints.known():
        checkpoint = checkpoints.load(recipe.model)
        if folder is not None:
            # Clients call it what they call the published one.
            return (str(folder), "--served-model-name", checkpoint.repository)
        return (checkpoint.repository, "--revision", checkpoint.revision)
    if folder is None:
        what = "is whatever you serve" if recipe.model == GIVEN else "is written by the validation"
        raise StackError(f"the model of recipe {recipe.name} {what}", "name its folder with --model")
    return (str(folder),)
