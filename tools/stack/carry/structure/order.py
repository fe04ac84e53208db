# SPDX-License-Identifier: Apache-2.0
"""Find the order in which both sides keep a group sorted, so that the merge keeps it, too."""

import ast
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from stack.carry.structure.blocks import Block
from stack.carry.structure.items import Item

Key = Callable[[Item], Any]

_FEW = 2
"""A group with at most this number of items does not show an order."""


def found(ours: Block, mine: Sequence[Item], theirs: Block, new: Sequence[Item]) -> Key | None:
    """Return the sort key of the order that both versions of a group are in; None if there is none."""
    kind = ours.group.kind
    if kind == "suite":
        return _first(_import_keys(), _imports(ours, mine), _imports(theirs, new))
    if kind not in ("list", "set", "dict", "names"):
        return None
    names = [[_name(item) for item in block.group.items] for block in (ours, theirs)]
    # A list with options is a command line: its order has a meaning, even if it looks sorted.
    if any(name is None or name.startswith("-") for name in [*names[0], *names[1]]):
        return None
    return _first(_NAME_KEYS, ours.group.items, theirs.group.items)


def _first(keys: Sequence[Key], *sides: Sequence[Item]) -> Key | None:
    if any(len(side) <= _FEW for side in sides):
        return None
    return next((key for key in keys if all(_sorted(list(map(key, side))) for side in sides)), None)


def _sorted(values: list[Any]) -> bool:
    return all(low <= high for low, high in itertools.pairwise(values))


def _name(item: Item) -> str | None:
    node = item.nodes[0]
    if isinstance(node, ast.alias):
        return node.name
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) and not item.kind else None


def _text(item: Item) -> str:
    return _name(item) or ""


def _cased(item: Item) -> tuple[int, str]:
    """Sort constants first, then classes, then other names: isort's order of imported names."""
    name = _text(item)
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return rank, name


_NAME_KEYS: list[Key] = [
    _text,
    lambda item: _text(item).casefold(),
    _cased,
    lambda item: (_cased(item)[0], _text(item).casefold()),
]


def _imports(block: Block, items: Sequence[Item]) -> list[Item]:
    """Return the imports around new ones up to the next blank lines; empty if the new items are not all imports."""
    everything = block.group.items
    low, high = block.place[id(items[0])], block.place[id(items[-1])] + 1
    if not all(_is_import(item) for item in items):
        return []
    while low and _is_import(everything[low - 1]) and not block.blanks(everything[low]):
        low -= 1
    while high < len(everything) and _is_import(everything[high]) and not block.blanks(everything[high]):
        high += 1
    return everything[low:high]


def _is_import(item: Item) -> bool:
    return isinstance(item.nodes[0], ast.Import | ast.ImportFrom)


def _module(item: Item) -> str:
    node = item.nodes[0]
    if isinstance(node, ast.ImportFrom):
        return "." * node.level + (node.module or "")
    assert isinstance(node, ast.Import)
    return node.names[0].name


def _import_keys() -> list[Key]:
    def is_from(item: Item) -> bool:
        return isinstance(item.nodes[0], ast.ImportFrom)

    return [
        lambda item: (is_from(item), _module(item).casefold()),
        lambda item: _module(item).casefold(),
        lambda item: (is_from(item), _module(item)),
        _module,
    ]
