# SPDX-License-Identifier: Apache-2.0
"""Write a recipe in the Spark community's form, which sparkrun and eugr/spark-vllm-docker read.

Values that people change stand in `defaults`, and the command names them as `{placeholders}`. What names the nodes to each other is left
out: those runners set it themselves.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from stack.base.errors import StackError
from stack.deploy import recipe_checks
from stack.deploy.node_settings import BETWEEN, ON_NODES
from stack.deploy.recipes import Recipe
from stack.serving.command import HOST, PORT

_NAMES = {
    "--tensor-parallel-size": "tensor_parallel",
    "--pipeline-parallel-size": "pipeline_parallel",
    "--data-parallel-size": "data_parallel",
}
_TAKEN = frozenset({"model", "host", "port", "revision"})
_FLAG = re.compile(r"--?[A-Za-z]")
_PLAIN = re.compile(r"[\w./:=,@%+-]+", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
_WORD = re.compile(r"\{\w{1,60}\}")
_OPEN = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")


def export(recipe: Recipe, container: str | None = None) -> str:
    """Write a recipe as YAML of version 2 of that form.

    Args:
        recipe: the recipe.
        container: the image that serves it; without it the file says to add one.

    Raises:
        StackError: the recipe has no published model, or a value that this form cannot hold.

    """
    checkpoint, machine = recipe.checkpoint, recipe.hardware
    if checkpoint is None or machine is None:
        raise StackError(f"recipe {recipe.name} has no published model", "name a recipe that has: `stack recipe list`")
    for text in (container or "", *recipe_checks.texts(recipe)):
        if not text.isprintable():
            raise StackError(f"recipe {recipe.name} has control characters in {text!r:.60}", "take them out")
    defaults: dict[str, Any] = {"port": _Plain(str(PORT)), "host": HOST}
    words = [*_words(recipe, defaults)]
    if checkpoint.revision is not None:
        defaults["revision"] = checkpoint.revision
        words.insert(0, "--revision {revision}")
    metadata = {"description": recipe.title} | ({} if machine.name == "spark" else {"hardware": machine.name})
    made: dict[str, Any] = {
        "recipe_version": "2",
        "name": recipe.name,
        "model": checkpoint.repository,
        **({} if checkpoint.revision is None else {"model_revision": checkpoint.revision}),
        "runtime": "vllm",
        **({} if container is None else {"container": container}),
        "min_nodes": machine.nodes,
        "max_nodes": machine.nodes,
        "metadata": metadata,
        "defaults": defaults,
        "env": {name: value for name, value in recipe.environment.items() if ON_NODES.get(name) != value or machine.nodes == 1},
        "command": _Block(" \\\n    ".join(("vllm serve {model}", *words, "--host {host}", "--port {port}")) + "\n"),
    }
    text = yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=10**6, allow_unicode=True)
    return "".join(f"# {line}\n" for line in _header(recipe, container)) + text


def _header(recipe: Recipe, container: str | None) -> Iterator[str]:
    """Yield the comment's lines, one for each fact: a line break in one would add a key to the file."""
    return (" ".join(fact.split()) for fact in _facts(recipe, container))


def _facts(recipe: Recipe, container: str | None) -> Iterator[str]:
    expected = recipe.backends
    named = [
        ("MoE", expected.moe),
        ("few tokens", expected.decode),
        ("linear", expected.linear),
        ("attention", expected.attention),
    ]
    yield f"Exported by `stack recipe export {recipe.name} --sparkrun`. {'Unproven.' if recipe.proven is None else 'Proven.'}"
    if any(value for _, value in named):
        yield f"Its log should name: {', '.join(f'{part} {value}' for part, value in named if value)}."
    for speed in (*recipe.speeds, *recipe.batch_speeds):
        together = f" of {speed.requests} requests" if speed.requests > 1 else ""
        yield f"{speed.decode:g} tok/s{together} after {speed.context} tokens: {speed.source}"
    yield f"host: {HOST} is this machine only. Set VLLM_API_KEY before you let others in: the runner shares the host's network."
    if container is None:
        yield "Add `container`: an image of this stack. Upstream's images lack its patches."


def _words(recipe: Recipe, defaults: dict[str, Any]) -> Iterator[str]:
    """Yield the arguments as words of the command, with values in `defaults` where they can stand there."""
    several = recipe.hardware is not None and recipe.hardware.nodes > 1
    arguments = [*recipe.arguments]
    while arguments:
        flag = arguments.pop(0)
        name, equals, value = flag.partition("=")
        values = [value] if equals else []
        while arguments and not _FLAG.match(arguments[0]) and not equals:
            values.append(arguments.pop(0))
        if several and name in BETWEEN:
            continue
        yield " ".join((shlex.quote(name), *_values(recipe, name, values, defaults)))


def _values(recipe: Recipe, name: str, values: Sequence[str], defaults: dict[str, Any]) -> Iterator[str]:
    key = _NAMES.get(name, name.lstrip("-").replace("-", "_"))
    for value in values:
        used = _OPEN.fullmatch(value)
        if used is not None:
            # A placeholder without a default: the runner asks for it.
            yield f"{{{used[1].lower()}}}"
        elif _WORD.search(value) or (_OPEN.search(value) and used is None):
            raise StackError(
                f"recipe {recipe.name}: {name} has {value!r:.60}, which this form takes for a placeholder", "change the value"
            )
        elif len(values) > 1 or key in defaults or key in _TAKEN or not key.isidentifier():
            if "{" in value or "}" in value:
                key = next(f"value_{number}" for number in range(1, 1000) if f"value_{number}" not in defaults)
                defaults[key] = shlex.quote(value)
                yield f"{{{key}}}"
            else:
                yield shlex.quote(value)
        elif _PLAIN.fullmatch(value):
            defaults[key] = _Plain(value) if _NUMBER.fullmatch(value) else value
            yield f"{{{key}}}"
        elif value[:1] == "{" and "'" not in value:
            defaults[key] = value
            yield f"'{{{key}}}'"
        else:
            defaults[key] = shlex.quote(value)
            yield f"{{{key}}}"


class _Plain(str):
    """A number, written without quotes."""

    __slots__ = ()


class _Block(str):
    """A text of several lines, written as a block."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as it is called
        return True


_Dumper.add_representer(
    _Plain,
    lambda dumper, number: dumper.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in number else 'int'}", str(number)),
)
_Dumper.add_representer(_Block, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|"))
