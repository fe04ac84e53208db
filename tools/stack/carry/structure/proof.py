# SPDX-License-Identifier: Apache-2.0
"""Prove a union: it has all items of our side and all that their side adds, each once, and adding them is harmless.

The proof does not depend on how the text was made. It parses four texts (base, ours, theirs, result) and aligns their trees.
Outside the groups to which both sides may add, the result must equal both sides. In these groups, it must have every item of
our side in our order, every item of their side in their order, and no other item.
"""

import ast
import operator
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from stack.carry.structure.hunks import Doubt, lines
from stack.carry.structure.items import Group, Item, Source, Step, align, equal, parts, tokens

_PLAIN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom)
_IMPORTS = (ast.Import, ast.ImportFrom)
_BY_POSITION = {"parameter", "positional"}
_KIND_CHANGING = {"staticmethod", "classmethod", "property", "overload", "abstractmethod", "contextmanager", "dataclass"}


def prove(
    base: bytes, ours: bytes, theirs: bytes, result: bytes, around: Collection[str] = (), ordered: Collection[str] = ()
) -> bool:
    """Return whether `result` is the union of both sides.

    Args:
        base: the common ancestor of both sides.
        ours: our side.
        theirs: the other side.
        result: the merged text.
        around: names that the module has outside of these texts.
        ordered: names of dictionaries whose order the module reads (see `order_read`).

    """
    try:
        sources = [Source(data) for data in (base, ours, theirs, result)]
        judge = _Judge(sources, frozenset(around), frozenset(ordered))
        return judge.node([source.tree for source in sources], "module") and _comments(
            [base, ours, theirs, result], judge.twice
        )
    except (Doubt, RecursionError):
        return False


def _comments(four: Sequence[bytes], twice: Counter[bytes]) -> bool:
    """Return whether no comment is lost or doubled; `twice` are comments of items that both sides add and the result has once.

    Text after # in a string counts as a comment, too, which only makes the check stricter.
    """
    old, mine, new, have = (Counter(_hashes(data)) for data in four)
    for text in {*mine, *new, *have}:
        both, most = mine[text] + new[text] - old[text], max(mine[text], new[text])
        if not max(most, both - twice[text]) <= have[text] <= max(most, both):
            return False
        if mine[text] != new[text] and old[text] > min(mine[text], new[text]):
            return False
    return True


def _hashes(data: bytes) -> Iterator[bytes]:
    for line in lines(data):
        _, sign, text = line.partition(b"#")
        if sign:
            yield text.strip().rstrip(b",)]} \t")


@dataclass(frozen=True, slots=True)
class _Additions:
    """Both sides' additions to one group: each side's own items, and items that both sides add."""

    mine: list[Item] = field(default_factory=list)
    new: list[Item] = field(default_factory=list)
    shared: list[Item] = field(default_factory=list)


