# SPDX-License-Identifier: Apache-2.0
"""Check calls in added lines to functions whose parameters upstream changed."""

import ast
from collections.abc import Iterator

from stack.carry.drift import signatures
from stack.carry.drift.finding import Drift
from stack.carry.drift.modules import Modules, headers
from stack.carry.drift.outline import Definition
from stack.carry.drift.source import BUILTINS, Parents, Source, chain

_DEPTH = 6
"""Upper bound of the packages and re-exports that are followed by their text."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check(source: Source, parents: Parents, call: ast.Call) -> Iterator[Drift]:
    """Report a call that matched its function's parameters on the old base and does not match them now."""
    if source.before is None:
        return
    names = chain(call.func)
    if names is None or _unchanged(source, *names):
        return
    now, was = (_callee(source, modules, parents, *names) for modules in (source.modules, source.before))
    if now is None or was is None or now[1] != was[1] or now[0] is was[0]:
        return
    function, bound, name = now
    if not signatures.alike(function, was[0]) or signatures.same(function, was[0]):
        return
    why = signatures.why_not(call, function, bound=bound)
    if why is None:
        return
    if signatures.why_not(call, was[0], bound=bound) is not None and not _gone(source, call, was[0], function):
        return
    line = next(
        (number for number in range(call.lineno, (call.end_lineno or call.lineno) + 1) if number in source.added), call.lineno
    )
    shown = signatures.shown(function)
    yield Drift(source.path, line, f"this call no longer fits {name}: {why}; it takes {shown} now")


def _unchanged(source: Source, root: str, attributes: list[str]) -> bool:
    """Return whether the text alone shows that a call reaches the same function as before; this saves parsing files."""
    assert source.before is not None
    imported = source.imports.get(root, [])
    if len(imported) > 1:
        return False
    if not imported:
        if root in BUILTINS or root not in source.names.bound or (root in source.names.inner and root != "self"):
            return True
        if root == "self":
            return len(attributes) == 1 and _same_headers(source, source.path, attributes[0])
        return _same_headers(source, source.path, root, *attributes)
    place, name = imported[0].place, imported[0].name
    if place is None:
        return True
    names = [*([name] if name is not None else []), *attributes]
    path = source.modules.file(place)
    for _ in range(_DEPTH):
        if path is None or not names:
            break
        inner = f"{place}/{names[0]}"
        if source.modules.file(inner):
            place, names = inner, names[1:]
        else:
            further = source.modules.reexport(path, names[0])
            if further is None:
                break
            place = further
        path = source.modules.file(place)
    return path is not None and _same_headers(source, path, *names)


def _same_headers(source: Source, path: str, *names: str) -> bool:
    """Return whether the text shows that a function, a class or a method has the same parameters as before."""
    assert source.before is not None
    data, old = source.modules.files.read(path) or b"", source.before.files.read(path) or b""
    if not names:
        return False
    name = names[0]
    is_class = source.modules.defines_class(path, name)
    if data == old and (is_class or (len(names) == 1 and b"\ndef " + name.encode() + b"(" in data)):
        return True
    if not is_class:
        now = headers(data, name)
        # The file itself does not define the name, so it comes from elsewhere.
        own = path == source.path and b"class " + name.encode() not in data
        return (own and not now) or (len(names) == 1 and bool(now) and now == headers(old, name))
    method = names[1] if len(names) > 1 else "__init__"
    return source.before.defines_class(path, name) and headers(data, method) == headers(old, method)


def _gone(source: Source, call: ast.Call, was: Function, now: Function) -> bool:
    """Return whether an added line names a removed parameter; the other lines of the call may be upstream's."""
    known, left = ({each.arg for each in ast.walk(of.args) if isinstance(each, ast.arg)} for of in (was, now))
    return any(word.arg in known - left and word.lineno in source.added for word in call.keywords if word.arg)


def _callee(
    source: Source, modules: Modules, parents: Parents, root: str, attributes: list[str]
) -> tuple[Function, bool, str] | None:
    """Return the function that a call reaches, whether an object gives its first argument, and its name."""
    if root == "self" and len(attributes) == 1:
        around = [parent for parent in parents if isinstance(parent, ast.ClassDef)]
        path = modules.module(source.path)
        found = path.bound.get(around[0].name) if path is not None and len(around) == 1 else None
        if found is None or len(found) != 1 or not isinstance(found[0], ast.ClassDef):
            return None
        return _method(found[0], attributes[0], instance=True)
    target = _target(source, modules, root, attributes)
    if target is None:
        return None
    definition, rest = target
    if isinstance(definition, ast.ClassDef):
        return _method(definition, rest[0], instance=False) if len(rest) == 1 else None if rest else _constructor(definition)
    return None if rest else (definition, False, definition.name)


def _target(source: Source, modules: Modules, root: str, attributes: list[str]) -> tuple[Definition, list[str]] | None:
    """Return the function or class to which a chain of names leads, and the rest of the chain."""
    rest = list(attributes)
    if root in source.imports:
        if not source.is_only_imported(root):
            return None
        found = {modules.follow(imported) for imported in source.imports[root]}
        step = found.pop() if len(found) == 1 else None
    else:
        own = modules.module(source.path)
        bound = own.bound.get(root, []) if own is not None else []
        if len(bound) != 1 or not isinstance(bound[0], Definition) or root in source.names.inner:
            return None
        step = "", bound[0]
    while step is not None and step[1] is None and rest:
        step = modules.resolve(step[0], rest.pop(0))
    return (step[1], rest) if step is not None and step[1] is not None else None


def _constructor(definition: ast.ClassDef) -> tuple[Function, bool, str] | None:
    if definition.decorator_list or definition.keywords:
        return None
    found = _method(definition, "__init__", instance=True)
    return (found[0], True, definition.name) if found is not None and not _own(definition, "__new__") else None


def _method(definition: ast.ClassDef, name: str, *, instance: bool) -> tuple[Function, bool, str] | None:
    own = _own(definition, name)
    kind = signatures.method(own[0]) if len(own) == 1 else None
    if kind is None or (kind == "method" and not instance):
        return None
    return own[0], kind != "staticmethod", f"{definition.name}.{name}"


def _own(definition: ast.ClassDef, name: str) -> list[Function]:
    return [each for each in definition.body if isinstance(each, Function) and each.name == name]
