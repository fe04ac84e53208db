# SPDX-License-Identifier: Apache-2.0
"""Measure a server that is up with the same program and checks as `stack validate bench`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy.recipes import Recipe
from stack.serving.start import Up
from stack.validation import endpoint
from stack.validation.bench import benchy
from stack.validation.bench.benchy import Measured, Size, Target


@dataclass(frozen=True, slots=True)
class Bench:
    """A measurement with llama-benchy: its interpreter, the sizes, and the model's folder (None: the one that the server names).

    `tiny`: the model makes mostly control tokens, which do not arrive as text.
    """

    python: Path
    sizes: Sequence[Size]
    folder: Path | None
    tiny: bool = False

    def __call__(self, up: Up, tell: Callable[[int], None]) -> tuple[Measured, ...]:
        """Measure each size.

        Raises:
            StackError: the server takes shorter requests, or its tokenizer is not found.
            UnmeasuredError: a request failed, or the server's claims differ from what it sent.
            TooShortError: a size takes too little time.

        """
        assert up.url is not None
        server = endpoint.at(up.url)
        model = server.model(up.model)
        room = max(size.prompt + size.answer for size in self.sizes) + benchy.ROOM
        longest = model.length or up.reading.context
        if longest is not None and room > longest:
            raise StackError(
                f"the server takes {longest} tokens in a request, the sizes need {room}", "name a smaller --pp or --tg"
            )
        tokenizer = endpoint.tokenizer(model, self.folder)
        target = Target(server.url, model.name, tokenizer, 0.0 if self.tiny else benchy.SHARE)
        found: list[Measured] = []
        for place, size in enumerate(self.sizes):
            before = place * size.runs
            found.append(benchy.measure(self.python, target, size, lambda done, before=before: tell(before + done)))  # type: ignore[misc]
        return tuple(found)


def demand_comparable(first: Recipe, second: Recipe, model: Path | None) -> None:
    """Refuse two recipes that do not serve the same model on one machine.

    Raises:
        StackError: their models differ, they have several nodes, or the folder of the model is missing.

    """
    for recipe in (first, second):
        if recipe.hardware is not None and recipe.hardware.nodes > 1:
            raise StackError(f"recipe {recipe.name} is for {recipe.hardware.nodes} nodes", "compare recipes of one node")
    if first.is_ours and second.is_ours:
        return
    if first.model != second.model:
        raise StackError(f"{first.name} serves {first.model}, and {second.name} {second.model}", "compare recipes of one model")
    if model is None:
        raise StackError("--compare measures with the model's own tokenizer", "name the checkpoint's folder with --model")
    if not (model / "tokenizer.json").is_file():
        raise StackError(f"{model} has no tokenizer.json", "name the folder of a whole checkpoint with --model")