class _Judge:
    def __init__(self, sources: Sequence[Source], around: frozenset[str], ordered: frozenset[str]) -> None:
        self.sources = sources
        self.around = around
        self.ordered = ordered
        self.twice: Counter[bytes] = Counter()
        """The comments of items that both sides changed in the same way."""

    def alike(self, item: Item) -> None:
        """Note the comments of an item that both sides add."""
        if not isinstance(item.nodes[0] if item.nodes else None, ast.expr | ast.stmt | ast.arg | ast.alias | ast.keyword):
            return
        rows = item.source.lines
        first = item.source.line(item.source.span(item.nodes[0])[0])
        last = item.source.line(item.source.span(item.nodes[-1])[1])
        while first and rows[first - 1].lstrip().startswith(b"#"):
            first -= 1
        self.twice.update(_hashes(b"".join(rows[first : last + 1])))

    def node(self, four: Sequence[ast.AST], scope: str) -> bool:
        """Check four nodes that are at the same place."""
        if len({type(node) for node in four}) > 1 or isinstance(four[0], ast.JoinedStr):
            return False
        taken = [parts(source, node) for source, node in zip(self.sources, four, strict=True)]
        if not taken[1].scalars == taken[2].scalars == taken[3].scalars:
            return False
        inner = _scope(four[0], scope, self.ordered)
        groups = zip(*(each.groups for each in taken), strict=True)
        children = zip(*(each.children for each in taken), strict=True)
        return all(self.group(list(versions), inner) for versions in groups) and all(
            self.child(list(versions), inner) for versions in children
        )

    def child(self, four: Sequence[ast.AST | None], scope: str) -> bool:
        base, ours, theirs, result = four
        if ours is None or theirs is None or result is None:
            return ours is None and theirs is None and result is None
        items = [Item(source, [node]) for source, node in zip(self.sources[1:], (ours, theirs, result), strict=True)]
        if items[0].text == items[1].text == items[2].text:
            self.alike(items[0])
            return True
        deep = base is not None and hasattr(ours, "body") and type(base) is type(ours) is type(theirs) is type(result)
        if not deep and items[0].ident == items[1].ident:
            self.alike(items[0])
            return items[0].ident == items[2].ident
        return base is not None and self.node([base, ours, theirs, result], scope)

    def group(self, four: Sequence[Group], scope: str) -> bool:
        base, ours, theirs, result = four
        steps = align(base.items, ours.items, theirs.items)
        additions = _Additions()
        rest = result.items
        for step in steps:
            count = 1 if step.pair else _united(step)
            run, rest = rest[:count], rest[count:]
            if len(run) < count:
                return False
            if not (self.pair(step, run[0], scope) if step.pair else _holds(step, run, additions)):
                return False
        for item in additions.shared:
            self.alike(item)
        if rest or (ours.kind == "fixed" and (additions.mine or additions.new)):
            return False
        return not additions.new or self.allowed(ours, result, additions, scope)

    def pair(self, step: Step, result: Item, scope: str) -> bool:
        four = [*step.base, *step.ours, *step.theirs, result]
        if four[1].text == four[2].text == four[3].text:
            if four[0].text != four[1].text:
                self.alike(four[1])
            return True
        if len({len(item.nodes) for item in four}) > 1 or len({item.kind for item in four}) > 1:
            return False
        return all(self.child(list(nodes), scope) for nodes in zip(*(item.nodes for item in four), strict=True))

    def allowed(self, ours: Group, result: Group, additions: _Additions, scope: str) -> bool:
        """Return whether this group may have both sides' items together, in any order."""
        keys = [item.key for item in [*additions.mine, *additions.new]]
        rules: dict[str, Callable[[], bool]] = {
            "suite": lambda: self.suite(ours, result, additions, scope),
            "decorators": lambda: _decorators(result, additions),
            "parameters": lambda: _unique(result, additions) and _parameters(result, additions),
            "keywords": lambda: (
                _unique(result, additions) and None not in keys and (not _is_dict(ours.owner) or _values(additions))
            ),
            "dict": lambda: _unique(result, additions) and None not in keys and scope != "ordered" and _values(additions),
            "names": lambda: _unique(result, additions) and "*" not in keys and not self.around.intersection(map(str, keys)),
            # The position of a list's element matters in signatures, records and command lines, and if it is unpacked or indexed.
            "list": lambda: (scope == "exports" or not additions.mine) and _elements(result, additions),
            "set": lambda: _elements(result, additions),
        }
        return ours.kind in rules and rules[ours.kind]()

    def suite(self, ours: Group, result: Group, additions: _Additions, scope: str) -> bool:
        statements = [item.nodes[0] for item in [*additions.mine, *additions.new]]
        fine = _PLAIN if scope in ("module", "class") else _IMPORTS
        if not all(isinstance(statement, fine) for statement in statements):
            return False
        if any(isinstance(statement, ast.Import | ast.ImportFrom) and _is_special(statement) for statement in statements):
            return False
        if any(isinstance(statement, ast.Assign) and not _plain_targets(statement) for statement in statements):
            return False
        if isinstance(ours.owner, ast.ClassDef) and not _fields(ours.owner, result, additions):
            return False
        if not _values(additions):
            return False
        return self.independent(result, additions, scope)

    def independent(self, result: Group, additions: _Additions, scope: str) -> bool:
        """Return whether each name that a side binds is new, and neither side uses a name that the other binds."""
        everywhere = Counter(name for item in result.items for name in bound(item.nodes[0]))
        if scope == "module":
            everywhere.update(self.around)
        for own, other in ((additions.mine, additions.new), (additions.new, additions.mine)):
            names = Counter(name for item in own for name in bound(item.nodes[0]))
            strange = {name for item in other for name in bound(item.nodes[0])}
            alone = {name for item in own if not _is_again(item.nodes[0]) for name in bound(item.nodes[0])}
            if any(name in strange or (everywhere[name] > count and name in alone) for name, count in names.items()):
                return False
            used = {node.id for item in other for node in ast.walk(item.nodes[0]) if isinstance(node, ast.Name)}
            if any(name.partition(".")[0] in used for name in names):
                return False
        return True


