# SPDX-License-Identifier: Apache-2.0
"""The validation's model from outside: `python -m stack.validation.model write | encode | score`; JSON in and out."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What is asked for is imported where it is: transformers takes seconds.
# ruff: noqa: PLC0415


def write(asked: dict[str, Any]) -> dict[str, Any]:
    """`folder` (empty, there), `packed`: the checkpoint with its tokenizer."""
    from stack.validation.model import vocabulary, weights

    folder = Path(asked["folder"])
    weights.write(folder, packed=asked["packed"])
    vocabulary.write(folder)
    return {}


def encode(asked: dict[str, Any]) -> dict[str, Any]:
    """`texts`: by name; their tokens by name."""
    from stack.validation.model import vocabulary

    return {name: vocabulary.encode(text) for name, text in asked["texts"].items()}


def score(asked: dict[str, Any]) -> dict[str, Any]:
    """`folder` (dequantised), `text` (tokens), `prompts` (tokens by name), `ends`, `longest`; what is right, and what faults do.

    `score`: log-probabilities of the text's tokens but the first; `routed`: tokens of each expert by layer; `wrong`: by the
    name of a fault the scores with it; `answers`: by name `tokens` and `likely`.
    """
    import torch

    from stack.validation.model import reference

    torch.set_num_threads(asked["threads"])
    model = reference.load(Path(asked["folder"]))
    text = asked["text"]
    wrong = {}
    for name, fault in reference.faults(model, text).items():
        with reference.wrong(model, fault):
            wrong[name] = reference.score(model, text).tolist()
    answers = {}
    for name, prompt in asked["prompts"].items():
        tokens, likely = reference.answer(model, prompt, asked["ends"], asked["longest"])
        answers[name] = {"tokens": tokens, "likely": likely}
    right = reference.score(model, text).tolist()
    return {"score": right, "routed": reference.routed(model, text), "wrong": wrong, "answers": answers}


VERBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"write": write, "encode": encode, "score": score}

if __name__ == "__main__":
    json.dump(VERBS[sys.argv[1]](json.load(sys.stdin)), sys.stdout)
