# SPDX-License-Identifier: Apache-2.0
"""Published checkpoints that recipes serve, and their shapes; `validation/checkpoints.toml`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.deploy.data import DATA
from stack.deploy.shapes.keys import MOST
from stack.deploy.shapes.source import LAYERS
from stack.model import document
from stack.model.document import Table

FILE = DATA / "checkpoints.toml"
SHAPES = DATA / "shapes"
"""A file for each checkpoint other than gpt-oss: what its `config.json` says, as far as it decides how many bytes a token reads."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a gpt-oss, with the names of its `config.json`. `sliding_window` applies to every other layer."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_local_experts: int
    num_experts_per_tok: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    sliding_window: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A published checkpoint: repository, revision, bytes of its weights, and shape.

    `revision` and `size` are None if nobody here has seen them, `shape` if the model is not a gpt-oss.
    """

    name: str
    repository: str
    revision: str | None
    size: int | None
    shape: Shape | None


def known() -> tuple[str, ...]:
    """Name all checkpoints."""
    return tuple(document.load(FILE))


def load(name: str) -> Checkpoint:
    """Load the checkpoint of that name.

    Raises:
        StackError: there is no such checkpoint, or the file is invalid.

    """
    table = document.entry(FILE, name, "checkpoint")
    made = Checkpoint(
        name,
        table.text("repository"),
        table.optional_text("revision", pattern="[0-9a-f]{40}", meaning="40 hex digits"),
        table.whole("size") if table.given("size") else None,
        _shape(table.table("shape")) if table.given("shape") else None,
    )
    table.finish()
    return made


def config(name: str) -> Mapping[str, Any] | None:
    """Return the keys of a checkpoint's `config.json` that are known here; None if there are none.

    Raises:
        StackError: the file is invalid.

    """
    file = SHAPES / f"{name}.json"
    if not file.is_file():
        return None
    values = _object(file)
    if not isinstance(values.get("config"), dict) or not isinstance(values.get("source"), str):
        raise StackError(f"{file} has no source or no config", "write both")
    found: Mapping[str, Any] = values["config"]
    return found


def shape(file: Path) -> Shape:
    """Read the shape from a user's `config.json`.

    Raises:
        StackError: it cannot be read, or is not that of a gpt-oss.

    """
    return shape_of(_object(file), file)


def shape_of(values: Mapping[str, Any], file: Path) -> Shape:
    """Read the shape from the content of a `config.json`; `file` is named in errors.

    Raises:
        StackError: it is not that of a gpt-oss.

    """
    # A configuration has many more keys: only these are read.
    return _shape(Table({name: values[name] for name in Shape.__slots__ if name in values}, file=file))


def _object(file: Path) -> Mapping[str, Any]:
    if not file.exists():
        raise StackError(f"{file} is missing", "name the config.json of a checkpoint")
    try:
        values = json.loads(document.read_text(file, piped=True))
    except (ValueError, RecursionError) as bad:
        raise StackError(f"{file} is not valid JSON", "name the config.json of a checkpoint") from bad
    if not isinstance(values, dict):
        raise StackError(f"{file} is not a JSON object", "name the config.json of a checkpoint")
    return values


def _shape(table: Table) -> Shape:
    made = Shape(*(table.whole(name) for name in Shape.__slots__))
    table.finish()
    for name in Shape.__slots__:
        if not getattr(made, name):
            raise table.error(name, "is 0", "write a number above 0")
        if getattr(made, name) > (LAYERS if name == "num_hidden_layers" else MOST):
            raise table.error(name, "is too large", "name a config.json as its model is published with")
    return made
