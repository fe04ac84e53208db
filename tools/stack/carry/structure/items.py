# SPDX-License-Identifier: Apache-2.0
"""Take a Python syntax tree apart into groups of items: the members of a body, a list or a call, to which a side may add.

The standard library's `ast` is sufficient: it has the grammar of the running Python, keeps the byte offsets of every node, and
adds no dependency. Text that it cannot parse (newer syntax) raises `Doubt`, and the conflict stays.
"""

import ast
import bisect
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from stack.carry.structure.hunks import Doubt, lines

_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_Placed = ast.expr | ast.stmt | ast.arg | ast.alias | ast.keyword | ast.excepthandler | ast.pattern
_LONGEST = 300
"""Upper bound of the items that are compared in a group; longer groups take too long."""


class Source:
    """Parsed text with its syntax tree."""

    def __init__(self, data: bytes) -> None:
        """Parse the text.

        Raises:
            Doubt: it cannot be parsed.

        """
        self.data = data
        self.lines = lines(data)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.tree = _parse(data, self.lines)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the byte offsets of a node; a decorated definition begins with its first decorator's line."""
        assert isinstance(node, _Placed)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        first = self.starts[decorators[0].lineno - 1] if decorators else self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def line(self, offset: int) -> int:
        """Return the line (from 0) of a byte."""
        return bisect.bisect_right(self.starts, offset) - 1


def _parse(data: bytes, rows: Sequence[bytes]) -> ast.Module:
    codings = [found[1] for row in rows[:2] if (found := _CODING.match(row))]
    if any(coding.lower().replace(b"_", b"-") not in (b"utf-8", b"utf8", b"ascii", b"us-ascii") for coding in codings):
        raise Doubt
    if data.startswith(b"\xef\xbb\xbf") or b"\r" in data or b"\f" in data:
        raise Doubt  # Each of these shifts the columns or lines that `ast` reports.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as wrong:
        raise Doubt from wrong


class Item:
    """One member of a group. `key`: what it defines (None: nothing); `nodes`: its parts, in order."""

    def __init__(self, source: Source, nodes: Sequence[ast.AST], key: Hashable = None, kind: str = "") -> None:
        self.source = source
        self.nodes = nodes
        self.key = key
        self.kind = kind

    @cached_property
    def text(self) -> bytes | str:
        """Return the kind and the source text; items with equal text are equal."""
        if not all(isinstance(node, _Placed) for node in self.nodes):
            return self.ident
        spans = [self.source.span(node) for node in self.nodes]
        return self.kind.encode() + b"\0" + b"\0".join(self.source.data[start:end] for start, end in spans)

    @cached_property
    def ident(self) -> str:
        """Return the item as a dump of its syntax tree, which does not depend on layout."""
        return "\0".join([self.kind, *(ast.dump(node, annotate_fields=False) for node in self.nodes)])

    def same(self, other: "Item") -> bool:
        """Return whether two items are equal except for layout."""
        return self.text == other.text or self.ident == other.ident

    @cached_property
    def label(self) -> str:
        """Return a short description of the item, for people."""
        node = self.nodes[0] if self.nodes else None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return node.name
        if isinstance(node, ast.arg):
            return node.arg
        if isinstance(node, ast.keyword) and node.arg:
            return node.arg
        if isinstance(node, ast.Assign):
            node = node.targets[0]
        if isinstance(node, ast.AnnAssign):
            node = node.target
        words = " ".join(ast.unparse(node).split()) if node is not None else self.kind
        return words if len(words) <= 60 else words[:57] + "…"


