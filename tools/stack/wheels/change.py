# SPDX-License-Identifier: Apache-2.0
"""Classify what patches change in an upstream: Python, sources compiled at run time, or compiled contents of its wheel."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from stack.projects import Changes, known

_SOURCES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".f", ".h", ".hpp", ".inl", ".pyx", ".pxd", ".rs", ".cmake")


class ChangeKind(IntEnum):
    """The kinds of changes, ordered by what they require of a build; the largest one decides."""

    NOTHING = 0
    """No file changes."""
    PYTHON = 1
    """Files that are copied unchanged."""
    JIT = 2
    """Sources that the wheel contains and that are compiled at run time."""
    COMPILED = 3
    """Sources of compiled files in the published wheel, which then has to be built from source."""


@dataclass(frozen=True, slots=True)
class Change:
    """The kind of a change, with the files that decide it; upstream itself only warns about the files in `odd`, which may matter."""

    kind: ChangeKind
    because: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


def classify(upstream: str, paths: Iterable[str]) -> Change:
    """Classify a change by its files; without a rule for the upstream, the files' names decide.

    Raises:
        StackError: a project plug-in failed.

    """
    rules = known.wheel(upstream)
    rule = rules.changes if rules is not None else None
    kinds = {path: _by_rule(rule, path) if rule is not None else _by_name(path) for path in sorted(set(paths))}
    kind = max(kinds.values(), default=ChangeKind.NOTHING)
    odd = tuple(path for path in kinds if rule is not None and _under(path, rule.odd))
    return Change(kind, tuple(path for path, kind_ in kinds.items() if kind_ is kind), odd)


def _by_rule(rule: Changes, path: str) -> ChangeKind:
    if _under(path, rule.compiled):
        return ChangeKind.COMPILED
    return ChangeKind.JIT if _under(path, rule.jit) else ChangeKind.PYTHON


def _by_name(path: str) -> ChangeKind:
    name = path.rpartition("/")[2]
    built = name.endswith(_SOURCES) or name in ("CMakeLists.txt", "pyproject.toml", "setup.py")
    return ChangeKind.COMPILED if built else ChangeKind.PYTHON


def _under(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or (place.endswith("/") and path.startswith(place)) for place in places)
