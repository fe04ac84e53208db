# SPDX-License-Identifier: Apache-2.0
"""Command line of the validation's model: `python -m stack.validation.model write | encode | score`; JSON in and out."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Each verb imports what it needs: transformers takes seconds.
# ruff: noqa: PLC0415


def write(request: dict[str, Any]) -> dict[str, Any]:
    """Write the checkpoint and its tokenizer into `folder`, an existing empty one; with MXFP4 experts if `packed`."""
    from stack.validation.model import vocabulary, weights

    folder = Path(request["folder"])
    weights.write(folder, packed=request["packed"])
    vocabulary.write(folder)
    return {}


def encode(request: dict[str, Any]) -> dict[str, Any]:
    """Encode `texts` (by name) to tokens (by name)."""
    from stack.validation.model import vocabulary

    return {name: vocabulary.encode(text) for name, text in request["texts"].items()}


def score(request: dict[str, Any]) -> dict[str, Any]:
    """Compute the reference's outputs and those of faults: `folder` (dequantized), `text` (tokens), `prompts`, `ends`, `longest`.

    Returns `score`: log-probabilities of the text's tokens except the first; `routed`: tokens of each expert by layer; `wrong`: the
    scores with each fault, by its name; `answers`: `tokens` and `likely` of each prompt, by name.
    """
    import torch

    from stack.validation.model import reference

    torch.set_num_threads(request["threads"])
    model = reference.load(Path(request["folder"]))
    text = request["text"]
    wrong = {}
    for name, fault in reference.faults(model, text).items():
        with reference.wrong(model, fault):
            wrong[name] = reference.score(model, text).tolist()
    answers = {}
    for name, prompt in request["prompts"].items():
        tokens, likely = reference.answer(model, prompt, request["ends"], request["longest"])
        answers[name] = {"tokens": tokens, "likely": likely}
    right = reference.score(model, text).tolist()
    return {"score": right, "routed": reference.routed(model, text), "wrong": wrong, "answers": answers}


VERBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"write": write, "encode": encode, "score": score}

if __name__ == "__main__":
    json.dump(VERBS[sys.argv[1]](json.load(sys.stdin)), sys.stdout)
