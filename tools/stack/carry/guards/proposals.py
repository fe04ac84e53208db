# SPDX-License-Identifier: Apache-2.0
"""Propose guards for a plug-in: the attributes that it replaces, and the files that it has copied from upstream."""

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.drift.outline import parse
from stack.carry.drift.source import chain
from stack.carry.drift.tree import ASIDE, Files
from stack.carry.guards.own import LARGEST, Own
from stack.carry.guards.recording import Wanted, filled
from stack.carry.guards.standing import pinned
from stack.carry.guards.view import Cache, View
from stack.carry.upstream_stores import Stores
from stack.model import guards
from stack.model.guards import Guard, Kind
from stack.model.ids import TreeId
from stack.store import remote
from stack.store.objects import FILES, Objects

_MOST_FILES = 20_000
"""Python files of a user's folder that are read."""
_LONG = 12
"""Characters of a line that says something about where it comes from."""
_ALIKE, _LEAST = 0.6, 15
"""Least share of a file's long lines that one upstream file has, and least number of them."""
_LONGEST_PATH = 4096
"""Bytes of a path at which the system refuses it (PATH_MAX of Linux)."""
_SKIPPED = frozenset({"node_modules", "build", "dist", "venv", "site-packages", "stacks"})


@dataclass(frozen=True, slots=True)
class Proposal:
    """A guard that could be added, with the place in the user's code, and for a copy how alike both files are."""

    guard: Guard
    place: str
    alike: float | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replacement of an attribute in the user's code: the name with all its dots, and the line."""

    dotted: str
    line: int


def find(stores: Stores, folders: Sequence[Path]) -> tuple[Proposal, ...]:
    """Propose guards for the Python files below some folders, without those that the stack has.

    Raises:
        StackError: a folder does not exist, or there are too many files.

    """
    own = Own(stores.stack.root)
    sources = _sources(own, folders or [own.root])
    known = {guard.target for guard in stores.stack.guards}
    copied = {guard.file for guard in stores.stack.guards}
    taken = {guard.name for guard in stores.stack.guards}
    proposals: list[Proposal] = []
    for pin in stores.stack.pins:
        stores.tell(f"looking for what your code takes from {pin.upstream}")
        for each in (*_patched(stores, pin.upstream, sources), *_copied(stores, pin.upstream, sources)):
            if each.guard.target in known and each.guard.kind is Kind.PATCHED:
                continue
            if each.guard.file and each.guard.file in copied:
                continue
            known.add(each.guard.target)
            name = _unique(each.guard.name, taken)
            taken.add(name)
            proposals.append(replace(each, guard=replace(each.guard, name=name)))
    return tuple(proposals)


def _sources(own: Own, folders: Sequence[Path]) -> dict[str, bytes]:
    """Read the Python files below some folders, by their paths below the repository."""
    found: dict[str, bytes] = {}
    for folder in folders:
        if not folder.exists():
            raise StackError(f"{folder} does not exist", "name a folder or file of your repository")
        if not folder.resolve().is_relative_to(own.root):
            raise StackError(f"{folder} is outside of your repository {own.root}", "name a folder or file below it")
        for file in _python_files(folder.resolve()):
            if len(found) >= _MOST_FILES:
                raise StackError(f"{folder} has more than {_MOST_FILES} Python files", "name a smaller folder")
            path = file.relative_to(own.root).as_posix()
            if not guards.path_fault(path):
                found[path] = own.read(path)
    return found


def _python_files(place: Path) -> Iterator[Path]:
    """Yield the Python files below a folder that are small enough to be read. Links are not followed."""
    waiting = [place]
    while waiting:  # folders may be nested deeper than functions may call each other
        here = waiting.pop()
        if here.is_dir():
            waiting += reversed([entry for entry in _entries(here) if not entry.is_symlink() and not _is_skipped(entry.name)])
        elif here.suffix == ".py" and here.is_file() and here.stat().st_size <= LARGEST:
            yield here


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in sorted(folder.iterdir()) if len(os.fsencode(entry)) < _LONGEST_PATH]
    except OSError as failed:
        raise StackError(
            f"{folder} cannot be read ({failed.strerror})", "check its rights, or name a smaller folder"
        ) from failed


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def _patched(stores: Stores, upstream: str, sources: Mapping[str, bytes]) -> Iterator[Proposal]:
    point, objects, cache = pinned(stores, upstream), stores.objects(upstream), Cache()
    tree = objects.tree_of(point.commit)
    view = View(objects, tree, cache)
    seen: set[str] = set()
    for path, data in sources.items():
        for each in replacements(data):
            target = _target(view, each.dotted)
            if target is None or target in seen:
                continue
            seen.add(target)
            module, _, member = target.partition(":")
            place = f"{path}:{each.line}"
            name = _slug(f"{module.rpartition('.')[2]}-{member}")
            wanted = Wanted(name, Kind.PATCHED, target, f"{place} replaces it", upstream)
            made = filled(wanted.guard, stores, point)
            if isinstance(made, Guard):
                yield Proposal(made, place)


