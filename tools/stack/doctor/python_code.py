# SPDX-License-Identifier: Apache-2.0
"""Parse Python code that starts a server: lists of arguments, and vLLM's own classes."""

import ast
import warnings
from collections.abc import Iterator

from stack.doctor.commands import Collector, Flag, Serve, Setting, shell_commands
from stack.doctor.shell import Word

_CLASSES = ("LLM", "AsyncEngineArgs", "EngineArgs")
_LEAST = 2


def parse(found: Collector, text: str) -> None:
    """Parse code; what is not Python is left alone."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            words = tuple(_words(node))
            if len(words) >= _LEAST:
                shell_commands(found, iter((words,)), None)
        elif isinstance(node, ast.Call) and _name(node.func) in _CLASSES:
            found.serves.append(_called(node))
        elif isinstance(node, ast.Assign):
            found.settings += _assigned(node)


def _words(node: ast.List | ast.Tuple) -> Iterator[Word]:
    """Yield the words of a list of arguments; what is not a text is unknown, like a variable."""
    for item in node.elts:
        if isinstance(item, ast.Constant) and isinstance(item.value, str | int | float):
            yield Word(_text(item.value), item.lineno)
        elif not isinstance(item, ast.Starred):
            yield Word("$value", item.lineno)


def _called(node: ast.Call) -> Serve:
    """Return what a call of one of vLLM's classes configures; it has no API of its own."""
    given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    flags = [
        Flag(f"--{name.replace('_', '-')}", _value(value), value.lineno)
        for name, value in given.items()
        if name != "model" and not (isinstance(value, ast.Constant) and value.value is False)
    ]
    first = given.get("model") or (node.args[0] if node.args else None)
    model = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    flags.append(Flag("--uds", "in-process", node.lineno))
    return Serve(node.lineno, model, tuple(flags), None, is_whole=False)


def _value(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return None if node.value is True else _text(node.value)
    return "$value"


def _text(value: object) -> str:
    """Return a constant as text; a number with more digits than Python writes is unknown."""
    try:
        return str(value)
    except ValueError:
        return "$value"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _assigned(node: ast.Assign) -> Iterator[Setting]:
    """Yield variables that are set as `os.environ["NAME"] = "value"`."""
    for target in node.targets:
        if not isinstance(target, ast.Subscript) or _name(target.value) != "environ":
            continue
        if isinstance(target.slice, ast.Constant) and isinstance(node.value, ast.Constant):
            yield Setting(_text(target.slice.value), _text(node.value.value), node.lineno)
