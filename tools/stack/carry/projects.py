# SPDX-License-Identifier: Apache-2.0
"""The plug-in point: what differs from one kind of upstream project to another.

An installed package adds a project by an entry point of the group `stack.projects`, whose value is an object that has the methods
of `Project`. Nothing is ever loaded from a stack's folder: reading a checkout must not run code from it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Protocol, runtime_checkable

from packaging.requirements import InvalidRequirement, Requirement

from stack.base.errors import StackError

GROUP = "stack.projects"

Read = Callable[[str], bytes | None]
"""Returns the content of a file of the upstream's tree by its path; None if there is none."""


@dataclass(frozen=True, slots=True)
class Required:
    """A version of another project that a tree requires: by package name or by its name in `pins.toml`, as `file` states it."""

    name: str
    version: str
    file: str


@runtime_checkable
class Project(Protocol):
    """One kind of upstream project. All known kinds are asked about every tree."""

    def required(self, read: Read) -> Iterable[Required]:
        """Return the exact versions of other projects that a tree requires; empty if the tree is of another kind."""


class PythonRequirements:
    """A Python project that pins what it runs with in a list of requirements, such as vLLM."""

    FILES = ("requirements/cuda.txt",)
    """vLLM: `flashinfer-python==0.7.0.post1` in requirements/cuda.txt."""

    def required(self, read: Read) -> Iterator[Required]:
        """Yield the requirements with an exact version."""
        for file in self.FILES:
            for line in (read(file) or b"").decode("utf-8", "replace").splitlines():
                requirement = _requirement(line)
                exact = (
                    [spec.version for spec in requirement.specifier if spec.operator in ("==", "===")] if requirement else []
                )
                if requirement is not None and exact:
                    yield Required(requirement.name, exact[0], file)


@functools.cache
def known() -> tuple[Project, ...]:
    """Return the kinds of project that are known: our own, then those of installed packages, by name.

    Raises:
        StackError: A package's entry point cannot be loaded, or is no project.

    """
    return (PythonRequirements(), *(_loaded(name) for name in sorted({entry.name for entry in entry_points(group=GROUP)})))


def required(read: Read) -> tuple[Required, ...]:
    """Return the exact versions of other projects that a tree requires.

    Raises:
        StackError: As for `known`; or a project's own code failed on this tree.

    """
    found: list[Required] = []
    for project in known():
        try:
            found += project.required(read)
        except StackError:
            raise
        except Exception as failed:
            name = type(project).__qualname__
            raise StackError(
                f"the project plug-in {name} failed ({type(failed).__name__}: {failed})", "mend or remove it"
            ) from failed
    return tuple(found)


def _loaded(name: str) -> Project:
    entry = entry_points(group=GROUP)[name]
    where = f"the entry point {name} = {entry.value} of {GROUP}"
    try:
        project = entry.load()
    except Exception as failed:
        raise StackError(f"{where} cannot be loaded ({failed})", "mend or remove its package") from failed
    if isinstance(project, type) or not isinstance(project, Project):
        raise StackError(f"{where} is no project", "it has to be an object with the method `required`")
    return project


def _requirement(line: str) -> Requirement | None:
    try:
        return Requirement(line.partition(" #")[0].strip())
    except InvalidRequirement:  # A comment, an option or a blank line.
        return None
