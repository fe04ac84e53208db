# SPDX-License-Identifier: Apache-2.0
"""Write compose files of recipes: the image's server with a recipe's command, persistent caches, and no unneeded privileges."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from stack.base.errors import StackError
from stack.deploy.recipes import RANK, Recipe
from stack.serving import container, memory_guard
from stack.serving.command import HOST, PORT, command
from stack.serving.container import INSIDE

_HERE = f"${{STACK_PORT:-{PORT}}}"
_THERE = "${STACK_HOST:?the address to listen at, as 0.0.0.0}"
_KEY = "${VLLM_API_KEY:?the key that clients shall send}"
_PASSED = ("HF_TOKEN", "HF_HUB_OFFLINE", "STACK_UNCHECKED")
"""Variables that the container has if its owner's shell, or the file .env, has them."""
_RESTART = "${STACK_RESTART:-unless-stopped}"
_MODELS = "${STACK_MODELS:-models}"
_WIDTH = 128


_CONFINED: dict[str, Any] = {
    "cap_drop": [container.NO_CAPABILITY],
    "security_opt": [f"{container.NO_NEW_PRIVILEGES}:true"],
}
"""A development container is not confined: its root user must read all mounted sources."""


class Usage(StrEnum):
    """The purpose of a file: serve this machine, serve other machines, or work on mounted sources."""

    LOCAL = "local"
    OPEN = "open"
    DEVELOPMENT = "development"


@dataclass(frozen=True, slots=True)
class _Target:
    """An image's origin, for the error if none is set, and the home of its user."""

    image: str
    home: str


_SERVE = _Target("the name that stack image load prints, or that of a published image", container.HOME)
_DEVELOP = _Target("the name under which stack image load loaded the development target", "/root")


