# SPDX-License-Identifier: Apache-2.0
"""Recipes against the pinned sources with the stack's patches: every variable, every flag, and the values that flags declare."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from stack.base.errors import StackError
from stack.carry.drift import check_settings
from stack.carry.drift.choices import check_values
from stack.carry.drift.tree import Files
from stack.carry.drift.variables import OWNERS, grep
from stack.carry.upstream_stores import Stores
from stack.deploy import removed_settings
from stack.deploy.recipes import Recipe

LIBRARIES = MappingProxyType(
    {"NCCL_SOCKET_IFNAME": "NCCL", "NCCL_IB_HCA": "NCCL", "GLOO_SOCKET_IFNAME": "torch's Gloo"},
)
"""Variables that no pinned source reads, and who does: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html and
https://docs.pytorch.org/docs/stable/distributed.html name them."""

_READ = tuple(OWNERS.values())
"""The upstreams that recipes set something of."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A setting of a recipe that nothing takes."""

    recipe: str
    setting: str
    problem: str


def check(stores: Stores, recipes: Iterable[Recipe]) -> tuple[Finding, ...]:
    """What the sources at the pins do not know of recipes' settings.

    Raises:
        StackError: vllm or flashinfer is not pinned, a source cannot be had, or a patch does not apply.

    """
    asked = tuple(recipes)
    problems: dict[tuple[str, str], str] = {}
    pairs = {pair for one in asked for pair in given(one.arguments)}
    flags = {flag for flag, _ in pairs}
    names = {name for one in asked for name in one.environment}
    for upstream in _READ:
        if upstream not in stores.stack.pins.names():
            raise StackError(f"this stack does not pin {upstream}", "recipes are checked where vllm and flashinfer are pinned")
        objects = stores.objects(upstream)
        tree = objects.tree_of(stores.tip(upstream))
        for one in check_settings(objects, tree, names, flags):
            problems[one.name, ""] = one.problem
        problems |= {pair: one.problem for pair, one in check_values(objects, tree, pairs).items()}
    problems |= _unread(stores, names)
    return tuple(found for one in asked for found in _of(one, problems))


def given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The flags of a command line with their values; several values are the first one's."""
    for place, one in enumerate(arguments):
        if one.startswith("--"):
            flag, equals, value = one.partition("=")
            after = arguments[place + 1] if place + 1 < len(arguments) else ""
            yield flag, value if equals else "" if after.startswith("--") else after


def _unread(stores: Stores, names: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """The variables that are nobody's by their name: one of the pinned sources has to read them."""
    for name in sorted(names):
        if (
            not name.startswith(tuple(OWNERS))
            and name not in LIBRARIES
            and not any(_read(stores, each, name) for each in OWNERS.values())
        ):
            yield (name, ""), f"no pinned source reads the environment variable {name}, and no library that is known here"


def _read(stores: Stores, upstream: str, name: str) -> bool:
    objects = stores.objects(upstream)
    files = Files(objects, objects.tree_of(stores.tip(upstream)))
    return bool(
        grep(files, ["-l", "-F", "-e", f'environ.get("{name}"', "-e", f'getenv("{name}"', "-e", f'environ["{name}"]'], ["*.py"])
    )


def _of(recipe: Recipe, problems: Mapping[tuple[str, str], str]) -> Iterator[Finding]:
    for name, value in (*((name, "") for name in recipe.environment), *given(recipe.arguments)):
        problem = problems.get((name, "")) or problems.get((name, value))
        if problem is not None:
            was = removed_settings.find(name)
            yield Finding(recipe.name, name, f"{name}: {was}" if was else problem)
