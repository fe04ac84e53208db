# SPDX-License-Identifier: Apache-2.0
"""Say in a sentence how a signature has changed: a function of a model runner may take forty parameters."""

import ast
import re

from stack.base.text import shortened

_FUNCTION = re.compile(r"((?:@\S+ )*)(?:async )?def (\(.*\))")
_CLASS = re.compile(r"((?:@\S+ )*)class (\(.*?\))(?: __init__ (\(.*\)))?")
_LONGEST = 160
"""Characters of a signature that is shown whole."""


def changed(old: str, new: str) -> str:
    """Return what a new signature has that the old one lacks, and the other way round; both if they are short."""
    if len(old) + len(new) <= _LONGEST:
        return f"is now `{new}`; it was `{old}`"
    was, now = _parts(old), _parts(new)
    if was is None or now is None:
        return f"is now `{shortened(new, _LONGEST)}`; it was `{shortened(old, _LONGEST)}`"
    added = [each for each in now if each not in was]
    gone = [each for each in was if each not in now]
    sentences = [*([f"has {_listed(added)}"] if added else []), *([f"no longer has {_listed(gone)}"] if gone else [])]
    return " and ".join(sentences) or "has its parameters in another order"


def _parts(signature: str) -> list[str] | None:
    """Return a signature's decorators, base classes and parameters with their defaults; None if it is not one of them."""
    if (function := _FUNCTION.fullmatch(signature)) is not None:
        parameters = _parameters(function[2])
        return None if parameters is None else [*function[1].split(), *parameters]
    if (klass := _CLASS.fullmatch(signature)) is not None:
        parameters = _parameters(klass[3]) if klass[3] else []
        return None if parameters is None else [*klass[1].split(), f"class {klass[2]}", *parameters]
    return None


def _parameters(text: str) -> list[str] | None:
    try:
        tree = ast.parse(f"def f{text}: ...").body[0]
    except (SyntaxError, RecursionError, ValueError, MemoryError):
        return None
    return _named(tree.args) if isinstance(tree, ast.FunctionDef) else None


def _named(wanted: ast.arguments) -> list[str]:
    positional = [*wanted.posonlyargs, *wanted.args]
    defaults = [None] * (len(positional) - len(wanted.defaults)) + list(wanted.defaults)
    pairs = [*zip(positional, defaults, strict=True), *zip(wanted.kwonlyargs, wanted.kw_defaults, strict=True)]
    named = [each.arg if default is None else f"{each.arg}={ast.unparse(default)}" for each, default in pairs]
    stars = [f"{mark}{each.arg}" for mark, each in (("*", wanted.vararg), ("**", wanted.kwarg)) if each is not None]
    return named + stars


def _listed(parts: list[str]) -> str:
    return shortened(", ".join(f"`{part}`" for part in parts), _LONGEST)