def _scope(node: ast.AST, outer: str, ordered: Collection[str]) -> str:
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = {_last(target) for target in (node.targets if isinstance(node, ast.Assign) else [node.target])}
        return "exports" if targets == {"__all__"} else "ordered" if targets & {*ordered} else outer
    if isinstance(node, ast.ClassDef):
        return "class" if outer in ("module", "class") else "function"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return "function"
    compound = hasattr(node, "body") and isinstance(node, ast.stmt | ast.excepthandler | ast.match_case)
    return "block" if compound and outer != "function" else outer


_IN_ORDER = {"enumerate", "iter", "next", "reversed", "zip"}
_COPIES = {"list", "tuple"}


def order_read(tree: ast.Module) -> set[str]:
    """Find the names of collections whose elements a module reads by position (first, last, next, numbered).

    A bare `list(x)` as an argument does not count, since it mostly copies keys for a search. `list(x)[-1]` counts.
    """
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=args) if name in _IN_ORDER:
                found |= {_iterated(argument) for argument in args}
            case ast.Call(func=ast.Attribute(value=value, attr="popitem")):
                found.add(_last(value))
            case ast.Subscript(value=ast.Call(func=ast.Name(id=name), args=[copied])) if name in _COPIES:
                found.add(_iterated(copied))
            case ast.Assign(targets=[ast.Tuple() | ast.List()], value=value):
                found.add(_iterated(value))
            case ast.Assign(value=ast.Call(func=ast.Name(id=name), args=[copied])) if name in _COPIES:
                found.add(_iterated(copied))
            case ast.Starred(value=value):
                found.add(_iterated(value))
    return found - {""}


def _iterated(node: ast.expr) -> str:
    """Return the name of the iterated collection: `x` for `x` and for `x.values()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("keys", "values", "items"):
        return _last(node.func.value)
    return _last(node)


def _last(node: ast.AST) -> str:
    """Return the name of a variable or an attribute; empty for anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _united(step: Step) -> int:
    mine, new = (Counter(side) for side in tokens(step.ours, step.theirs))
    return (mine | new).total()


def _holds(step: Step, run: list[Item], additions: _Additions) -> bool:
    """Return whether a section of the result has each item of both sides once, in both sides' orders."""
    if equal(step.ours, step.theirs):
        additions.shared.extend(step.ours)
        return equal(step.ours, run)
    if step.base:
        return False
    mine, new, have = tokens(step.ours, step.theirs, run)
    counts = Counter(mine), Counter(new)
    if Counter(have) != counts[0] | counts[1] or not (_is_in_order(mine, have) and _is_in_order(new, have)):
        return False
    additions.mine.extend(item for item, token in zip(step.ours, mine, strict=True) if token not in counts[1])
    additions.new.extend(item for item, token in zip(step.theirs, new, strict=True) if counts[1][token] > counts[0][token])
    additions.shared.extend(item for item, token in zip(step.ours, mine, strict=True) if token in counts[1])
    return True


def _is_in_order(part: Sequence[Hashable], whole: Sequence[Hashable]) -> bool:
    rest = iter(whole)
    return all(any(token == other for other in rest) for token in part)


