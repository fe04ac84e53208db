# SPDX-License-Identifier: Apache-2.0
"""How a recipe's options serve a model other than gpt-oss: on how many nodes, and with which format of the cache."""

import re
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.deploy import formats
from stack.deploy.formats import Format
from stack.deploy.recipes import Recipe
from stack.deploy.shapes.model import Model as Model  # noqa: PLC0414 - part of this module's interface
from stack.serving import counting, layout
from stack.serving.traffic import Component

_REFUSED = {
    "--quantization-config": "it changes the checkpoint's formats",
    "--mamba-ssm-cache-dtype": "it changes the state",
    "--mamba-cache-dtype": "it changes the state",
    "--hf-overrides": "it changes the configuration",
}
"""Options that change bytes in ways that are not counted for these models."""


@dataclass(frozen=True, slots=True)
class Served:
    """A model as a recipe serves it."""

    model: Model
    kv: Format
    nodes: int

    def components(self, context: int, batch: int, drafts: int) -> tuple[Component, ...]:
        """Count what one node moves in a step.

        Raises:
            StackError: that many nodes cannot divide the model.

        """
        return counting.of(self.model, self.kv, self.nodes, context, batch, drafts)


def served(recipe: Recipe, model: Model) -> Served:
    """Read a recipe's options.

    Raises:
        StackError: an option cannot be read, or its effect is not counted here.

    """
    given = layout.options(recipe.arguments)
    layout.demand_counted(recipe, given)
    for name, why in _REFUSED.items():
        if name in given:
            raise StackError(f"recipe {recipe.name} has {name}: {why}", "that is not counted here: leave it out")
    text = given.get("--tensor-parallel-size", "1")
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise StackError(f"--tensor-parallel-size {text!r:.100} is not a number of nodes", f"correct recipe {recipe.name}")
    named = given.get("--kv-cache-dtype", "auto")
    if named == "auto" and model.kv is not None:
        named = model.kv
    if named == "unknown":
        raise StackError(
            "quantization_config has a format of the cache that is not counted", f"name one: {', '.join(formats.CACHED)}"
        )
    return Served(model, formats.cache(named, model.dense), int(text))