@dataclass(frozen=True, slots=True)
class Group:
    """The items of one list of a node; nothing may be added to a group of kind `fixed`."""

    kind: str
    items: list[Item]
    owner: ast.AST


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a node: groups of items, single children, and plain values."""

    groups: list[Group]
    children: list[ast.AST | None]
    scalars: list[object]


def parts(source: Source, node: ast.AST) -> Parts:
    """Take a node apart."""
    if isinstance(node, ast.arguments):  # Of a lambda; a function's arguments are handled with the function.
        return Parts([Group("fixed", _parameters(source, node), node)], [], [])
    if isinstance(node, ast.Dict):
        pairs = [
            Item(source, (value,) if key is None else (key, value), _dict_key(key), "**" if key is None else "")
            for key, value in zip(node.keys, node.values, strict=True)
        ]
        return Parts([Group("dict", pairs, node)], [], [])
    found = Parts([], [], [])
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.arguments) and not isinstance(node, ast.Lambda):
            found.groups.append(Group("parameters", _parameters(source, value), node))
        elif isinstance(value, list):
            found.groups.append(Group(_kind(node, name), [_item(source, member) for member in value], node))
        elif value is None or isinstance(value, ast.AST):
            found.children.append(value)
        else:
            # 1 == True == 1.0: only the type distinguishes them.
            found.scalars.append((type(value), repr(value)))
    return found


_KINDS: dict[tuple[type[ast.AST], str], str] = {
    (ast.List, "elts"): "list",
    (ast.Set, "elts"): "set",
    (ast.Call, "keywords"): "keywords",
    (ast.Import, "names"): "names",
    (ast.ImportFrom, "names"): "names",
}


def _kind(node: ast.AST, name: str) -> str:
    if name in ("body", "orelse", "finalbody"):
        return "suite"
    if name == "decorator_list":
        return "decorators"
    if isinstance(node, ast.List) and not isinstance(node.ctx, ast.Load):
        return "fixed"
    return _KINDS.get((type(node), name), "fixed")


def _item(source: Source, value: object) -> Item:
    if not isinstance(value, ast.AST):
        return Item(source, (), kind=repr(value))
    return Item(source, (value,), _key(value))


def _key(node: ast.AST) -> Hashable:
    key: Hashable = None
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            key = ("def", node.name)
        case ast.Assign():
            key = ("=", *(ast.dump(target) for target in node.targets))
        case ast.AnnAssign():
            key = ("=", ast.dump(node.target))
        case ast.ImportFrom():
            key = ("from", node.level, node.module)
        case ast.keyword():
            key = node.arg
        case ast.alias():
            key = node.asname or node.name
    return key


def _dict_key(key: ast.expr | None) -> Hashable:
    if isinstance(key, ast.Constant):
        return ("constant", key.value)  # 1 and True are the same key, like in the dict.
    return None if key is None else ast.dump(key)


def _parameters(source: Source, node: ast.arguments) -> list[Item]:
    plain = [("positional", argument) for argument in node.posonlyargs] + [("parameter", argument) for argument in node.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(node.defaults)) + list(node.defaults)
    found = [(kind, argument, default) for (kind, argument), default in zip(plain, defaults, strict=True)]
    if node.vararg:
        found.append(("*", node.vararg, None))
    found += [("keyword", argument, default) for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
    if node.kwarg:
        found.append(("**", node.kwarg, None))
    return [
        Item(source, (argument,) if default is None else (argument, default), argument.arg, kind)
        for kind, argument, default in found
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """A section of a group in three versions. In a `pair`, each version has one item, in the same role."""

    base: list[Item]
    ours: list[Item]
    theirs: list[Item]
    pair: bool


def align(base: list[Item], ours: list[Item], theirs: list[Item]) -> list[Step]:
    """Align three versions of a group: items of the base that both sides have, and the sections between them.

    Raises:
        Doubt: the versions differ in too many items to be compared.

    """
    head = 0
    while head < min(len(base), len(ours), len(theirs)) and base[head].text == ours[head].text == theirs[head].text:
        head += 1
    tail, most = 0, min(len(base), len(ours), len(theirs)) - head
    while tail < most and base[-1 - tail].text == ours[-1 - tail].text == theirs[-1 - tail].text:
        tail += 1
    middle = [items[head : len(items) - tail] for items in (base, ours, theirs)]
    steps = [_pair(*three) for three in zip(base[:head], ours[:head], theirs[:head], strict=True)]
    steps += _align(*middle)
    ends = [items[len(items) - tail :] for items in (base, ours, theirs)]
    return steps + [_pair(*three) for three in zip(*ends, strict=True)]


def _pair(base: Item, ours: Item, theirs: Item) -> Step:
    return Step([base], [ours], [theirs], True)


def _align(base: list[Item], ours: list[Item], theirs: list[Item]) -> list[Step]:
    # Match by name first: that needs no comparison of the items, and a class may have thousands of lines.
    return _split(base, ours, theirs, _by_role(base, ours, theirs, keyed=True), _by_content)


def _by_content(base: list[Item], ours: list[Item], theirs: list[Item]) -> list[Step]:
    in_ours, in_theirs = dict(common(base, ours)), dict(common(base, theirs))
    anchors = [(place, in_ours[place], in_theirs[place]) for place in in_ours if place in in_theirs]
    return _split(base, ours, theirs, anchors, _by_type)


def _by_type(base: list[Item], ours: list[Item], theirs: list[Item]) -> list[Step]:
    anchors = _by_role(base, ours, theirs, keyed=False) if len(base) == 1 else []
    return _split(base, ours, theirs, anchors, lambda *gap: [Step(gap[0], gap[1], gap[2], False)])


def _by_role(base: list[Item], ours: list[Item], theirs: list[Item], *, keyed: bool) -> list[tuple[int, int, int]]:
    """Match the items whose role is unique in each version: the only one with their key, or the only one of their type."""
    roles = [[_role(item) for item in items] for items in (base, ours, theirs)]
    anchors: list[tuple[int, int, int]] = []
    for number, item in enumerate(base):
        role = roles[0][number]
        if (item.key is None) is keyed or any(side.count(role) != 1 for side in roles):
            continue
        at = (number, roles[1].index(role), roles[2].index(role))
        if not anchors or all(new > old for new, old in zip(at, anchors[-1], strict=True)):
            anchors.append(at)
    return anchors


def _role(item: Item) -> Hashable:
    return (item.key, item.kind, *(type(node) for node in item.nodes))


def _split(
    base: list[Item],
    ours: list[Item],
    theirs: list[Item],
    anchors: Sequence[tuple[int, int, int]],
    between: Callable[[list[Item], list[Item], list[Item]], list[Step]],
) -> list[Step]:
    steps: list[Step] = []
    last = (0, 0, 0)
    for at in [*anchors, (len(base), len(ours), len(theirs))]:
        gap = [items[low:high] for items, low, high in zip((base, ours, theirs), last, at, strict=True)]
        if any(gap):
            steps += between(gap[0], gap[1], gap[2])
        if at[0] < len(base):
            steps.append(_pair(base[at[0]], ours[at[1]], theirs[at[2]]))
        last = (at[0] + 1, at[1] + 1, at[2] + 1)
    return steps


def common(items: Sequence[Item], other: Sequence[Item]) -> list[tuple[int, int]]:
    """Return a longest common subsequence, as pairs of indices.

    Raises:
        Doubt: the sequences are too long to compare.

    """
    if not items or not other:
        return []
    if len(items) > _LONGEST or len(other) > _LONGEST:
        raise Doubt
    left, right = tokens(items, other)
    best = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for low in range(len(left) - 1, -1, -1):
        for high in range(len(right) - 1, -1, -1):
            if left[low] == right[high]:
                best[low][high] = best[low + 1][high + 1] + 1
            else:
                best[low][high] = max(best[low + 1][high], best[low][high + 1])
    pairs: list[tuple[int, int]] = []
    low = high = 0
    while low < len(left) and high < len(right):
        if left[low] == right[high]:
            pairs.append((low, high))
            low, high = low + 1, high + 1
        elif best[low + 1][high] >= best[low][high + 1]:
            low += 1
        else:
            high += 1
    return pairs


def tokens(*sides: Sequence[Item]) -> list[list[Hashable]]:
    """Return a token for every item, such that equal items have equal tokens; avoid dumping syntax trees where texts suffice."""
    texts: dict[Hashable, set[bytes | str]] = {}
    for item in itertools.chain(*sides):
        texts.setdefault(item.key, set()).add(item.text)
    where = Counter(key for side in sides for key in {item.key for item in side})
    taken = {key for key, found in texts.items() if len(found) > 1 and where[key] > 1}
    return [[item.ident if item.key in taken else (item.key, item.text) for item in side] for side in sides]


def equal(*sides: Sequence[Item]) -> bool:
    """Return whether sections are equal except for layout."""
    first, *others = tokens(*sides)
    return all(other == first for other in others)
