# SPDX-License-Identifier: Apache-2.0
"""Count the memory that a model takes: its weights, and for each request the KV cache and the states of its layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.deploy import checkpoints, formats
from stack.deploy.checkpoints import Checkpoint, Shape
from stack.deploy.formats import Format
from stack.deploy.shapes import config_file
from stack.deploy.shapes.model import Cache, Matrix, Model, State

_GPT_OSS = 131072
"""Context of a gpt-oss (its config.json)."""
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Needs:
    """The memory that a model takes.

    `weights`: bytes of all of them; None if they are not known. `heads`: of attention, None if it has none, or they are not known.
    `longest`: the most tokens of a request. `kv`: the format that the checkpoint names for its cache, None for `dense`, the model's own.
    `quantized`: the checkpoint names formats of its weights.
    """

    name: str
    weights: int | None
    heads: int | None
    longest: int
    dense: Format
    caches: tuple[Cache, ...]
    states: tuple[State, ...] = ()
    kv: str | None = None
    quantized: bool = True

    def cache(self, named: str) -> Format | None:
        """Return the format of the KV cache by `--kv-cache-dtype`; None if it is not known."""
        try:
            return formats.cache(self.kv if named == "auto" and self.kv is not None else named, self.dense)
        except StackError:
            return None

    def request(self, form: Format, tokens: int, nodes: int) -> float:
        """Count the bytes that a request of that length takes on each of `nodes`, which share the model tensor parallel.

        Raises:
            StackError: that many nodes cannot divide the model.

        """
        return sum(cache.size(form, tokens, nodes) for cache in self.caches) + self.state(nodes)

    def state(self, nodes: int) -> float:
        """Count the bytes that each request takes on each node whatever its length.

        Raises:
            StackError: that many nodes cannot divide the model.

        """
        return sum(state.moved(nodes) for state in self.states) / 2  # `moved` counts reading and writing

    def fitting(self, form: Format, size: float, nodes: int) -> int:
        """Return the length of the longest request that fits into `size` bytes on each node.

        Raises:
            StackError: that many nodes cannot divide the model.

        """
        low, high = 0, self.longest
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request(form, middle, nodes) <= size else (low, middle - 1)
        return low


def of_checkpoint(checkpoint: Checkpoint, capability: str) -> Needs | None:
    """Return what a published checkpoint needs; None if its shape is not known here.

    Raises:
        StackError: the file with its shape is invalid.

    """
    if checkpoint.shape is not None:
        return _of_gpt_oss(checkpoint.name, checkpoint.shape, checkpoint.size)
    values = checkpoints.config(checkpoint.name)
    if values is None:
        return None
    return _of_model(checkpoint.name, values, f"the shape of {checkpoint.repository}", capability, checkpoint.size)


def of_folder(folder: Path, capability: str) -> Needs | None:
    """Return what the checkpoint in a folder of this machine needs; None if it has no `config.json`.

    Raises:
        StackError: it cannot be read, or is of a kind that is not counted.

    """
    file = folder / _CONFIG
    if not file.is_file():  # no pipe or device: it may never end
        return None
    values = config_file.load(file)
    size = _files(folder)
    if config_file.kind(values) == config_file.GPT_OSS:
        return _of_gpt_oss(folder.name, checkpoints.shape_of(values, file), size)
    return _of_model(folder.name, config_file.formats_beside(file, values), str(file), capability, size)


def _files(folder: Path) -> int | None:
    """Return the bytes of a folder's weights; None if there are none."""
    found = [file for file in folder.glob("*.safetensors") if file.is_file()]
    shards = [file for file in found if not file.name.startswith("consolidated")] or found
    return sum(file.stat().st_size for file in shards) or None


def _of_gpt_oss(name: str, shape: Shape, size: int | None) -> Needs:
    """Return what a gpt-oss needs: every other layer keeps a window only."""
    caches = tuple(
        Cache(2 * shape.head_dim, shape.num_key_value_heads, shape.sliding_window if layer % 2 == 0 else None)
        for layer in range(shape.num_hidden_layers)
    )
    return Needs(name, size, shape.num_attention_heads, _GPT_OSS, formats.BF16, caches)


def _of_model(name: str, values: Mapping[str, Any], where: str, capability: str, size: int | None) -> Needs:
    model = config_file.model(values, where, capability)
    inner = values.get("text_config")
    heads = (inner if isinstance(inner, dict) else values).get("num_attention_heads")
    weights = size if size is not None else _weights(model)
    heads = heads if isinstance(heads, int) else None
    return Needs(name, weights, heads, model.longest, model.dense, model.caches, model.states, model.kv, model.quantized)


def _weights(model: Model) -> int:
    """Count the bytes of all matrices of a model without its draft layers, and of its embedding."""
    matrices = sum(_size(matrix) for matrix in model.matrices)
    head = next((matrix for matrix in model.matrices if matrix.component == "lm_head"), None)
    return matrices + (model.dense.size(head.rows, head.columns) if head is not None and not model.tied else 0)


def _size(matrix: Matrix) -> int:
    return (matrix.experts or 1) * matrix.size(1)
