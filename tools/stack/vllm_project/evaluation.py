# SPDX-License-Identifier: Apache-2.0
"""Evaluate vLLM's small functions about what a GPU supports, without running any of them.

Read are `if` and `return`, comparisons, literals, and what vLLM asks of its platform. Whatever else stands there makes a value unknown, and
an unknown condition is taken both ways: a result counts only if all ways lead to it.
"""

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Capability = tuple[int, int]
Lookup = Callable[[str, Sequence[Any]], Any]
"""Calls a function or a method by its name with arguments; returns `UNKNOWN` if there is none that can be read."""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
_WAYS = 64
"""Most ways through a function that are followed: each unknown condition doubles them."""
_LARGEST = 2**64
"""Largest integer, up or down, that is calculated."""
_MOST = 2**12
"""Most parts of a value: characters that are joined, and elements of lists, those of inner lists included."""
_PLATFORM = ("is_rocm", "is_cpu", "is_xpu", "is_tpu", "is_hpu", "is_out_of_tree")
"""Questions that a platform with NVIDIA's GPUs answers with no."""
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
}
_CALCULATED: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Names that an expression may use: values, attributes of the class (`cls.x`), and functions; and the GPU that is asked about."""

    capability: Capability
    values: Mapping[str, Any] = field(default_factory=dict)
    attributes: Callable[[str], Any] = lambda _: UNKNOWN
    methods: Lookup = lambda _, __: UNKNOWN
    inherited: Lookup = lambda _, __: UNKNOWN
    functions: Lookup = lambda _, __: UNKNOWN


def result(function: ast.FunctionDef, scope: Scope) -> Any:
    """Return what a function returns; `UNKNOWN` if that depends on anything that is not known."""
    found = list(itertools.islice(_returned(function.body, scope), _WAYS + 1))
    return found[0] if 0 < len(found) <= _WAYS and all(_same(each, found[0]) for each in found) else UNKNOWN


def _same(left: Any, right: Any) -> bool:
    return left is right or (left is not UNKNOWN and right is not UNKNOWN and type(left) is type(right) and bool(left == right))


def _returned(body: Sequence[ast.stmt], scope: Scope) -> Iterator[Any]:
    """Yield what the ways through statements return."""
    for place, statement in enumerate(body):
        match statement:
            case ast.Return(value):
                yield value_of(value, scope) if value is not None else None
                return
            case ast.If(test, then, otherwise):
                holds = value_of(test, scope)
                rest = body[place + 1 :]
                if holds is UNKNOWN or holds:
                    yield from _returned([*then, *rest], scope)
                if holds is UNKNOWN or not holds:
                    yield from _returned([*otherwise, *rest], scope)
                return
            case ast.Assign([ast.Name(name)], value):
                scope = Scope(
                    scope.capability,
                    {**scope.values, name: value_of(value, scope)},
                    scope.attributes,
                    scope.methods,
                    scope.inherited,
                    scope.functions,
                )
            case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Pass():
                continue
            case _:
                yield UNKNOWN
                return
    yield None


def value_of(node: ast.expr, scope: Scope) -> Any:
    """Return an expression's value, `UNKNOWN` if it has anything that is not known."""
    read = _READ.get(type(node))
    return UNKNOWN if read is None else read(node, scope)


def _name(node: ast.Name, scope: Scope) -> Any:
    return _PLATFORM if node.id == "current_platform" else scope.values.get(node.id, UNKNOWN)


def _elements(node: ast.Tuple | ast.List | ast.Set, scope: Scope) -> Any:
    values = [value_of(each, scope) for each in node.elts]
    return UNKNOWN if any(each is UNKNOWN for each in values) else _bounded(tuple(values))


def _negated(node: ast.UnaryOp, scope: Scope) -> Any:
    value = value_of(node.operand, scope)
    return not value if isinstance(node.op, ast.Not) and value is not UNKNOWN else UNKNOWN


def _calculated(node: ast.BinOp, scope: Scope) -> Any:
    function = _CALCULATED.get(type(node.op))
    return UNKNOWN if function is None else _counted(function, value_of(node.left, scope), value_of(node.right, scope))


