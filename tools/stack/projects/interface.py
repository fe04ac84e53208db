# SPDX-License-Identifier: Apache-2.0
"""The interface of a project plug-in: one class, whose methods all have a default, and the frozen values that they return."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from stack.model.ids import TreeId
from stack.projects.wheels import WheelRules
from stack.store.objects import Objects

Read = Callable[[str], bytes | None]
"""Returns the content of a file of the upstream's tree by its path; None if there is none."""

_PREFIX = re.compile(r"[A-Z][A-Z0-9_]*")


class Tree(Protocol):
    """The files of an upstream's tree. `objects` and `tree` are the git repository and the tree's id in it."""

    @property
    def objects(self) -> Objects:
        """The repository."""
        ...

    @property
    def tree(self) -> TreeId:
        """The tree's id."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if the path is not a file."""
        ...

    def text(self, path: str) -> str:
        """Return a file's text; empty if the path is not a file."""
        ...

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        ...

    def walk(self, folder: str = "") -> Iterator[str]:
        """Yield the paths of all files below a folder."""
        ...


@dataclass(frozen=True, slots=True)
class Required:
    """A version of another project that a tree requires: by package name or by its name in `pins.toml`, as `file` states it."""

    name: str
    version: str
    file: str


@dataclass(frozen=True, slots=True)
class Owner:
    """The upstream that owns all environment variables with a prefix. Only a tree of the owner is asked whether it knows them.

    Attributes:
        prefix: the start of the names, such as `NGINX_`.
        upstream: its name in `pins.toml`.
        marks: files; a tree that has one of them is the owner's.
        table: a file that declares all variables, one a line: `NAME: …` or `"NAME": …`. Without one, all `sources` are searched.
        sources: git pathspecs of the files that name variables.

    """

    prefix: str
    upstream: str
    marks: tuple[str, ...]
    table: str | None = None
    sources: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"{self.prefix!r} is not the start of an environment variable's name")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A setting that the tree does not know. `near` is the most similar name that it knows, if any.

    `is_certain`: false if a plug-in may know it.
    """

    name: str
    problem: str
    near: str | None = None
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Use:
    """The purpose of a command that serves: its flags, the GPU and the model.

    Attributes:
        flags: its flags by their long names, with their values.
        capability: compute capability of the GPU, such as `12.1`.
        head_size: elements of an attention head; None: unknown.
        has_sinks: whether the model's attention has sinks; None: unknown.
        experts: format of the model's experts: `mxfp4`, `nvfp4` or `fp8`; None: unknown, or none.
        is_whole: whether all of the command's flags are known.

    """

    flags: Mapping[str, str]
    capability: str
    head_size: int | None = None
    has_sinks: bool | None = None
    experts: str | None = None
    is_whole: bool = False

    @property
    def pair(self) -> tuple[int, int]:
        """The compute capability as two numbers."""
        major, _, minor = self.capability.partition(".")
        return int(major), int(minor)


@dataclass(frozen=True, slots=True)
class Unfit:
    """A flag that cannot work for a use, with the reason. `instead`: values that work, if the sources name any."""

    flag: str
    problem: str
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitScript:
    """A script that lists what a tree's own JIT would compile; `stack compile-check` runs it in the environment of proofs.

    It is started as `python SCRIPT TREE WORK ARCHITECTURE` with a JSON list of expressions as input, and prints JSON as
    docs/plug-ins.md says.

    Attributes:
        path: the script.
        title: the project's name in messages.
        package: the package that provides modules compiled ahead of time, if the project looks for one.
        code: the Python file that becomes the `__init__.py` of that package.

    """

    path: Path
    title: str
    package: str | None = None
    code: Path | None = None


@runtime_checkable
class Project(Protocol):
    """One kind of upstream project. Derive a class and override what applies. Every installed project is asked about every tree."""

    def required(self, read: Read) -> Iterable[Required]:
        """Return the exact versions of other projects that a tree requires; empty if the tree is of another kind."""
        return ()

    def owners(self) -> Sequence[Owner]:
        """Return the owners of environment variables."""
        return ()

    def commands(self) -> Sequence[tuple[str, ...]]:
        """Return the commands, as words, whose flags `unknown_flags` knows: `("vllm", "serve")`."""
        return ()

    def unknown_flags(self, tree: Tree, flags: Iterable[str]) -> Iterable[Unknown]:
        """Return those flags of the project's command that a tree does not know; nothing if the tree is of another kind."""
        return ()

    def unknown_values(self, tree: Tree, given: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Unknown]:
        """Return those pairs of a flag and its value whose value a tree does not know."""
        return {}

    def unfit(self, tree: Tree, use: Use) -> Iterable[Unfit]:
        """Return the flags of the project's command that cannot work for a use, as far as a tree's sources say so."""
        return ()

    def base_package(self) -> str | None:
        """Return the package that proofs install first, in the version that `required` states: lists of requirements leave it out."""
        return None

    def units(self, read: Read) -> UnitScript | None:
        """Return the script that lists what a tree's JIT would compile; None if the tree has no JIT that is known."""
        return None

    def wheel(self, upstream: str) -> WheelRules | None:
        """Return how the wheel of an upstream is made, by the upstream's name in `pins.toml`."""
        return None
