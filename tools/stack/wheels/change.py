# SPDX-License-Identifier: Apache-2.0
"""What patches change of an upstream: Python, sources that are compiled while it runs, or what its wheel holds compiled."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

_SOURCES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".f", ".h", ".hpp", ".inl", ".pyx", ".pxd", ".rs", ".cmake")


class Kind(IntEnum):
    """What a change asks of a build; the larger one decides."""

    NOTHING = 0
    """No file changes."""
    PYTHON = 1
    """Files that are copied as they are."""
    JIT = 2
    """Sources that the wheel carries, compiled where it runs."""
    COMPILED = 3
    """What the published wheel holds compiled: only a build from source has it."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a build has to do, and the files that say so; `odd`: files that may matter to a build, and upstream only warns of."""

    kind: Kind
    because: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Rule:
    """Paths, or folders with a slash behind: of compiled code, of sources compiled at run time, and of what only warns."""

    compiled: tuple[str, ...] = ()
    jit: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


_RULES = {
    # vLLM's own rule for when its precompiled binaries do not fit a change (setup.py).
    "vllm": _Rule(
        compiled=("csrc/", "cmake/", "CMakeLists.txt", "pyproject.toml", "vllm/_custom_ops.py"), odd=("rust/", "setup.py")
    ),
    "flashinfer": _Rule(jit=("csrc/", "include/", "3rdparty/")),
    "cutlass": _Rule(jit=("include/", "tools/")),
}


def classify(upstream: str, paths: Iterable[str]) -> Change:
    """What a change of these files asks of a build of an upstream; one that has no rule is judged by the files' names."""
    rule = _RULES.get(upstream)
    kinds = {path: _by_rule(rule, path) if rule is not None else _by_name(path) for path in sorted(set(paths))}
    kind = max(kinds.values(), default=Kind.NOTHING)
    odd = tuple(path for path in kinds if rule is not None and _under(path, rule.odd))
    return Change(kind, tuple(path for path, one in kinds.items() if one is kind), odd)


def _by_rule(rule: _Rule, path: str) -> Kind:
    if _under(path, rule.compiled):
        return Kind.COMPILED
    return Kind.JIT if _under(path, rule.jit) else Kind.PYTHON


def _by_name(path: str) -> Kind:
    name = path.rpartition("/")[2]
    built = name.endswith(_SOURCES) or name in ("CMakeLists.txt", "pyproject.toml", "setup.py")
    return Kind.COMPILED if built else Kind.PYTHON


def _under(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or (place.endswith("/") and path.startswith(place)) for place in places)
