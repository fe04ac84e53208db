# SPDX-License-Identifier: Apache-2.0
"""Find the files of a project that a Python module depends on by reading its imports; nothing is imported."""

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_COMPILED = "__pycache__"


def closure(
    modules: Iterable[Path], roots: Sequence[Path], without: Iterable[Path] = (), below: Sequence[Path] | None = None
) -> tuple[Path, ...]:
    """Find the modules and every file below `roots` that they import, directly or indirectly.

    Importing a package also adds the files of other kinds below its folder (C++, TOML, texts), since its modules may read them. A
    package on the way, such as `a` in `import a.b`, adds only its `__init__.py`. An import by name counts if the name is a literal:
    `importlib.import_module("a.b")`.

    Args:
        modules: The files to start from.
        roots: Folders where absolute imports are looked up, in this order. Everything else (the standard library, installed
            packages) is outside and not followed.
        without: Files to leave out and not to follow.
        below: Files and folders; everything outside of them is left out, too. None: no such limit.

    Returns:
        The files, sorted.

    """
    found: set[Path] = set()
    left_out = {path.resolve() for path in without}
    waiting = [module.resolve() for module in modules]
    places = [root.resolve() for root in roots]
    bounds = None if below is None else [path.resolve() for path in below]
    while waiting:
        file = waiting.pop()
        if file in found or file in left_out:
            continue
        found.add(file)
        if file.suffix == ".py":
            waiting += (path for path in _imported(file, places) if bounds is None or any(map(path.is_relative_to, bounds)))
    return tuple(sorted(found))


def digest(files: Iterable[Path], relative_to: Path) -> str:
    """Hash the names and contents of files; a missing file counts as empty."""
    whole = hashlib.sha256()
    base = relative_to.resolve()
    for file in sorted(path.resolve() for path in files):
        name = file.relative_to(base) if file.is_relative_to(base) else Path(file.name)
        data = file.read_bytes() if file.is_file() else b""
        whole.update(f"{name.as_posix()}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


def _imported(file: Path, roots: Sequence[Path]) -> Iterator[Path]:
    try:
        source = file.read_bytes()
    except OSError:
        return  # such a file cannot be imported either
    for name, level in _names_in(source):
        for start in _starts(file, roots, level):
            if files := tuple(_files(start, name.split(".") if name else [])):
                yield from files
                break


@functools.lru_cache(maxsize=1024)
def _names_in(source: bytes) -> tuple[tuple[str, int], ...]:
    """Return the imports of a module; one command asks for the closures of many files, which are mostly the same files."""
    try:
        return tuple(_names(ast.parse(source)))
    except (SyntaxError, ValueError):
        return ()  # such a module cannot be imported either


def _names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield imported names with their number of leading dots; `b` in `from a import b` may be a module, so `a.b` is tried, too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, 0) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                yield module or "", level
                yield from ((f"{module}.{alias.name}" if module else alias.name, level) for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "importorskip") | ast.Name(id="import_module" | "importorskip"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name, 0
            case ast.Assign(targets=[ast.Name(id="pytest_plugins")], value=value):
                yield from (
                    (constant.value, 0)
                    for constant in ast.walk(value)
                    if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
                )


def _starts(file: Path, roots: Sequence[Path], level: int) -> Sequence[Path]:
    return [file.parents[level - 1]] if level else roots


def _files(start: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files that `import a.b.c` runs; nothing if `start` has no such module."""
    passed: list[Path] = []
    folder = start
    for part in parts[:-1]:
        folder /= part
        if not folder.is_dir():
            return
        passed.append(folder / "__init__.py")
    last = folder / parts[-1] if parts else folder
    if last.is_dir():
        passed += [last / "__init__.py", *_data(last)]
    elif last.with_suffix(".py").is_file():
        passed.append(last.with_suffix(".py"))
    else:
        return
    yield from (file for file in passed if file.is_file())


def _data(package: Path) -> Iterator[Path]:
    for path in package.rglob("*"):
        if path.suffix not in (".py", ".pyc") and _COMPILED not in path.parts and path.is_file():
            yield path
