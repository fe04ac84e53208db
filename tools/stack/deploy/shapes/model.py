# SPDX-License-Identifier: Apache-2.0
"""A model's memory traffic in a decoding step, as plain data: matrices, caches that grow with the context, states that do not."""

from dataclasses import dataclass
from enum import StrEnum

from stack.base.errors import StackError
from stack.deploy.formats import Format


class Split(StrEnum):
    """How tensor parallelism divides a matrix: by its outputs, by its inputs, or not at all."""

    ROWS = "rows"
    COLUMNS = "columns"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of `rows` outputs and `columns` inputs in a format, in a component of the table.

    `heads`: it has that many heads of keys or values, of which each node holds at least one. `experts` and `chosen`: there are that many
    such matrices, of which each token chooses some; both 0 for a matrix that every token reads.
    """

    component: str
    form: Format
    rows: int
    columns: int
    split: Split = Split.WHOLE
    heads: int = 0
    experts: int = 0
    chosen: int = 0

    def size(self, nodes: int) -> int:
        """Count the bytes of one node's share of one such matrix.

        Raises:
            StackError: that many nodes cannot divide it.

        """
        rows, columns = self.rows, self.columns
        if self.heads:
            rows = rows // self.heads * share_of_heads(self.heads, nodes)
        elif self.split is Split.ROWS:
            rows = _part(rows, nodes, self.component)
        elif self.split is Split.COLUMNS:
            columns = _part(columns, nodes, self.component)
        return self.form.size(rows, columns)


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache of one layer: `heads` times `values` numbers for each token, at most `window` tokens of it.

    `heads` is 0 for latent attention (MLA), whose cache every node holds whole.
    """

    values: int
    heads: int = 0
    window: int | None = None

    def size(self, form: Format, context: int, nodes: int) -> float:
        """Count the bytes of one request on one node."""
        tokens = context if self.window is None else min(context, self.window)
        return tokens * self.values * (share_of_heads(self.heads, nodes) if self.heads else 1) * form.bits / 8


@dataclass(frozen=True, slots=True)
class State:
    """The state of one linear-attention or Mamba layer for one request: bytes that a step reads and writes, whatever the context."""

    heads: int
    size: int

    def moved(self, nodes: int) -> float:
        """Count the bytes that one node reads and writes for one request."""
        return 2 * self.size / _divided(self.heads, nodes, "state")


@dataclass(frozen=True, slots=True)
class Draft:
    """The model's own draft layers (MTP): what one draft token reads."""

    matrices: tuple[Matrix, ...]
    caches: tuple[Cache, ...]


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its kind, the longest context, its own type, and what a step reads.

    `kv`: the format that the checkpoint names for its cache. `quantized`: the configuration names formats of weights. `tied`: the output
    head shares the embedding.
    """

    kind: str
    longest: int
    dense: Format
    matrices: tuple[Matrix, ...]
    caches: tuple[Cache, ...]
    states: tuple[State, ...] = ()
    draft: Draft | None = None
    kv: str | None = None
    quantized: bool = True
    tied: bool = False


def share_of_heads(heads: int, nodes: int) -> int:
    """Return the KV heads of one node; if there are more nodes than heads, nodes have copies.

    Raises:
        StackError: they cannot be divided.

    """
    if heads % nodes and nodes % heads:
        raise StackError(f"{heads} KV heads cannot be divided among {nodes} nodes", "name another --nodes")
    return max(1, heads // nodes)


def _part(size: int, nodes: int, component: str) -> int:
    if size % nodes:
        raise StackError(f"{component}: {size} cannot be divided among {nodes} nodes", "name another --nodes")
    return size // nodes


def _divided(heads: int, nodes: int, component: str) -> int:
    _part(heads, nodes, component)
    return nodes
