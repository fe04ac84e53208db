# SPDX-License-Identifier: Apache-2.0
"""A server that scores prompts as vLLM's completions do, with known logits over a small vocabulary; and may lie."""

import json
import math
import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.loopback import listening

VOCABULARY = 40


@dataclass(frozen=True)
class Behaviour:
    """`noise` is what quantising does to its logits; `deaf`: it does not look at what stands before; `lie`: see below."""

    noise: float = 0.0
    deaf: bool = False
    lie: str = ""
    version: str = "0.32.0"


def tokens(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % VOCABULARY for word in text.split()]


def logits(before: Sequence[int], behaviour: Behaviour) -> list[float]:
    """The next token's logits: of what the last two tokens are."""
    context = (0,) if behaviour.deaf else tuple(before[-2:])
    draw, noise = random.Random(f"{context}"), random.Random(f"noise {context}")
    return [draw.gauss(0, 2) + behaviour.noise * noise.gauss(0, 1) for _ in range(VOCABULARY)]


def log_softmax(values: Sequence[float]) -> list[float]:
    total = math.log(math.fsum(math.exp(value) for value in values))
    return [value - total for value in values]


def prompt_logprobs(ids: Sequence[int], top: int, behaviour: Behaviour) -> list[Any]:
    found: list[Any] = [None]
    for place in range(1, len(ids)):
        likely = log_softmax(logits(ids[:place], behaviour))
        order = sorted(range(VOCABULARY), key=lambda token: -likely[token])
        kept = dict.fromkeys([*order[:top], ids[place]])
        found.append({str(token): {"logprob": likely[token], "rank": order.index(token) + 1} for token in kept})
    return found


def answer(asked: dict[str, Any], behaviour: Behaviour) -> dict[str, Any]:
    ids, lie = tokens(asked["prompt"]), behaviour.lie
    choice: dict[str, Any] = {"text": "x", "prompt_token_ids": ids}
    choice["prompt_logprobs"] = found = prompt_logprobs(ids, asked["prompt_logprobs"], behaviour)
    if lie == "nothing":
        del choice["prompt_logprobs"]
    elif lie == "one less":
        found.pop()
    elif lie == "other tokens":
        choice["prompt_token_ids"] = [(token + 1) % VOCABULARY for token in ids]
    elif lie == "few":
        found[-1] = {str(ids[-1]): found[-1][str(ids[-1])]}
    elif lie == "positive":
        found[-1][str(ids[-1])]["logprob"] = 1e4
    elif lie == "no distribution":
        for one in found[-1].values():
            one["logprob"] = -0.1
    elif lie == "nan":
        found[-1][str(ids[-1])]["logprob"] = math.nan
    elif lie == "words":
        found[-1] = {"the": "end"}
    return {"choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    behaviour: Behaviour

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer({"version": self.behaviour.version} if self.path == "/version" else {"data": [{"id": "little"}]})

    def do_POST(self) -> None:
        self._answer(answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.behaviour))

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    with listening(type("Bound", (Handler,), {"behaviour": behaviour})) as port:
        yield f"http://127.0.0.1:{port}/v1"
