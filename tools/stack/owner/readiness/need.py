# SPDX-License-Identifier: Apache-2.0
"""The needs of a recipe: hardware, memory, disk and port."""

from dataclasses import dataclass

from stack.deploy import hardware
from stack.deploy.hardware import Profile
from stack.deploy.recipes import Recipe

PORT = 8000
"""Where `vllm serve` listens unless told otherwise."""
IMAGE = 25 * 10**9
"""Bytes of an unpacked image with vLLM, torch and CUDA 13's libraries. It is an estimate until an image of this stack is published."""


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of a recipe.

    `machine`: the hardware that it is for; None if it names none. `memory`: bytes that its server takes on a node; None if unknown.
    `repository` and `weights` (bytes): of the checkpoint; None if it has none, or its size is not known. `image`: bytes.
    """

    recipe: str
    machine: Profile | None
    memory: int | None
    repository: str | None
    weights: int | None
    image: int = IMAGE
    port: int = PORT


def of(recipe: Recipe, port: int = PORT) -> Need:
    """Return what a recipe needs."""
    checkpoint, on = recipe.checkpoint, recipe.hardware
    return Need(
        recipe=recipe.name,
        machine=hardware.load(on.name) if on is not None else None,
        memory=int(on.memory * 1e9) if on is not None else None,
        repository=checkpoint.repository if checkpoint is not None else None,
        weights=checkpoint.size if checkpoint is not None else None,
        port=port,
    )