def compose(recipe: Recipe, kind: Usage = Usage.LOCAL) -> str:
    """Write the text of a compose file.

    Raises:
        StackError: the recipe's model is not published, or a development file was requested for several nodes.

    """
    if recipe.checkpoint is None or recipe.hardware is None:
        raise StackError(f"recipe {recipe.name} has no published model", "name a recipe that has: `stack recipe list`")
    nodes = recipe.hardware.nodes
    if nodes > 1 and kind is Usage.DEVELOPMENT:
        raise StackError(f"recipe {recipe.name} is for {nodes} nodes", "develop with a recipe for one")
    if nodes > 1:
        services = {f"node-{rank}": _node(recipe, kind, rank) for rank in range(nodes)}
    else:
        services = {"dev" if kind is Usage.DEVELOPMENT else "vllm": _alone(recipe, kind)}
    # Root's files in the caches would be unreadable for the server's user, so development has its own.
    name = "stack-development" if kind is Usage.DEVELOPMENT else "stack"
    file = {"name": name, "services": services, "volumes": {"cache": {}, "models": {}}}
    text = yaml.dump(file, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return "".join(f"# {line}\n" for line in _header(recipe, kind)) + text


def _header(recipe: Recipe, kind: Usage) -> list[str]:
    """Write the comment at the top of a file: its origin, its use, and the variables that the user must set."""
    option = "" if kind is Usage.LOCAL else f" --{kind}"
    nodes = recipe.hardware.nodes if recipe.hardware is not None else 1
    which = f" node-N (N from 0 to {nodes - 1}, one on each machine; clients ask node-0)" if nodes > 1 else ""
    lines = [
        "SPDX-License-Identifier: Apache-2.0",
        f"{recipe.title}: written by `stack recipe compose {recipe.name}{option}`; change the recipe, not this file.",
        f"STACK_IMAGE=… docker compose -f FILE up{which}",
    ]
    if kind is Usage.OPEN:
        lines += [
            "STACK_HOST=ADDRESS and VLLM_API_KEY=KEY have to be set. vLLM asks for the key below /v1 and the like only, and generates text",
            "elsewhere, too (/invocations): a proxy before it should let nothing but /v1 through.",
        ]
    if kind is Usage.DEVELOPMENT:
        lines += [
            "Work on the sources where they run: `stack checkout vllm ../vllm` and the same for flashinfer, `stack image build --target",
            "development`; `docker compose -f FILE run --rm dev bash` is a shell. TREES names the folder of the working trees, the one beside",
            "the stack unless given. `stack refresh` brings commits back.",
        ]
    given = [f"{name}: {meaning}" for name, meaning in recipe.variables.items() if name != RANK]
    return (
        lines
        + given
        + [
            "STACK_PORT: another port than 8000. STACK_MODELS: a Hugging Face cache that is there already, as $HOME/.cache/huggingface; the image's",
            "user has to be able to read it, and HF_HUB_OFFLINE=1 to be set. STACK_RESTART: another restart policy than unless-stopped, as no.",
            "HF_TOKEN, HF_HUB_OFFLINE and STACK_UNCHECKED (1: serve although the doctor finds something wrong) reach the server if they are set.",
            "STACK_KEEP_FREE: the GB of memory below which the server is killed, where CPU and GPU share it; 0: it never is.",
        ]
    )


def _alone(recipe: Recipe, kind: Usage) -> dict[str, Any]:
    """Make the service of a recipe for one machine."""
    made = _DEVELOP if kind is Usage.DEVELOPMENT else _SERVE
    started = command(recipe, {}, host=INSIDE, port=PORT)
    address = _THERE if kind is Usage.OPEN else HOST
    service = _service(made, recipe, started.arguments, {**started.environment, "VLLM_API_KEY": _key(kind)})
    service["ports"] = [f"{address}:{_HERE}:{PORT}"]
    if kind is not Usage.DEVELOPMENT:
        return service | _CONFINED
    del service["restart"]  # who works on the sources wants to see it end
    sources = ("vllm", "flashinfer")
    service["volumes"] = [*(f"${{TREES:-../..}}/{name}/{name}:/src/{name}:ro" for name in sources), *service["volumes"]]
    return service


def _node(recipe: Recipe, kind: Usage, rank: int) -> dict[str, Any]:
    """Make the service of one of several machines: in the machine's own network, with its RDMA devices.

    Each has its own profile, so that only the named node is started.
    """
    named = {name: f"${{{name}:?{meaning}}}" for name, meaning in recipe.variables.items()}
    address = _THERE if kind is Usage.OPEN else HOST
    started = command(recipe, named | {RANK: str(rank)}, host=address, port=_HERE)
    own = {"STACK_HOST": address, "STACK_PORT": _HERE, "VLLM_API_KEY": _key(kind)} if rank == 0 else {}
    service = {"profiles": _Row([f"node-{rank}"])} | _service(_SERVE, recipe, started.arguments, {**started.environment, **own})
    service |= _CONFINED | {"network_mode": "host", "devices": ["/dev/infiniband:/dev/infiniband"], "ulimits": {"memlock": -1}}
    # A node without an API answers no health check.
    return service if rank == 0 else service | {"healthcheck": {"disable": True}}


def _key(kind: Usage) -> str:
    return _KEY if kind is Usage.OPEN else "${VLLM_API_KEY:-}"


def _service(made: _Target, recipe: Recipe, arguments: tuple[str, ...], environment: Mapping[str, str]) -> dict[str, Any]:
    cache = container.cache(made.home)
    keep = memory_guard.default(recipe) if made is _SERVE else 0.0
    guard = {container.KEEP_FREE: f"${{{container.KEEP_FREE}:-{keep:g}}}"} if keep else {}
    passed = dict.fromkeys(_PASSED)  # without a value compose passes them on, and leaves out those that are not set
    return {
        "image": f"${{STACK_IMAGE:?{made.image}}}",
        "command": _Row(arguments),
        "environment": {**environment, **container.folders(made.home), **passed, container.RECIPE: recipe.name, **guard},
        "restart": _RESTART,
        "init": True,
        "shm_size": container.SHARED,
        "volumes": [f"cache:{cache}", f"{_MODELS}:{cache}/huggingface"],
        "deploy": {
            "resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1, "capabilities": _Row(["gpu"])}]}}
        },
    }


class _Row(list[str]):
    """A list that is written in flow style, on as few lines as fit."""


class _Dumper(yaml.SafeDumper):
    """Indents nested lists, and writes no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - as it is called
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as it is called
        return True


_Dumper.add_representer(_Row, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True))
