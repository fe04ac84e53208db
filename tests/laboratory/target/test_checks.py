# SPDX-License-Identifier: Apache-2.0
"""Checks of a server, each against a server that is right and one that is wrong in the one thing that the check is about."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from laboratory.target import checks, client
from laboratory.target import runner as target_runner
from laboratory.target.checks import MODEL, Speed
from stack.base.errors import StackError
from stack.model.verdict import Outcome
from stack.validation.pack.recipes import RECIPES
from tests.loopback import listening


class Lies:
    """What a server does wrong."""

    def __init__(self, **lies: Any) -> None:
        self.lies = lies

    def __getattr__(self, name: str) -> Any:
        return self.lies.get(name)


def handler(lies: Lies) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def answer(self, body: object, status: int = 200) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path == "/version":
                self.answer({"version": lies.version or "1+ours"})
            else:
                self.answer({"data": [{"id": lies.model or MODEL}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/v1/chat/completions":
                usage = {"completion_tokens": 0 if lies.empty else 3}
                self.answer({"usage": usage, "choices": [{"finish_reason": "length"}]}, lies.status or 200)
                return
            self.send_response(lies.status or 200)
            self.end_headers()
            prompt, count = asked["prompt"], asked["max_tokens"] - (1 if lies.short else 0)
            if lies.mixed:
                prompt = [*prompt[:-1], 0, 1]
            for place in range(count):
                time.sleep(lies.pause or 0)
                self.event({"choices": [{"token_ids": [place], "prompt_token_ids": None if place else prompt}]})
                if lies.breaks and place == 2:
                    return
            counted = count + (5 if lies.counts else 0)
            self.event({"choices": [], "usage": {"completion_tokens": counted}})
            self.wfile.write(b"data: [DONE]\n\n")

        def event(self, body: object) -> None:
            self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())
            self.wfile.flush()

    return Handler


@contextmanager
def serving(**lies: Any) -> Iterator[int]:
    with listening(handler(Lies(**lies))) as port:
        yield port


def test_a_server_that_is_right_passes() -> None:
    with serving() as port:
        assert checks.version(port, "1+ours")
        assert checks.models(port)
        assert checks.chat(port)
        assert checks.echoes(port)["requests"] == 200


@pytest.mark.parametrize(
    ("lie", "check"),
    [
        ({"version": "1+other"}, lambda port: checks.version(port, "1+ours")),
        ({"model": "other"}, checks.models),
        ({"status": 500}, checks.chat),
        ({"empty": True}, checks.chat),
        ({"mixed": True}, checks.echoes),
        ({"short": True}, checks.echoes),
        ({"counts": True}, checks.echoes),
        ({"status": 500}, checks.echoes),
        ({"breaks": True}, lambda port: checks.decode(port, 8)),
        ({"counts": True}, lambda port: checks.decode(port, 8)),
        ({"short": True}, lambda port: checks.prefill(port, 8)),
        ({"mixed": True}, lambda port: checks.prefill(port, 8)),
    ],
)
def test_a_server_that_lies_fails_the_check_for_it(lie: dict[str, Any], check: Any) -> None:
    with serving(**lie) as port, pytest.raises(StackError):
        check(port)


def test_the_rate_is_that_at_which_tokens_come() -> None:
    with serving(pause=0.01) as port:
        rate = client.complete(port, MODEL, [1, 2, 3], 40).decode_rate()
    assert 50 < rate <= 100


def test_a_log_of_another_backend_fails() -> None:
    recipe = RECIPES[0]
    assert checks.backends("\n".join(recipe.log), recipe)
    with pytest.raises(StackError, match="no "):
        checks.backends("\n".join(recipe.log).replace("TRITON", "EMULATION"), recipe)


def test_a_ratio_below_what_is_promised_fails() -> None:
    def case(one: Speed | None, other: Speed | None) -> Outcome:
        return target_runner.ratio("bench/x/decode/1", "sm90", one, other, 1.0).outcome

    assert case(Speed((102.0, 101.0)), Speed((99.0, 100.0))) is Outcome.PASSED
    assert case(Speed((99.0, 100.0)), Speed((102.0, 101.0))) is Outcome.FAILED
    assert case(None, Speed((1.0,))) is Outcome.NOT_RUN
