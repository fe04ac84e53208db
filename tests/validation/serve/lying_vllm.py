# SPDX-License-Identifier: Apache-2.0
"""A server that answers as vLLM does with the tiny model, and lies where it is told to."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

from stack.validation.model import expected_replies
from stack.validation.serve import checks, prompts
from tests.loopback import listening

Json = dict[str, Any]
Lie = Callable[[str], str]
"""From the JSON of an answer, or of one event of a stream, to another; what begins with `!` becomes an error of that number."""

MODEL = "tiny"
STACK = "0123456789abcdef" * 4
VERSION = "0.32.0+sm121.g01234567.cpu"
PIECES = re.compile(r"<\|\w+\|>| ?[^ <]+|.", re.DOTALL)
CONTROL = {"<|start|>": 200006, "<|return|>": checks.RETURN, "<|call|>": checks.CALLED}


def encode(text: str) -> list[int]:
    """Tokens that are good enough here: a number for each word, the real one for what ends an answer."""
    return [_token(piece) for piece in PIECES.findall(text)]


DATE = prompts.DATE
"""The date in its system message; tests give it another."""
PIECE_OF: dict[int, str] = {}


@cache
def _token(piece: str) -> int:
    token = _number(piece)
    PIECE_OF[token] = piece
    return token


def _number(piece: str) -> int:
    return CONTROL.get(piece, sum(ord(letter) * 31**place for place, letter in enumerate(piece)) % 199000)


TOKENS = {name: encode(text) for name, text in prompts.texts(checks.identifiers()).items()}
LIKELY = [-1.0 - place / 7 for place in range(1, len(TOKENS["scored"]))]
GREEDY = [f"asked {' '.join(prompts.LETTERS)}"]
REFERENCE: Json = {
    "score": LIKELY,
    "routed": [[3, 1], [2, 2]],
    "wrong": {"no sinks": [one - 0.25 for one in LIKELY], "a block doubled": [LIKELY[0] + 0.001, *LIKELY[1:]]},
    "answers": {
        name: {
            "tokens": encode(expected_replies.echo(prompts.LETTERS)),
            "likely": [-0.1] * len(encode(expected_replies.echo(prompts.LETTERS))),
        }
        for name in GREEDY
    },
}


def answer(path: str, body: Json) -> list[Json]:
    """The answer to a request, or the events of its stream."""
    kinds = {checks.CHAT: _chat, checks.RESPONSES: _responses, checks.COMPLETIONS: _completions, "/detokenize": _detokenize}
    return kinds[path](body)


def _detokenize(body: Json) -> list[Json]:
    return [{"prompt": "".join(PIECE_OF[token] for token in body["tokens"])}]


def _letters(text: str) -> tuple[str, ...]:
    return tuple(text.removeprefix(expected_replies.ASKED).split())


def _user(items: list[Json]) -> str:
    return [str(item["content"]) for item in items if item.get("role") == "user"][-1]


def _chat(body: Json) -> list[Json]:
    letters = _letters(_user(body["messages"]))
    known = [
        prompt.text
        for prompt in prompts.CHAT.values()
        if prompt.body["messages"] == body["messages"] and prompt.body.get("tools") == body.get("tools")
    ]
    prompt = encode(prompts.on(DATE, known[0] if known else prompts.echo(letters).text))
    called = "tools" in body
    message: Json = {
        "role": "assistant",
        "content": None if called else expected_replies.content(letters),
        "reasoning": expected_replies.THOUGHT,
    }
    if called:
        message["tool_calls"] = [
            {
                "id": "1",
                "type": "function",
                "function": {"name": expected_replies.TOOL, "arguments": expected_replies.ARGUMENTS},
            }
        ]
    tokens = encode(expected_replies.call() if called else expected_replies.echo(letters))
    choice: Json = {
        "message": message,
        "finish_reason": "tool_calls" if called else "stop",
        "stop_reason": None,
        "token_ids": tokens,
    }
    if body["max_tokens"] == 5:
        message |= {"content": None, "reasoning": "User wants"}
        choice["finish_reason"] = "length"
    if stop := body.get("stop"):
        message["content"] = message["content"].partition(stop[0])[0]
        choice["stop_reason"] = stop[0]
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
    head: Json = {"id": f"chatcmpl-{body.get('request_id', 'x')}"}
    if not body.get("stream"):
        return [head | {"choices": [choice], "prompt_token_ids": prompt, "usage": usage}]
    return [head | event for event in _chat_events(message, choice, prompt, usage)]


def _chat_events(message: Json, choice: Json, prompt: list[int], usage: Json) -> Iterator[Json]:
    yield {"choices": [{"delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": prompt}
    yield {"choices": [{"delta": {"reasoning": message["reasoning"]}, "token_ids": choice["token_ids"][:-1]}]}
    for piece in re.findall(r" ?\S+", message["content"] or ""):
        yield {"choices": [{"delta": {"content": piece}}]}
    for call in message.get("tool_calls", []):
        yield {"choices": [{"delta": {"tool_calls": [{"function": {"name": call["function"]["name"]}}]}}]}
        yield {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": call["function"]["arguments"]}}]}}]}
    yield {"choices": [{"delta": {}, "finish_reason": choice["finish_reason"], "token_ids": choice["token_ids"][-1:]}]}
    yield {"choices": [], "usage": usage}


def _responses(body: Json) -> list[Json]:
    given = body["input"]
    letters = _letters(given if isinstance(given, str) else _user(given))
    content = expected_replies.content(letters)
    last: Json = {"type": "message", "content": [{"type": "output_text", "text": content}]}
    if "tools" in body:
        last = {"type": "function_call", "name": expected_replies.TOOL, "arguments": expected_replies.ARGUMENTS}
    reasoning = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": expected_replies.THOUGHT}]}
    usage = {
        "input_tokens": len(encode(prompts.echo(letters).text)),
        "output_tokens": len(encode(expected_replies.echo(letters))),
    }
    response = {"status": "completed", "output": [reasoning, last], "usage": usage}
    if not body.get("stream"):
        return [response]
    events: list[Json] = [{"type": "response.created"}]
    for kind, text in (("reasoning_text", expected_replies.THOUGHT), ("output_text", content)):
        events += [{"type": f"response.{kind}.delta", "delta": piece} for piece in re.findall(r" ?\S+", text)]
    return [*events, {"type": "response.completed", "response": response}]


def _completions(body: Json) -> list[Json]:
    prompt = body["prompt"]
    if "prompt_logprobs" in body:
        scores = [None, *({str(token): {"logprob": one}} for token, one in zip(prompt[1:], LIKELY, strict=True))]
        return [{"choices": [{"prompt_logprobs": scores}]}]
    (found,) = (REFERENCE["answers"][name] for name in GREEDY if TOKENS[name] == prompt)
    return [{"choices": [{"token_ids": found["tokens"], "logprobs": {"token_logprobs": found["likely"]}}]}]


@contextmanager
def serving(lie: Lie = str, *, refuses: Callable[[Json], bool] = lambda _: False, ends: bool = True) -> Iterator[str]:
    """The server's address. `refuses`: bodies that it answers with an error; `ends`: whether streams come to their end."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            models = {"data": [{"id": MODEL, "max_model_len": 4096}]}
            self._send([{"version": VERSION} if self.path == "/version" else models], stream=False)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if refuses(body):
                self._error("400 refused")
            else:
                self._send(answer(self.path, body), stream=bool(body.get("stream")))

        def _send(self, events: list[Json], *, stream: bool) -> None:
            told = [lie(json.dumps(event, ensure_ascii=False)) for event in events]
            if any(one.startswith("!") for one in told):
                self._error(told[0][1:])
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if stream else "application/json")
            self.end_headers()
            if not stream:
                self.wfile.write(told[0].encode())
                return
            for one in [*told, *(["[DONE]"] if ends else [])]:
                self.wfile.write(f"data: {one}\n\n".encode())

        def _error(self, said_so: str) -> None:
            self.send_response(int(said_so.split(maxsplit=1)[0]))
            self.end_headers()
            self.wfile.write(said_so.encode())

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}"
