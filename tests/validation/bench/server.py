# SPDX-License-Identifier: Apache-2.0
"""A server with the API of OpenAI that reads and makes tokens at known speeds; and may lie. Its tokens are words."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from stack.validation import texts
from tests.loopback import listening

TEMPLATE = 7
"""Tokens that its conversation format adds to a message."""
WORDS = ["the", "clock", "gains", "four", "minutes", "between", "one", "Sunday", "and", "the", "next"]


@dataclass
class Behaviour:
    """Tokens a second read and made, and what is wrong: nothing, or one of the lies below."""

    prefill: float = 20_000
    decode: float = 200
    lie: str = ""
    slow_request: int = -1
    """The generation (from 0) that runs at a tenth of the speed."""
    generations: int = 0
    version: str = "0.32.0"


def tokenizer(folder: Path) -> Path:
    """A tokenizer.json whose tokens are words."""
    words = sorted({*texts.book().split(), *WORDS, "Warmup", "."})
    path = folder / "tokenizer.json"
    model = {
        "type": "WordLevel",
        "vocab": {"[UNK]": 0} | {word: place for place, word in enumerate(words, 1)},
        "unk_token": "[UNK]",
    }
    path.write_text(json.dumps({"version": "1.0", "model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    return path


class Handler(BaseHTTPRequestHandler):
    """Answers /v1/models and /v1/chat/completions."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a header waits 40 ms for its body
    behaviour: Behaviour
    root = ""

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/version":
            self._answer({"version": self.behaviour.version})
            return
        if self.behaviour.lie == "slow lists":
            time.sleep(0.2)
        self._answer({"object": "list", "data": [{"id": "little", "object": "model", "root": self.root}]})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = sum(len(message["content"].split()) + TEMPLATE for message in asked["messages"])
        if not asked.get("stream"):
            usage = {"prompt_tokens": prompt, "completion_tokens": 1}
            self._answer({"choices": [{"message": {"role": "assistant", "content": "the"}}], "usage": usage})
            return
        behaviour = self.behaviour
        number, behaviour.generations = behaviour.generations, behaviour.generations + 1
        if behaviour.lie == "refuses" and number:
            self.send_error(500, "the engine is dead")
            return
        speed = behaviour.decode / (10 if number == behaviour.slow_request else 1)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        began = time.monotonic() + prompt / behaviour.prefill
        for place, chunk in enumerate(self._chunks(asked["max_tokens"], prompt)):
            time.sleep(max(0.0, began + place / speed - time.monotonic()))
            if behaviour.lie == "breaks off" and number and place == 5:
                self.connection.close()
                return
            if behaviour.lie == "hangs" and number and place == 5:
                time.sleep(60)
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunks(self, tokens: int, prompt: int) -> Iterator[dict[str, Any]]:
        lie = self.behaviour.lie
        usage = {"prompt_tokens": prompt * (2 if lie == "long prompts" else 1), "completion_tokens": tokens}
        if lie == "no tokens":
            yield {"choices": [{"delta": {"role": "assistant"}}]}
        elif lie == "many in one":
            yield {"choices": [{"delta": {"content": "the "}, "token_ids": list(range(tokens // 2))}]}
            yield {"choices": [{"delta": {"content": "end"}, "token_ids": list(range(tokens // 2))}]}
        else:
            made = {"stops early": tokens // 3, "usage only": tokens // 4}.get(lie, tokens)
            for place in range(made):
                ids = [place] * (3 if lie == "thrice the ids" else 1)
                choice: dict[str, Any] = {"delta": {"content": WORDS[place % len(WORDS)] + " "}}
                yield {"choices": [choice if lie in ("usage only", "no ids") else choice | {"token_ids": ids}]}
        yield {"choices": [], "usage": usage}

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serving(behaviour: Behaviour, root: str = "") -> Iterator[str]:
    """Serve on a free port of this machine as long as the block runs; gives the address of its API."""
    handler = type("Bound", (Handler,), {"behaviour": behaviour, "root": root})
    with listening(handler) as port:
        yield f"http://127.0.0.1:{port}/v1"
