# SPDX-License-Identifier: Apache-2.0
"""Count the bytes that a decoding step of a model moves, by component, on each node."""

from collections.abc import Iterable

from stack.deploy.formats import Format
from stack.deploy.shapes.model import Matrix, Model
from stack.serving.traffic import CACHE, Component, distinct

STATE = "state"
"""The component of linear-attention and Mamba layers: it is read and written, and does not grow with the context."""
DRAFTS = "drafts"
"""The component of the model's own draft layers."""


def of(model: Model, kv: Format, nodes: int, context: int, batch: int, drafts: int = 0) -> tuple[Component, ...]:
    """Compute what one node moves in a step of `batch` requests that are `context` tokens long.

    A step computes the next token and `drafts` drafted ones of each request: their experts are read together, caches and all other
    weights once. Each token is assumed to choose its experts uniformly and independently.

    Raises:
        StackError: that many nodes cannot divide the model.

    """
    tokens = batch * (drafts + 1)
    parts: dict[str, float] = {}
    forms: dict[str, dict[str, None]] = {}
    for matrix in model.matrices:
        parts[matrix.component] = parts.get(matrix.component, 0.0) + _read(matrix, nodes, tokens)
        forms.setdefault(matrix.component, {})[_form(matrix, tokens)] = None
    found = [Component(name, _joined(forms[name]), size) for name, size in parts.items()]
    cached = batch * sum(cache.size(kv, context, nodes) for cache in model.caches)
    if drafts and model.draft is not None:
        drafted = drafts * sum(_read(matrix, nodes, batch) for matrix in model.draft.matrices)
        forms_ = _joined(matrix.form.name for matrix in model.draft.matrices)
        found.append(Component(DRAFTS, f"{drafts} x {forms_}", drafted))
        cached += drafts * batch * sum(cache.size(kv, context, nodes) for cache in model.draft.caches)
    if model.states:
        moved = batch * sum(state.moved(nodes) for state in model.states)
        found.append(Component(STATE, "read and written", moved))
    return (*found, Component(CACHE, kv.name, cached))


def expected(drafts: int, acceptance: float) -> float:
    """Compute the mean number of tokens of a step, if each draft is accepted with that probability and the first refusal ends it."""
    return sum(acceptance**place for place in range(drafts + 1))


def _read(matrix: Matrix, nodes: int, tokens: int) -> float:
    count = distinct(matrix.experts, matrix.chosen, tokens) if matrix.experts else 1
    return count * matrix.size(nodes)


def _form(matrix: Matrix, tokens: int) -> str:
    if not matrix.experts:
        return matrix.form.name
    return f"{matrix.form.name}, {distinct(matrix.experts, matrix.chosen, tokens):.3g} of {matrix.experts}"


def _joined(names: Iterable[str]) -> str:
    return " + ".join(dict.fromkeys(names))
