# SPDX-License-Identifier: Apache-2.0
"""Read the flags of `vllm serve` from vLLM's sources, and find those that a tree does not know."""

import ast
import re
from collections.abc import Iterable, Iterator

from stack.carry.drift.finding import nearest
from stack.carry.drift.modules import Modules
from stack.carry.drift.outline import parse
from stack.carry.drift.tree import Files
from stack.projects import Unknown

ENGINE = "vllm/engine/arg_utils.py"
_SERVE = "vllm/entrypoints/cli/serve.py"
_PARSER = ("vllm/utils/argparse_utils.py", "vllm/utils/__init__.py")
_ENTRYPOINTS = "vllm/entrypoints"
_PLATFORMS = "vllm/platforms"
_FRONTEND = "FrontendArgs"
_MAKES_PARSER = "make_arg_parser"
_ALWAYS = frozenset({"--help", "-h", "-O", "--version"})
_DEPTH = 6


def unknown(files: Files, given: Iterable[str]) -> Iterator[Unknown]:
    """Find the flags of `vllm serve` that a tree does not know.

    A flag may be written as on a command line: with its value after `=`, underscores, a key after a dot, or abbreviated.
    """
    wanted = sorted({flag for flag in given if flag.startswith("-")})
    if not wanted or not files.is_file(ENGINE):
        return
    known = serve_flags(files)
    if known is None:
        problem = f"the flags of `vllm serve` are not declared where they used to be: no {_FRONTEND} below {_ENTRYPOINTS}"
        yield from (Unknown(flag, problem) for flag in wanted)
        return
    for flag in wanted:
        name = _plain(flag)
        if not _accepted(name, known):
            near = nearest(name, known)
            hint = f"the nearest is {near}" if near else "no flag is named like it"
            yield Unknown(flag, f"`vllm serve` has no flag {name} in this tree: {hint}", near)


def _plain(flag: str) -> str:
    """Normalise a flag like vLLM's parser: without a value and keys after a dot, and with dashes."""
    name = flag.partition("=")[0]
    return name.partition(".")[0].replace("_", "-") if name.startswith("--") else name.partition(".")[0]


def _accepted(name: str, known: frozenset[str]) -> bool:
    if name in known or name in _ALWAYS or re.fullmatch(r"-O\w*", name):
        return True
    if name.startswith("--no-") and f"--{name[5:]}" in known:
        return True
    # argparse accepts a unique prefix of a flag.
    return name.startswith("--") and len([flag for flag in known if flag.startswith(name)]) == 1


def serve_flags(files: Files) -> frozenset[str] | None:
    """Return the flags of `vllm serve`; None if the tree declares them in an unknown way."""
    frontend = _frontend(files)
    if frontend is None:
        return None
    path, fields = frontend
    platforms = [f"{_PLATFORMS}/{name}" for name in files.names(_PLATFORMS) if name.endswith(".py")]
    found = {f"--{field.replace('_', '-')}" for field in fields}
    for source in (ENGINE, path, _SERVE, *platforms):
        found |= _declared(files.text(source))
    if any("--disable-" in files.text(source) for source in _PARSER):
        # `BooleanOptionalAction` of this tree gives `--enable-x` its `--disable-x`.
        pairs = (("--enable-", "--disable-"), ("--disable-", "--enable-"))
        found |= {other + flag.removeprefix(prefix) for flag in found for prefix, other in pairs if flag.startswith(prefix)}
    return frozenset(found)


def _declared(text: str) -> set[str]:
    """Return the flags that calls of `add_argument` name."""
    try:
        tree = parse(text.encode())
    except SyntaxError:
        return set()
    return {
        argument.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value.startswith("-")
    }


def _frontend(files: Files) -> tuple[str, set[str]] | None:
    """Find the file that makes the parser of `vllm serve`, and the dataclass fields that become flags."""
    modules = Modules(files)
    candidates = sorted(path for path in files.walk(_ENTRYPOINTS) if path.endswith("/cli_args.py"))
    for path in candidates:
        if f"def {_MAKES_PARSER}(" in files.text(path):
            fields = _fields(modules, path, _FRONTEND, _DEPTH)
            if fields is not None:
                return path, fields
    return None


def _fields(modules: Modules, path: str, name: str, depth: int) -> set[str] | None:
    """Return the annotated fields of a class and its bases; None if one of the classes cannot be found."""
    try:
        tree = parse(modules.files.read(path) or b"")
    except SyntaxError:
        return None
    found = next((each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name), None)
    if found is None or depth == 0:
        return None
    fields = {each.target.id for each in found.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    for base in found.bases:
        if not isinstance(base, ast.Name):
            return None
        if base.id in ("object", "ABC", "Protocol"):
            continue
        target = modules.resolve(path.removesuffix(".py"), base.id)
        file = modules.file(target[0]) if target is not None else None
        inner = _fields(modules, file, target[1].name, depth - 1) if file and target and target[1] is not None else None
        if inner is None:
            return None
        fields |= inner
    return fields
