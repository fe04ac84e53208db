# SPDX-License-Identifier: Apache-2.0
"""Read YAML nodes with their lines: mappings with merged keys, texts, and commands."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import yaml

from stack.base.errors import StackError
from stack.doctor import shell
from stack.doctor.shell import Word

_MOST_MERGED = 200_000
"""Most keys that the merges (`<<`) of a document may add: a small file can merge one mapping thousands of times."""
_FOLD = re.compile(r"(?<![\\\s])\n(?=[ \t]*\S)")
_MOST_NODES = 1_000_000
"""Most values of a document with all of its aliases expanded; a file without aliases has at most half as many."""
_known: "WeakKeyDictionary[yaml.MappingNode, dict[str, yaml.Node]]" = WeakKeyDictionary()
"""Mappings with their merged keys. Rules ask for the keys of a mapping again and again."""


def words(node: yaml.Node | None) -> Iterator[Word]:
    """Split a command, given as a list or as a text. Compose splits a text without a shell, so lines do not end commands."""
    if isinstance(node, yaml.SequenceNode):
        yield from (Word(shell.filled(text(item), {}), line(item)) for item in node.value)
    elif isinstance(node, yaml.ScalarNode):
        # A folded block's value has lost its line breaks: as continued lines they are blanks, and are counted.
        content = _FOLD.sub(r" \\\n", written(node)) if node.style == ">" else str(node.value)
        yield from (word for command in shell.commands(content, line(node)) for word in command)


def line(node: yaml.Node) -> int:
    """Return the line where a node's text begins: for a block, the line after its sign."""
    return int(node.start_mark.line) + 1 + (isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"))


def written(node: yaml.ScalarNode) -> str:
    """Return the text of a block as written."""
    buffer = node.start_mark.buffer
    return (
        str(node.value) if buffer is None else str(buffer[node.start_mark.pointer : node.end_mark.pointer].partition("\n")[2])
    )


def items(node: yaml.Node | None) -> Iterable[tuple[str, yaml.Node]]:
    """Return keys and values of a mapping, with those that are merged into it (`<<`)."""
    return _merged(node).items()


def value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """Return a mapping's value; None if there is none, or the node is not a mapping."""
    return _merged(node).get(key)


def sequence(node: yaml.Node | None) -> list[yaml.Node]:
    """Return the items of a list; empty for anything else."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def text(node: yaml.Node | None) -> str:
    """Return a scalar's text; empty for anything else."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def is_null(node: yaml.Node) -> bool:
    """Tell whether a value is null: compose then takes the image's."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def walk(node: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Yield all mappings in a document, each once, outer ones first."""
    seen, left = set[int](), deque([node])
    while left:
        one = left.popleft()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, yaml.MappingNode):
            yield one
            left += [inner for _, inner in one.value]
        elif isinstance(one, yaml.SequenceNode):
            left += one.value


def demand_bounded(top: yaml.Node | None) -> None:
    """Check that a document's aliases and merges (`<<`) can be carried out.

    Raises:
        StackError: they stand for too much.

    """
    _demand_few_nodes(top)
    demand_few_merges(top)


def _demand_few_nodes(top: yaml.Node | None) -> None:
    """Count the values of a document with its aliases expanded, without expanding them. An alias inside of its own value counts once."""
    sizes, left = dict[int, int](), [(top, False)]
    while left:
        node, is_counted = left.pop()
        if node is None or (id(node) in sizes and not is_counted):
            continue
        inner = _inner(node)
        if not is_counted:
            sizes[id(node)] = 1  # while it is being counted
            left.append((node, True))
            left += ((each, False) for each in inner if id(each) not in sizes)
            continue
        sizes[id(node)] = size = 1 + sum(sizes[id(each)] for each in inner)
        if size > _MOST_NODES:
            raise StackError(
                f"line {line(node)} stands for more than {_MOST_NODES} values: its aliases (*) name others again and again",
                "name a file with fewer aliases",
            )


def _inner(node: yaml.Node) -> list[yaml.Node]:
    """Return the values in a mapping or a list; keys count, too."""
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return sequence(node)


def demand_few_merges(top: yaml.Node | None) -> None:
    """Check that a document's merges (`<<`) can be carried out.

    Raises:
        StackError: they add too many keys.

    """
    room = _MOST_MERGED
    for mapping in walk(top):
        for merged in _sources(mapping):
            room -= (len(merged.value) + 1) if merged is not mapping else 0
            if room < 0:
                raise StackError(
                    f"the merges (<<) up to line {line(mapping)} add more than {_MOST_MERGED} keys", "merge fewer mappings"
                )


def _merged(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """Merge a mapping: own keys count before merged ones, and earlier ones before later ones."""
    if not isinstance(node, yaml.MappingNode):
        return {}
    found = _known.get(node)
    if found is None:
        found = {}
        for mapping in reversed([*_sources(node)]):
            found.update((text(key), inner) for key, inner in mapping.value if text(key) != "<<")
        _known[node] = found
    return found


def _sources(node: yaml.MappingNode) -> Iterator[yaml.MappingNode]:
    """Yield a mapping and those that are merged into it, the first one to count first. Each is merged once, to end cycles."""
    seen, left = set[int](), list[yaml.Node]([node])
    while left:
        mapping = left.pop()
        if not isinstance(mapping, yaml.MappingNode) or id(mapping) in seen:
            continue
        seen.add(id(mapping))
        yield mapping
        merged = [inner for key, inner in mapping.value if text(key) == "<<"]
        left += reversed(
            [each for inner in merged for each in (inner.value if isinstance(inner, yaml.SequenceNode) else [inner])]
        )
