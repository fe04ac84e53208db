# SPDX-License-Identifier: Apache-2.0
"""Check the conditions of a start beforehand: a start takes minutes, and the server's own errors come late."""

import errno
import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import zip_longest
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import hardware
from stack.deploy.recipes import Recipe
from stack.model.verdict import Gpu, Machine
from stack.serving import room

KEY = "VLLM_API_KEY"
"""The environment variable with a server's API key; so the key appears in no command line and no log."""
_OURS = {
    "--host": "give --host before the --",
    "--port": "give --port before the --",
    "--uds": "leave it out: this command connects to an address",
    "--no-headless": "leave it out: it takes --headless back",
}
_SECRETS = {"--api-key": KEY, "--hf-token": "HF_TOKEN"}
"""Flags with a secret, and the variable to set in their place."""


def address(host: str, port: int) -> str:
    """Return the address at which a server that listens there can be reached from this machine."""
    named = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (nothing is bound to it here)
    return f"http://{f'[{named}]' if ':' in named else named}:{port}"


def demand_flags(extra: Sequence[str]) -> None:
    """Refuse flags that options of ours set: this command would look for the server elsewhere.

    Raises:
        StackError: a flag is one of them, or sets an API key or a token.

    """
    for flag, following in zip_longest(extra, extra[1:], fillvalue="-"):
        name = flag.partition("=")[0].replace("_", "-")
        # vLLM's argparse accepts a flag's beginning for the flag.
        known = (*_OURS, *_SECRETS)
        meant = next((each for each in known if each.startswith(name) and len(name) > len("--")), None)
        if meant in _SECRETS and (meant == "--api-key" or "=" in flag or not following.startswith("-")):
            raise StackError(
                "a key or token on a command line is visible to every user of the machine", f"set {_SECRETS[meant]}"
            )
        if meant in _SECRETS:
            continue  # --hf-token alone takes the one that is kept on the machine
        if meant is not None:
            raise StackError(f"{name} is among the extra flags", _OURS[meant])


def demand_key(host: str, environment: Mapping[str, str], *, contained: bool = False) -> None:
    """Refuse to listen for other machines without an API key; in a container even with a key, since its command line would show it.

    Raises:
        StackError: the host is empty, the key is missing, or a container would listen for other machines.

    """
    if not host:
        raise StackError("--host is empty", "name an address, such as 127.0.0.1")
    if contained and not is_loopback(host):
        raise StackError(f"{host} can be reached from other machines", "stay at 127.0.0.1, or see stack recipe compose")
    if not is_loopback(host) and not environment.get(KEY):
        raise StackError(
            f"{host} can be reached from other machines, and {KEY} is not set", "set it, or leave --host and --open out"
        )


def demand_port(host: str, port: int) -> None:
    """Refuse a port that is in use.

    Raises:
        StackError: it is in use, or this machine does not have the address.

    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as a server does
            listener.bind(address)
    except OSError as taken:
        if taken.errno == errno.EADDRINUSE:
            raise StackError(
                f"port {port} of {host} is in use", "end the process that listens there, or name another port with --port"
            ) from taken
        raise StackError(f"nothing can listen at {host} port {port} ({taken.strerror or taken})", "correct --host") from taken


def demand_model(folder: Path) -> None:
    """Refuse a folder that is not a checkpoint.

    Raises:
        StackError: it has no config.json.

    """
    if not (folder / "config.json").is_file():
        raise StackError(f"{folder} has no config.json", "name the folder of a checkpoint with --model")


def demand_machine(recipe: Recipe, machine: Machine, *, fallback: bool) -> None:
    """Refuse a machine that a recipe is not for: with other GPUs (unless `fallback`), or too little memory.

    Raises:
        StackError: the machine is not suitable.

    """
    if missing := sorted({*recipe.flags} - {*machine.flags}):
        raise StackError(f"recipe {recipe.name} needs a CPU with {' and '.join(missing)}", "use another recipe")
    if recipe.hardware is None:
        if recipe.is_ours:
            _demand_memory(recipe, room.TINY / 1e9, machine.memory, "this machine")
        return
    profile = hardware.load(recipe.hardware.name)
    fitting = [gpu for gpu in machine.gpus if gpu.capability == profile.capability]
    if not fitting and not fallback:
        found = ", ".join(f"{gpu.name} ({gpu.capability})" for gpu in machine.gpus) or "no NVIDIA GPU"
        raise StackError(
            f"recipe {recipe.name} is for {profile.title}, compute capability {profile.capability}; here is {found}",
            "use a recipe for this machine, or --allow-fallback",
        )
    for gpu in fitting or machine.gpus[:1]:
        _demand_memory(recipe, recipe.hardware.memory, *_memory(gpu, machine))


def _demand_memory(recipe: Recipe, needed: float, present: int, where: str) -> None:
    if present < needed * 1e9:
        raise StackError(
            f"recipe {recipe.name} takes {needed:g} GB, {where} has {present / 1e9:.0f}",
            "use a smaller model, or a recipe for this machine",
        )


def _memory(gpu: Gpu, machine: Machine) -> tuple[int, str]:
    """Return the memory of a GPU; one that shares the machine's memory reports none of its own."""
    return (gpu.memory, gpu.name) if gpu.memory is not None else (machine.memory, f"this machine with its {gpu.name}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
