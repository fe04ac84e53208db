# SPDX-License-Identifier: Apache-2.0
"""Compose files of recipes: the image's server by a recipe's command, with caches that stay, and nothing that it needs no right to."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml

from stack.base.errors import StackError
from stack.deploy import checkpoints
from stack.deploy.recipes import RANK, Recipe
from stack.serving.command import HOST, PORT, command

INSIDE = "0.0.0.0"  # noqa: S104 - of a container's own network: the port that it is published at says who reaches it
_HERE = f"${{STACK_PORT:-{PORT}}}"
_THERE = "${STACK_HOST:?the address to listen at, as 0.0.0.0}"
_KEY = "${VLLM_API_KEY:?the key that clients shall send}"
_CACHES = {"TRITON_CACHE_DIR": "triton", "CUDA_CACHE_PATH": "nv"}
"""Where these are below the cache's folder; without them they lie beside it, and go with the container."""
_WIDTH = 128


_CONFINED: dict[str, Any] = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
"""A server needs no capability; root who is to read whatever is mounted, for work on the sources, does."""


class Kind(StrEnum):
    """What a file is for: to be asked from this machine, from others, or to work on mounted sources."""

    LOCAL = "local"
    OPEN = "open"
    DEVELOPMENT = "development"


@dataclass(frozen=True, slots=True)
class _Made:
    """What differs by kind: the target of `stack image build`, and the home of its user."""

    image: str
    home: str


_SERVE = _Made("the image that stack image build made, or a published one", "/home/stack")
_DEVELOP = _Made("the image that stack image build --target development made", "/root")


def compose(recipe: Recipe, kind: Kind = Kind.LOCAL) -> str:
    """The text of a compose file.

    Raises:
        StackError: the recipe's model is none that is published, or several nodes are asked for development.

    """
    if recipe.model not in checkpoints.known() or recipe.hardware is None:
        raise StackError(f"recipe {recipe.name} has no published model", "name a recipe that has: `stack recipe list`")
    nodes = recipe.hardware.nodes
    if nodes > 1 and kind is Kind.DEVELOPMENT:
        raise StackError(f"recipe {recipe.name} is for {nodes} nodes", "develop with a recipe for one")
    if nodes > 1:
        services = {f"node-{rank}": _node(recipe, kind, rank) for rank in range(nodes)}
    else:
        services = {"dev" if kind is Kind.DEVELOPMENT else "vllm": _alone(recipe, kind)}
    # Root's files in the caches of a server that is no superuser's would keep it from them.
    name = "stack-development" if kind is Kind.DEVELOPMENT else "stack"
    file = {"name": name, "services": services, "volumes": {"cache": {}, "models": {}}}
    text = yaml.dump(file, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return "".join(f"# {line}\n" for line in _said(recipe, kind)) + text


def _said(recipe: Recipe, kind: Kind) -> list[str]:
    """What stands above a file: what it is, how it is used, and what the user has to say."""
    option = "" if kind is Kind.LOCAL else f" --{kind}"
    nodes = recipe.hardware.nodes if recipe.hardware is not None else 1
    which = f" node-N (N from 0 to {nodes - 1}, one on each machine; clients ask node-0)" if nodes > 1 else ""
    lines = [
        "SPDX-License-Identifier: Apache-2.0",
        f"{recipe.title}: written by `stack recipe compose {recipe.name}{option}`; change the recipe, not this file.",
        f"STACK_IMAGE=… docker compose -f FILE up{which}",
    ]
    if kind is Kind.OPEN:
        lines += [
            "STACK_HOST=ADDRESS and VLLM_API_KEY=KEY have to be set. vLLM asks for the key below /v1 and the like only, and generates text",
            "elsewhere, too (/invocations): a proxy before it should let nothing but /v1 through.",
        ]
    if kind is Kind.DEVELOPMENT:
        lines += [
            "Work on the sources where they run: `stack checkout vllm ../vllm` and the same for flashinfer, `stack image build --target",
            "development`; `docker compose -f FILE run --rm dev bash` is a shell. TREES names the folder of the working trees, the one beside",
            "the stack unless given. `stack refresh` brings commits back.",
        ]
    given = [f"{name}: {meaning}" for name, meaning in recipe.variables.items() if name != RANK]
    return lines + given + ["STACK_PORT: another port than 8000."]


def _alone(recipe: Recipe, kind: Kind) -> dict[str, Any]:
    """The service of a recipe for one machine."""
    made = _DEVELOP if kind is Kind.DEVELOPMENT else _SERVE
    started = command(recipe, {}, host=INSIDE, port=PORT)
    address = _THERE if kind is Kind.OPEN else HOST
    service = _service(made, started.arguments, {**started.environment, "VLLM_API_KEY": _key(kind)})
    service["ports"] = [f"{address}:{_HERE}:{PORT}"]
    if kind is not Kind.DEVELOPMENT:
        return service | _CONFINED
    sources = ("vllm", "flashinfer")
    service["volumes"] = [*(f"${{TREES:-../..}}/{one}/{one}:/src/{one}:ro" for one in sources), *service["volumes"]]
    return service


def _node(recipe: Recipe, kind: Kind, rank: int) -> dict[str, Any]:
    """The service of one of several machines: in the machine's own network, with its RDMA devices.

    It has a profile of its own, so that nothing is started that was not named.
    """
    named = {name: f"${{{name}:?{meaning}}}" for name, meaning in recipe.variables.items()}
    address = _THERE if kind is Kind.OPEN else HOST
    started = command(recipe, named | {RANK: str(rank)}, host=address, port=_HERE)
    asked = {"STACK_HOST": address, "STACK_PORT": _HERE, "VLLM_API_KEY": _key(kind)} if rank == 0 else {}
    service = {"profiles": _Row([f"node-{rank}"])} | _service(_SERVE, started.arguments, {**started.environment, **asked})
    service |= _CONFINED | {"network_mode": "host", "devices": ["/dev/infiniband:/dev/infiniband"], "ulimits": {"memlock": -1}}
    # What has no API answers no health check.
    return service if rank == 0 else service | {"healthcheck": {"disable": True}}


def _key(kind: Kind) -> str:
    return _KEY if kind is Kind.OPEN else "${VLLM_API_KEY:-}"


def _service(made: _Made, arguments: tuple[str, ...], environment: Mapping[str, str]) -> dict[str, Any]:
    cache = f"{made.home}/.cache"
    return {
        "image": f"${{STACK_IMAGE:?{made.image}}}",
        "command": _Row(arguments),
        "environment": {**environment, **{name: f"{cache}/{folder}" for name, folder in _CACHES.items()}},
        "init": True,
        "shm_size": "1gb",
        "volumes": [f"cache:{cache}", f"models:{cache}/huggingface"],
        "deploy": {
            "resources": {"reservations": {"devices": [{"driver": "nvidia", "count": 1, "capabilities": _Row(["gpu"])}]}}
        },
    }


class _Row(list[str]):
    """A list that stands in one line, or a few."""


class _Dumper(yaml.SafeDumper):
    """Writes lists in lists further in, as people do, and no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - as it is called
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as it is called
        return True


_Dumper.add_representer(_Row, lambda dumper, row: dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True))
