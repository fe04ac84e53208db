# SPDX-License-Identifier: Apache-2.0
"""Check recipes against the pinned sources with the stack's patches: variables, flags, and the values that flags allow."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from stack.base.errors import StackError
from stack.carry.drift import check_settings, check_values
from stack.carry.drift.tree import Files
from stack.carry.drift.variables import grep
from stack.carry.upstream_stores import Stores
from stack.deploy import removed_settings
from stack.deploy.recipes import Recipe
from stack.projects import Owner, known

_NCCL = (
    "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_MERGE_NICS", "NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS", "NCCL_NET", "NCCL_P2P_DISABLE", "NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_PROTO",
)  # fmt: skip
_HARMONY = ("TIKTOKEN_ENCODINGS_BASE", "TIKTOKEN_RS_CACHE_DIR")
_TORCH = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
LIBRARIES = MappingProxyType(
    {
        **dict.fromkeys(_NCCL, "NCCL"),
        **dict.fromkeys(_TORCH, "torch"),
        **dict.fromkeys(_HARMONY, "harmony"),
        "GLOO_SOCKET_IFNAME": "torch's Gloo",
        "CUTE_DSL_ARCH": "nvidia-cutlass-dsl",
    }
)
"""Variables that no pinned source reads, with the library that does. Documented at
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html, https://docs.pytorch.org/docs/stable/distributed.html,
https://docs.pytorch.org/docs/stable/notes/cuda.html and https://docs.nvidia.com/cutlass/latest/media/docs/pythonDSL/; harmony's are in
openai/harmony, src/tiktoken_ext/public_encodings.rs."""


@dataclass(frozen=True, slots=True)
class UnknownSetting:
    """A setting of a recipe that no source reads."""

    recipe: str
    setting: str
    problem: str


def check(stores: Stores, recipes: Iterable[Recipe]) -> tuple[UnknownSetting, ...]:
    """List the settings of recipes that the pinned sources do not know.

    Raises:
        StackError: no plug-in knows the settings, an upstream that owns some is not pinned, a source is not available, or a patch does not apply.

    """
    checked = tuple(recipes)
    problems: dict[tuple[str, str], str] = {}
    pairs = {pair for recipe in checked for pair in given(recipe.arguments)}
    flags = {flag for flag, _ in pairs}
    names = {name for recipe in checked for name in recipe.environment}
    owners = known.owners()
    if not owners:
        raise StackError("no installed plug-in knows the settings of recipes", "see docs/plug-ins.md")
    upstreams = tuple(dict.fromkeys(owner.upstream for owner in owners))
    for upstream in upstreams:
        if upstream not in stores.stack.pins.names():
            raise StackError(
                f"this stack does not pin {upstream}", f"recipes are checked where {' and '.join(upstreams)} are pinned"
            )
        objects = stores.objects(upstream)
        tree = objects.tree_of(stores.tip(upstream))
        for drift in check_settings(objects, tree, names, flags):
            problems[drift.name, ""] = drift.problem
        problems |= {pair: drift.problem for pair, drift in check_values(objects, tree, pairs).items() if drift.is_certain}
    problems |= _unread(stores, owners, names)
    return tuple(unknown for recipe in checked for unknown in _of(recipe, problems))


def given(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags of a command line with their values; if a flag has several values, only the first."""
    for place, argument in enumerate(arguments):
        if argument.startswith("--"):
            flag, equals, value = argument.partition("=")
            after = arguments[place + 1] if place + 1 < len(arguments) else ""
            yield flag, value if equals else "" if after.startswith("--") else after


def _unread(stores: Stores, owners: Sequence[Owner], names: Iterable[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Report variables that no pinned source reads, among those whose name belongs to no upstream and no known library."""
    for name in sorted(names):
        if (
            not name.startswith(tuple(owner.prefix for owner in owners))
            and name not in LIBRARIES
            and not any(_read(stores, owner.upstream, name) for owner in owners)
        ):
            yield (name, ""), f"no pinned source reads the environment variable {name}, and no library that is known here"


def _read(stores: Stores, upstream: str, name: str) -> bool:
    objects = stores.objects(upstream)
    files = Files(objects, objects.tree_of(stores.tip(upstream)))
    return bool(
        grep(files, ["-l", "-F", "-e", f'environ.get("{name}"', "-e", f'getenv("{name}"', "-e", f'environ["{name}"]'], ["*.py"])
    )


def _of(recipe: Recipe, problems: Mapping[tuple[str, str], str]) -> Iterator[UnknownSetting]:
    for name, value in (*((name, "") for name in recipe.environment), *given(recipe.arguments)):
        problem = problems.get((name, "")) or problems.get((name, value))
        if problem is not None:
            was = removed_settings.find(name)
            yield UnknownSetting(recipe.name, name, f"{name}: {was}" if was else problem)
