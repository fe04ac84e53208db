# SPDX-License-Identifier: Apache-2.0
"""Servers on the loopback interface that answer as vLLM does, and lie where they are told to."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from stack.doctor.finding import Severity

from ..loopback import listening

Json = dict[str, Any]
MODEL = "openai/gpt-oss-120b"
PROSE = " ".join(f"word{number} of{number * 7} rain" for number in range(150))
WRONG, NOTE, UNKNOWN = Severity.WRONG, Severity.NOTE, Severity.UNKNOWN


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server answers. `chat`: makes the answer of a request, as it should be unless given; `raw`: bytes in place of every answer.

    `late`: seconds before each; `pause`: seconds between the `tokens` of a stream, whose `counts` are ids, a usage at its end, or none.
    """

    health: int = 200
    models: Any = None
    chat: "Callable[[Json], Json] | None" = None
    raw: bytes | None = None
    late: float = 0.0
    status: int = 200
    pause: float = 0.002
    tokens: int = 25
    counts: str = "ids"


@dataclass(frozen=True, slots=True)
class Case:
    """How a server answers, and what a check has to say of it."""

    manner: Manner
    severity: Severity
    what: str
    fix: str = ""


def system(body: Json) -> str:
    return next((str(one["content"]) for one in body["messages"] if one["role"] == "system"), "")


def answer(
    content: str | None, *, reasoning: str | None = "Easy.", ended: str = "stop", prompt: int = 70, ids: Any = None
) -> Json:
    message = {"role": "assistant", "content": content, "reasoning": reasoning}
    usage = {"prompt_tokens": prompt, "completion_tokens": 20}
    return {"choices": [{"message": message, "finish_reason": ended}], "usage": usage, "prompt_token_ids": ids}


def answered(body: Json) -> Json:
    """As gpt-oss does: a system message is obeyed, a long answer is prose."""
    told = system(body)
    text = PROSE if "250" in body["messages"][-1]["content"] else "Paris"
    ids = [200006, 17360, 200008, 5, 200007, 200006, 77944, 200008]
    return answer(f"{text} ZEBRA" if told else text, prompt=70 + len(told.split()), ids=ids)


def ends(content: str | None, **more: Any) -> Manner:
    """Every answer is this one."""
    return Manner(chat=lambda _: answer(content, **more))


def deaf(body: Json) -> Json:
    return answer("Paris")


def stubborn(body: Json) -> Json:
    return answer("Paris", prompt=70 + len(system(body).split()))


def twice(body: Json) -> Json:
    ids = [200006, 17360, 200008, 5, 200007, 200006, 17360, 200008] if system(body) else [200006, 17360]
    return answered(body) | {"prompt_token_ids": ids}


def garbage(body: Json) -> Json:
    return answer("!!!! <|channel|>x" if system(body) else "Paris", prompt=70 + len(system(body).split()))


def endless(body: Json) -> Json:
    return answer("The sky is " + "blue and the sea is " * 40 if "250" in body["messages"][-1]["content"] else "Paris")


LOUD: Mapping[str, list[Case]] = {
    "health": [
        Case(Manner(health=503), WRONG, "/health answers 503", "log"),
        Case(Manner(late=5), WRONG, "the server does not answer", "--url"),
    ],
    "model": [
        Case(Manner(models=[]), WRONG, "it serves no model"),
        Case(Manner(models=[{"id": "a"}, {"id": "b"}]), WRONG, "it serves a, b", "--model"),
        Case(Manner(models=7), WRONG, "a wrong form"),
        Case(Manner(raw=b"<html>"), WRONG, "the answer is not JSON"),
        Case(Manner(raw=b'{"data": ' + b"[" * 100_000), WRONG, "the answer is not JSON"),
        Case(Manner(status=401), UNKNOWN, "it wants a key", "VLLM_API_KEY"),
        Case(Manner(models=[{"id": "other", "max_model_len": 8}]), NOTE, "it serves other, recipe gpt-oss-120b-spark is for"),
    ],
    "content": [
        Case(
            ends(None, reasoning="The capital is Paris."),
            WRONG,
            "`reasoning` has all of the answer",
            "--reasoning-parser openai_gptoss",
        ),
        Case(ends(None, ended="length"), NOTE, "cut off at 512 tokens while it was still reasoning", "max_tokens"),
        Case(ends(None, reasoning=None), WRONG, "20 tokens are counted"),
        Case(ends(None, reasoning=None, ended="x" * 10_000), WRONG, "20 tokens are counted"),
        Case(ends("<|channel|>final"), WRONG, "control tokens in it, <|channel|>"),
        Case(ends("na na " * 60), WRONG, "an answer repeats itself"),
        Case(ends(7), WRONG, "is not a text"),  # type: ignore[arg-type]
        Case(Manner(chat=lambda _: {"choices": []}), WRONG, "the answer has no choices.0.message"),
        Case(Manner(chat=lambda _: {"choices": [{"message": "\x1b[31m"}]}), WRONG, "a wrong form"),
    ],
    "system-message": [
        Case(Manner(chat=twice), WRONG, "2 system messages", "developer message"),
        Case(Manner(chat=deaf), WRONG, "adds 0 tokens to the prompt: it does not arrive"),
        Case(Manner(chat=garbage), WRONG, "with a system message an answer has control tokens"),
        Case(Manner(chat=stubborn), NOTE, "arrives and changes nothing"),
        Case(Manner(chat=lambda body: answered(body) | {"usage": None}), WRONG, "usage"),
    ],
    "repetition": [Case(Manner(chat=endless), WRONG, "repeats itself without end: ", "--script")],
    "speed": [
        Case(Manner(pause=0.05), WRONG, "60 are expected (the fork's container", "graphs"),
        Case(Manner(pause=0), UNKNOWN, "its counts are wrong, or it speculates"),
        Case(Manner(pause=0.05, counts="usage"), WRONG, "60 are expected (the fork's container", "graphs"),
        Case(Manner(counts="none"), UNKNOWN, "too few tokens that could be counted"),
    ],
}


@contextmanager
def serving(manner: Manner, key: str | None = None) -> Iterator[str]:
    """The server's address, as long as the block runs. `key`: who does not show it is refused, but for /health."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            time.sleep(manner.late)
            if self.path == "/health":
                self._send(manner.health, b"")
                return
            if not self._is_let_in():
                return
            models = [{"id": MODEL, "max_model_len": 131072}] if manner.models is None else manner.models
            self._send(manner.status, manner.raw or json.dumps({"data": models}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if not self._is_let_in():
                return
            if body.get("stream"):
                self._stream(body)
            else:
                self._send(manner.status, manner.raw or json.dumps((manner.chat or answered)(body)).encode())

        def _is_let_in(self) -> bool:
            known = key is None or self.headers["authorization"] == f"Bearer {key}"
            if not known:
                self._send(401, b'{"error": "Unauthorized"}')
            return known

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, body: Json) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            count = min(body["max_tokens"], manner.tokens)
            begun = time.monotonic()
            for number in range(count):
                # A token that was late does not delay the next ones.
                time.sleep(max(0.0, begun + number * manner.pause - time.monotonic()))
                ids = {"token_ids": [number]} if manner.counts == "ids" else {}
                self._event({"choices": [{"delta": {"content": f" {number}"}, **ids}]})
            if manner.counts == "usage":
                self._event({"choices": [], "usage": {"completion_tokens": count}})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, event: Json) -> None:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}"