def _unique(result: Group, additions: _Additions) -> bool:
    """Return whether every key that a side adds is unique in the result."""
    keys = Counter(item.key for item in result.items)
    return all(keys[item.key] == 1 for item in [*additions.mine, *additions.new])


def _is_dict(owner: ast.AST) -> bool:
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "dict"


def _values(additions: _Additions) -> bool:
    """Return whether the sides add different values: the same number could be two codes, such as error codes."""
    mine, new = ({code for item in side if (code := _code(item)) is not None} for side in (additions.mine, additions.new))
    return not mine & new


def _code(item: Item) -> Hashable:
    """Return the value of an item; None if several names may share it (True, False, None)."""
    node = item.nodes[-1]
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign | ast.keyword) else node
    if not isinstance(value, ast.expr) or (isinstance(value, ast.Constant) and isinstance(value.value, bool | type(None))):
        return None
    number = _number(value)
    return ast.dump(value) if number is None else number


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
}
_LARGEST = 1 << 64


def _number(node: ast.expr) -> int | None:
    """Evaluate an expression of integer constants; None for any other expression."""
    match node:
        case ast.Constant(value=int(number)) if abs(number) < _LARGEST:
            return int(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number_ = _number(operand)
            return None if number_ is None else -number_
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            sides = _number(left), _number(right)
            if sides[0] is None or sides[1] is None or (isinstance(op, ast.LShift) and not 0 <= sides[1] < 64):
                return None
            return _OPERATIONS[type(op)](sides[0], sides[1])
    return None


def _decorators(result: Group, additions: _Additions) -> bool:
    """Return whether the new decorators are of different kinds, and none changes the kind of the function."""
    if not additions.mine and not additions.shared:
        return False  # Git's diff of a new function often begins below the next one's decorators: the owner is not certain.
    roles = Counter(_decorator_role(item.nodes[0]) for item in result.items)
    for item in [*additions.mine, *additions.new]:
        node = item.nodes[0]
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
        if (
            roles[_decorator_role(node)] > 1
            or name.rpartition(".")[2] in _KIND_CHANGING
            or name.endswith((".setter", ".getter"))
        ):
            return False
    return True


def _decorator_role(node: ast.AST) -> str:
    """Return the role of a decorator, which may occur once: pytest marks with different arguments have different roles."""
    if not isinstance(node, ast.Call):
        return ast.dump(node)
    name = ast.unparse(node.func)
    if name == "pytest.mark.parametrize" and node.args:
        return name + ast.dump(node.args[0])
    return ast.dump(node) if name.startswith("pytest.mark.") else ast.dump(node.func)


def _parameters(result: Group, additions: _Additions) -> bool:
    """Return whether calls with positional arguments keep their meaning.

    Each side may pass its own new parameter by position, so only one side may add one. It must have a default and be last.
    """
    new = tokens(result.items, additions.new)
    own = set(new[1])
    if any(len(item.nodes) < 2 for item in [*additions.mine, *additions.new]):
        return False
    if all(any(item.kind in _BY_POSITION for item in side) for side in (additions.mine, additions.new)):
        return False
    added = False
    for item, token in zip(result.items, new[0], strict=True):
        if token in own:
            added = added or item.kind in _BY_POSITION
        elif added and item.kind in _BY_POSITION:
            return False
    return True


def _elements(result: Group, additions: _Additions) -> bool:
    """Return whether no element is repeated, and no command-line option is separated from its value."""
    have, mine, new = tokens(result.items, additions.mine, additions.new)
    counts = Counter(have)
    if any(counts[token] > 1 for token in [*mine, *new]) or any("*" in item.label[:1] for item in additions.new):
        return False
    if not _of_one_sort(result, additions):
        return False
    heads = [{head for item in side if (head := _head(item.nodes[0]))} for side in (additions.mine, additions.new)]
    if heads[0] & heads[1]:
        return False
    items = [*additions.mine, *additions.new, *additions.shared]
    return not (additions.shared and any(_is_option(item) for item in items))


def _head(node: ast.AST) -> str:
    """Return the first string of a tuple, list or call, which may be its name; two elements with one name may be one thing."""
    first = node.elts if isinstance(node, ast.Tuple | ast.List) else node.args if isinstance(node, ast.Call) else []
    if not first or not isinstance(first[0], ast.Constant) or not isinstance(first[0].value, str):
        return ""
    return (ast.dump(node.func) if isinstance(node, ast.Call) else "") + first[0].value


def _of_one_sort(result: Group, additions: _Additions) -> bool:
    """Return whether a group with one sort of literal gets only that sort; otherwise git may have confused two lists."""
    fresh = [*additions.mine, *additions.new]
    idents = {item.ident for item in fresh}
    old = {_sort(item.nodes[0]) for item in result.items if item.ident not in idents}
    return len(old) != 1 or "" in old or all(_sort(item.nodes[0]) in {"", *old} for item in fresh)


def _sort(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    return type(node).__name__ if isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Set) else ""


def _is_option(item: Item) -> bool:
    node = item.nodes[0]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("-")


def _is_special(node: ast.Import | ast.ImportFrom) -> bool:
    """Return whether the names or effects of an import are unknown: a star import, or one from `__future__`."""
    return any(name.name == "*" for name in node.names) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _plain_targets(node: ast.Assign) -> bool:
    return all(isinstance(target, ast.Name) for target in node.targets)


def bound(node: ast.AST) -> set[str]:
    """Return the names that a statement binds in its scope."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import():
            # Keep the whole dotted name: `import a.b` and `import a.c` do not clash.
            return {name.asname or name.name for name in node.names}
        case ast.ImportFrom():
            return {name.asname or name.name for name in node.names}
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store | ast.Del)}
    if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
        for inner in ast.walk(node):
            if isinstance(inner, ast.stmt) and not isinstance(inner, ast.If | ast.Try | ast.With | ast.For | ast.While):
                found |= bound(inner)
    return found


def _is_again(node: ast.AST) -> bool:
    """Return whether a function may repeat an earlier name: a property's setter or getter, or an overload."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    name = getattr(node, "name", "")
    return any(f"{name}." in ast.unparse(decorator) or "overload" in ast.unparse(decorator) for decorator in decorators)


def _fields(owner: ast.ClassDef, result: Group, additions: _Additions) -> bool:
    """Return whether new class members are independent: fields have defaults and are last, enum members have distinct values."""
    traits = " ".join(map(ast.unparse, [*owner.decorator_list, *owner.bases])).lower()
    members = [*additions.mine, *additions.new]
    values = Counter(ast.dump(statement.value) for item in members if isinstance(statement := item.nodes[0], ast.Assign))
    if "enum" in traits or "flag" in traits:
        have = Counter(ast.dump(statement.value) for item in result.items if isinstance(statement := item.nodes[0], ast.Assign))
        if any(have[value] > 1 for value in values):
            return False
        if additions.mine and _numbered_behind(result, {item.ident for item in members}):
            return False
    if "dataclass" in traits or "define" in traits or "namedtuple" in traits or "struct" in traits:
        both = all(any(isinstance(item.nodes[0], ast.AnnAssign) for item in side) for side in (additions.mine, additions.new))
        return "kw_only=true" in traits or (not both and _appended_fields(result, additions))
    return True


def _numbered_behind(result: Group, added: Collection[str]) -> bool:
    """Return whether the first added member of an enum, or a later one, gets its number from its position by `auto()`."""
    idents = [item.ident for item in result.items]
    first = next((place for place, ident in enumerate(idents) if ident in added), len(idents))
    return any("'auto'" in ident for ident in idents[first:])


def _appended_fields(result: Group, additions: _Additions) -> bool:
    new = {item.ident for item in additions.new}
    added = False
    for item in result.items:
        node = item.nodes[0]
        if not isinstance(node, ast.AnnAssign):
            continue
        if item.ident in new:
            added = True
            if node.value is None:
                return False
        elif added:
            return False
    return all(not isinstance(item.nodes[0], ast.AnnAssign) or item.nodes[0].value is not None for item in additions.mine)