def replacements(data: bytes) -> tuple[Replaced, ...]:
    """Find assignments to attributes of imported names, and calls of `setattr` on them."""
    try:
        tree = parse(data)
    except SyntaxError:
        return ()
    names = _imports(tree)
    found = []
    for node in ast.walk(tree):
        for target in _targets(node):
            held = chain(target)
            if held is not None and held[0] in names and held[1]:
                found.append(Replaced(".".join([names[held[0]], *held[1]]), getattr(node, "lineno", 0)))
    return tuple(found)


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return the imported names of a file, also those in functions, with the names that they stand for."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        yield from (target for target in node.targets if isinstance(target, ast.Attribute))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) == 3:
        holder, name = node.args[:2]
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
            yield ast.Attribute(holder, name.value, ast.Store())


def _target(view: View, dotted: str) -> str | None:
    """Split a dotted name into the longest module that the tree has and the attribute; None if it has no such module."""
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module, member = ".".join(parts[:cut]), ".".join(parts[cut:])
        if re.fullmatch(guards.QUALIFIED, module) and view.module(module) is not None:
            return f"{module}:{member}" if re.fullmatch(guards.QUALIFIED, member) else None
    return None


def _copied(stores: Stores, upstream: str, sources: Mapping[str, bytes]) -> Iterator[Proposal]:
    """Yield the files that share most of their long lines with one upstream file."""
    point, objects = pinned(stores, upstream), stores.objects(upstream)
    lines = {path: _lines(data) for path, data in sources.items()}
    lines = {path: its for path, its in lines.items() if len(its) >= _LEAST}
    wanted = frozenset(line for its in lines.values() for line in its)
    best: dict[str, tuple[float, str]] = {}
    for theirs, blob in _upstream_files(objects, objects.tree_of(point.commit)) if wanted else ():
        shared = wanted & _lines(objects.read(blob))
        if len(shared) < _LEAST:
            continue
        for path, its in lines.items():
            share = len(its & shared) / len(its)
            if share >= max(_ALIKE, best.get(path, (0.0, ""))[0]) and len(its & shared) >= _LEAST:
                best[path] = (share, theirs)
    for path, (share, theirs) in sorted(best.items()):
        name = _slug(f"copy-{Path(path).stem}")
        made = filled(Wanted(name, Kind.COPIED, theirs, f"{path} is a copy of it", upstream, file=path).guard, stores, point)
        if isinstance(made, Guard):
            yield Proposal(made, path, share)


def _upstream_files(objects: Objects, tree: TreeId) -> Iterator[tuple[str, str]]:
    """Yield the Python files of the package with their blobs, whose contents are fetched in one request."""
    files = Files(objects, tree)
    paths = (path for path in files.walk() if path.endswith(".py") and path.partition("/")[0] not in ASIDE)
    found = {path: entry.id for path in paths if (entry := files.entry(path)) is not None and entry.mode in FILES}
    remote.fetch_blobs(objects.repository, set(found.values()))
    objects.request(found.values())
    yield from found.items()


def _lines(data: bytes) -> frozenset[bytes]:
    """Return the long lines of a file without indentation; imports and comments are alike in many files."""
    stripped = (line.strip() for line in data.split(b"\n"))
    return frozenset(line for line in stripped if len(line) >= _LONG and not line.startswith((b"#", b"import ", b"from ")))


def _slug(text: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name[:72].rstrip("-") or "guard"


def _unique(name: str, taken: set[str]) -> str:
    return next(
        each for number in range(1, len(taken) + 2) if (each := f"{name}-{number}" if number > 1 else name) not in taken
    )