def _counted(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Calculate with two numbers, or join two texts or lists: `"a" * 10**9` and `"%09999d" % 1` would fill the memory."""
    parts = (left, right)
    is_joined = function is operator.add and all(isinstance(each, str | bytes | tuple) for each in parts)
    if not is_joined and not all(isinstance(each, int | float) for each in parts):
        return UNKNOWN
    return UNKNOWN if any(_bounded(each) is UNKNOWN for each in parts) else _bounded(_applied(function, left, right))


def _bounded(value: Any) -> Any:
    """Return a value, `UNKNOWN` if it is too large. A list may hold another one twice: comparing such lists can take forever."""
    left, parts = [value], 0
    while left:
        part = left.pop()
        size = len(part) if isinstance(part, str | bytes | tuple) else 1
        parts += size
        if parts > _MOST or (isinstance(part, int) and abs(part) > _LARGEST):
            return UNKNOWN
        left += part if isinstance(part, tuple) else ()
    return value


def _chosen(node: ast.IfExp, scope: Scope) -> Any:
    holds = value_of(node.test, scope)
    return UNKNOWN if holds is UNKNOWN else value_of(node.body if holds else node.orelse, scope)


def _joined(values: Sequence[Any], *, is_and: bool) -> Any:
    """Return `and` or `or` of values: a value that decides counts, even if others are unknown."""
    if any(value is not UNKNOWN and bool(value) is not is_and for value in values):
        return not is_and
    return UNKNOWN if any(value is UNKNOWN for value in values) else is_and


def _compared(values: Sequence[Any], kinds: Sequence[ast.cmpop]) -> Any:
    parts = [_applied(_COMPARED[type(kind)], left, right) for kind, left, right in zip(kinds, values, values[1:], strict=False)]
    return _joined(parts, is_and=True)


def _applied(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    try:
        return function(left, right)
    except (TypeError, ValueError, ArithmeticError, OverflowError):
        return UNKNOWN


def _attribute(node: ast.Attribute, scope: Scope) -> Any:
    owner, name = node.value, node.attr
    if isinstance(owner, ast.Name) and owner.id in ("cls", "self"):
        return scope.attributes(name)
    value = value_of(owner, scope)
    if isinstance(value, tuple) and len(value) == 2 and name in ("major", "minor"):
        return value[name == "minor"]
    return UNKNOWN


def _called(node: ast.Call, scope: Scope) -> Any:
    arguments = [value_of(each, scope) for each in node.args]
    match node.func:
        case ast.Name("DeviceCapability"):
            found = _capability(node, arguments, scope)
        case ast.Name("bool") if len(arguments) == 1:
            found = UNKNOWN if arguments[0] is UNKNOWN else bool(arguments[0])
        case ast.Name(name):
            found = scope.functions(name, arguments)
        case ast.Attribute(ast.Call(ast.Name("super"), [], []), name):
            found = scope.inherited(name, arguments)
        case ast.Attribute(ast.Name("cls" | "self"), name):
            found = scope.methods(name, arguments)
        case ast.Attribute(owner, name):
            found = _of_value(value_of(owner, scope), name, arguments, scope)
        case _:
            found = UNKNOWN
    return found


def _capability(node: ast.Call, arguments: Sequence[Any], scope: Scope) -> Any:
    named = {each.arg: value_of(each.value, scope) for each in node.keywords}
    both = (*arguments, *(named.get(name) for name in ("major", "minor")[len(arguments) :]))
    return both if all(isinstance(each, int) for each in both) else UNKNOWN


def _of_value(value: Any, name: str, arguments: Sequence[Any], scope: Scope) -> Any:
    """Call a method of a platform, a text or a capability."""
    if value is _PLATFORM:
        return _platform(name, arguments, scope.capability)
    if isinstance(value, str) and name in ("startswith", "endswith") and len(arguments) == 1:
        return getattr(value, name)(arguments[0]) if isinstance(arguments[0], str) else UNKNOWN
    if isinstance(value, tuple) and name == "to_int":
        return _counted(operator.add, _counted(operator.mul, value[0], 10), value[1]) if len(value) > 1 else UNKNOWN
    return UNKNOWN


def _platform(name: str, arguments: Sequence[Any], capability: Capability) -> Any:
    """Answer what vLLM asks of the platform of a machine with NVIDIA's GPUs (vllm/platforms/interface.py)."""
    if name in ("is_cuda", "is_cuda_alike"):
        return True
    if name in _PLATFORM:
        return False
    if name == "get_device_capability":
        return capability
    asked = arguments[0] if arguments else UNKNOWN
    if isinstance(asked, int) and not isinstance(asked, bool):
        asked = divmod(asked, 10)
    if not isinstance(asked, tuple) or len(asked) != 2 or not all(isinstance(each, int) for each in asked):
        return UNKNOWN
    answers = {
        "has_device_capability": capability >= asked,
        "is_device_capability": capability == asked,
        "is_device_capability_family": capability[0] == asked[0],
    }
    return answers.get(name, UNKNOWN)


_READ: Mapping[type[ast.expr], Callable[[Any, Scope], Any]] = {
    ast.Constant: lambda node, _: node.value,
    ast.Name: _name,
    ast.Tuple: _elements,
    ast.List: _elements,
    ast.Set: _elements,
    ast.BoolOp: lambda node, scope: _joined(
        [value_of(part, scope) for part in node.values], is_and=isinstance(node.op, ast.And)
    ),
    ast.UnaryOp: _negated,
    ast.Compare: lambda node, scope: _compared([value_of(each, scope) for each in (node.left, *node.comparators)], node.ops),
    ast.BinOp: _calculated,
    ast.IfExp: _chosen,
    ast.Attribute: _attribute,
    ast.Call: _called,
}
