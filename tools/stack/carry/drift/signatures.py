# SPDX-License-Identifier: Apache-2.0
"""Compare calls with function signatures, from their syntax alone."""

import ast

_PLAIN = frozenset({"staticmethod", "classmethod"})


def why_not(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool) -> str | None:
    """Return why a call does not match a function's parameters; None if it matches, or may match.

    `bound`: the object gives the first argument.
    """
    wanted = function.args
    positional = [*wanted.posonlyargs, *wanted.args]
    names = [argument.arg for argument in positional]
    optional = set(names[len(names) - len(wanted.defaults) :]) if wanted.defaults else set()
    keywords = {argument.arg for argument in (*wanted.args, *wanted.kwonlyargs)}
    required = [
        argument.arg for argument, default in zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True) if default is None
    ]
    if bound:
        if not names and wanted.vararg is None:
            return "it takes no arguments"
        names = names[1:]
    given = [argument for argument in call.args if not isinstance(argument, ast.Starred)]
    spread = len(given) != len(call.args)
    named = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    unknown = [name for name in named if name not in keywords]
    if unknown and wanted.kwarg is None:
        return f"it has no parameter {unknown[0]!r}"
    if len(given) > len(names) and wanted.vararg is None:
        return f"it takes {len(names)} positional arguments, the call gives {len(given)}"
    filled = set(names[: len(given)])
    twice = [name for name in named if name in filled and name not in {argument.arg for argument in wanted.posonlyargs}]
    if twice:
        return f"{twice[0]!r} is given twice"
    if spread or len(named) != len(call.keywords):
        return None
    missing = [name for name in (*names, *required) if name not in filled and name not in optional and name not in named]
    return f"it needs {missing[0]!r}" if missing else None


def shown(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the parameters as source text, without annotations."""
    bare = ast.parse(f"def f({ast.unparse(function.args)}): pass").body[0]
    assert isinstance(bare, ast.FunctionDef)
    for argument in ast.walk(bare.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return f"({ast.unparse(bare.args)})"


def same(function: ast.FunctionDef | ast.AsyncFunctionDef, other: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether two functions take the same arguments."""
    return shown(function) == shown(other)


def alike(function: ast.FunctionDef | ast.AsyncFunctionDef, other: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether two functions have the same decorators: a different decorator may change the arguments of a call."""
    return [ast.dump(each) for each in function.decorator_list] == [ast.dump(each) for each in other.decorator_list]


def method(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """Return `staticmethod`, `classmethod` or `method`; None for a function with any other decorator, such as a property."""
    plain = [decorator.id if isinstance(decorator, ast.Name) else "" for decorator in function.decorator_list]
    kinds = [name for name in plain if name in _PLAIN]
    if len(kinds) == 1:
        return kinds[0]
    return "method" if not function.decorator_list else None
