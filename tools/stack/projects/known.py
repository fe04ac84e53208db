# SPDX-License-Identifier: Apache-2.0
"""Load the installed project plug-ins, and ask all of them.

An installed package adds a project by an entry point of the group `stack.plugins`, whose value is an object of a class that
derives from `Project`. Nothing is ever loaded from a stack's folder: reading a checkout must not run code from it.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from stack.base.errors import StackError
from stack.projects.interface import Owner, Project, Read, Required, Tree, Unfit, UnitScript, Unknown, Use
from stack.projects.wheels import WheelRules

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "stack.plugins"
_Answer = TypeVar("_Answer")


@functools.cache
def known() -> tuple[Project, ...]:
    """Return the kinds of project that are known: those of installed packages, by name.

    Raises:
        StackError: A package's entry point cannot be loaded, or is no project.

    """
    return tuple(_loaded(name) for name in names())


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of the installed plug-ins; none is loaded."""
    return tuple(sorted({entry.name for entry in _entries()}))


def require(wanted: Iterable[str]) -> None:
    """Refuse to work on a stack without a plug-in that it names: checks would be left out without a word.

    Raises:
        StackError: A plug-in is not installed.

    """
    for name in wanted:
        if name not in names():
            there = f"installed: {', '.join(names())}" if names() else "none is installed"
            raise StackError(
                f"stacks/stack.toml names the plug-in {name!r}, which is not installed ({there})", "install its package again"
            )


def fitting(read: Read) -> tuple[str, ...]:
    """Return the names of the installed plug-ins that know a tree: an owner's mark is there, or they have an answer about it.

    A plug-in that cannot be loaded, or fails on the tree, does not fit.
    """
    return tuple(name for name in names() if _fits(name, read))


def _fits(name: str, read: Read) -> bool:
    try:
        project = _loaded(name)
        marks = {mark for owner in _asked(project, lambda asked: tuple(asked.owners())) for mark in owner.marks}
        if any(read(mark) is not None for mark in marks) or _asked(project, lambda asked: asked.units(read)) is not None:
            return True
        return bool(_asked(project, lambda asked: tuple(asked.required(read))))
    except StackError:
        return False


def forget() -> None:
    """Forget which plug-ins are installed."""
    known.cache_clear()
    names.cache_clear()


def required(read: Read) -> tuple[Required, ...]:
    """Return the exact versions of other projects that a tree requires.

    Raises:
        StackError: As for `known`; or a project's own code failed on this tree.

    """
    return tuple(item for project in known() for item in _asked(project, lambda asked: tuple(asked.required(read))))


def owners() -> tuple[Owner, ...]:
    """Return the owners of environment variables.

    Raises:
        StackError: As for `required`.

    """
    return _owners(known())


@functools.lru_cache(maxsize=4)
def _owners(projects: tuple[Project, ...]) -> tuple[Owner, ...]:
    return tuple(owner for project in projects for owner in _asked(project, lambda asked: tuple(asked.owners())))


def commands() -> tuple[tuple[str, ...], ...]:
    """Return the commands whose flags some project knows, as words.

    Raises:
        StackError: As for `required`.

    """
    return tuple(command for project in known() for command in _asked(project, lambda asked: tuple(asked.commands())))


def unknown_flags(tree: Tree, flags: Iterable[str]) -> tuple[Unknown, ...]:
    """Return the flags of the projects' commands that a tree does not know.

    Raises:
        StackError: As for `required`.

    """
    given = tuple(flags)
    return tuple(item for project in known() for item in _asked(project, lambda asked: tuple(asked.unknown_flags(tree, given))))


def unknown_values(tree: Tree, given: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Unknown]:
    """Return the (flag, value) pairs whose value, or an outermost key of whose JSON, a tree does not know.

    Raises:
        StackError: As for `required`.

    """
    pairs = tuple(given)
    found: dict[tuple[str, str], Unknown] = {}
    for project in known():
        found |= _asked(project, lambda asked: dict(asked.unknown_values(tree, pairs)))
    return found


def unfit(tree: Tree, use: Use) -> tuple[Unfit, ...]:
    """Return the flags of the projects' commands that cannot work for a use, as far as a tree's sources say so.

    Raises:
        StackError: As for `required`.

    """
    return tuple(item for project in known() for item in _asked(project, lambda asked: tuple(asked.unfit(tree, use))))


def base_packages() -> frozenset[str]:
    """Return the packages that proofs install first, in the version that the upstream names, by their normalised names.

    Raises:
        StackError: As for `required`.

    """
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - only proofs and wheels ask

    named = (_asked(project, lambda asked: asked.base_package()) for project in known())
    return frozenset(canonicalize_name(name) for name in named if name is not None)


def units(read: Read) -> UnitScript | None:
    """Return the script that lists what a tree's JIT would compile; None if no project knows a JIT of the tree.

    Raises:
        StackError: As for `required`.

    """
    return _first(lambda asked: asked.units(read))


def wheel(upstream: str) -> WheelRules | None:
    """Return how the wheel of an upstream is made; None if no project knows it.

    Raises:
        StackError: As for `required`.

    """
    return _first(lambda asked: asked.wheel(upstream))


def wheels(upstreams: Iterable[str]) -> dict[str, WheelRules]:
    """Return how wheels are made, by upstream, of those that some project knows.

    Raises:
        StackError: As for `required`.

    """
    return {name: rules for name in upstreams if (rules := wheel(name)) is not None}


def _first(question: Callable[[Project], _Answer | None]) -> _Answer | None:
    answers = (_asked(project, question) for project in known())
    return next((answer for answer in answers if answer is not None), None)


def _asked(project: Project, question: Callable[[Project], _Answer]) -> _Answer:
    try:
        return question(project)
    except StackError:
        raise
    except Exception as failed:
        name = type(project).__qualname__
        raise StackError(
            f"the project plug-in {name} failed ({type(failed).__name__}: {failed})", "mend or remove it"
        ) from failed


def _entries() -> "EntryPoints":
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes a twentieth of a second, and many commands ask nothing

    return entry_points(group=GROUP)


def _loaded(name: str) -> Project:
    entry = _entries()[name]
    where = f"the entry point {name} = {entry.value} of {GROUP}"
    try:
        project = entry.load()
    except Exception as failed:
        raise StackError(f"{where} cannot be loaded ({failed})", "mend or remove its package") from failed
    if isinstance(project, type) or not isinstance(project, Project):
        raise StackError(f"{where} is no project", "it has to be an object of a class that derives from stack.projects.Project")
    return project
