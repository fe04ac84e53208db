# SPDX-License-Identifier: Apache-2.0
"""Check the environment variables, and the flags of projects' commands, in recipes and compose files against one tree's sources.

Only a tree's own names are checked, as the project plug-ins say: `VLLM_*` and the flags of `vllm serve` in vLLM's tree.
"""

from collections.abc import Iterable, Iterator, Mapping

from stack.carry.drift import variables as environment
from stack.carry.drift.finding import nearest
from stack.carry.drift.tree import Files
from stack.model.ids import TreeId
from stack.projects import Unfit, Unknown, Use, known
from stack.store.objects import Objects


def check_settings(objects: Objects, tree: TreeId, variables: Iterable[str], flags: Iterable[str]) -> tuple[Unknown, ...]:
    """Find the environment variables and the flags that a tree does not know.

    Raises:
        StackError: the repository cannot be read, or a project plug-in failed.

    """
    files = Files(objects, tree)
    return (*_unknown_variables(files, variables), *known.unknown_flags(files, flags))


def check_values(objects: Objects, tree: TreeId, given: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Unknown]:
    """Find the (flag, value) pairs whose value a tree does not know.

    Raises:
        StackError: the repository cannot be read, or a project plug-in failed.

    """
    return known.unknown_values(Files(objects, tree), given)


def check_use(objects: Objects, tree: TreeId, use: Use) -> tuple[Unfit, ...]:
    """Find the flags that cannot work for a use, as far as a tree's sources say so.

    Raises:
        StackError: the repository cannot be read, or a project plug-in failed.

    """
    return known.unfit(Files(objects, tree), use)


def _unknown_variables(files: Files, names: Iterable[str]) -> Iterator[Unknown]:
    used = {name: [(name, 0)] for name in sorted(set(names))}
    for drift in environment.check(files, used, (), {}, None):
        near = nearest(drift.path, (name for name in environment.known(files) if name != drift.path))
        yield Unknown(drift.path, drift.problem, near)
