# SPDX-License-Identifier: Apache-2.0
"""The state that questions share: the server, the tokens that are left, and answers that later questions compare with."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stack.base.progress import Progress, silent
from stack.deploy.recipes import Recipe
from stack.doctor.finding import Finding, Found, unknown
from stack.doctor.server.answers import Answer, joined, whole
from stack.doctor.server.client import Client, NoAnswer
from stack.doctor.server.purse import Purse

CHAT = "/v1/chat/completions"
CAPITAL = "What is the capital of France? Answer with its name only."
REFUSED = (400, 404, 405, 415, 422, 501)
"""Status codes by which a server says that it does not offer something."""


@dataclass(slots=True)
class Interview:
    """A server, what is expected of it, and what was learned so far.

    `model`: the model's name; `recipe`: the one that should run; `limit`: tokens per second that the memory allows at most; `length`:
    tokens of the longest request, None if the server does not say; `reserved`: tokens for the questions that follow; `context`: tokens of
    the longest prompt that may be sent; `plain`: the answer to CAPITAL; `long`: that to a question with a long answer; `ratio`: tokens per
    word of a long prompt, and `prefill`: seconds that a prompt of so many tokens took; `dead`: the server died of a question; `forces`: it
    can force the call of a tool; `brief`: parts of a request that keep the model from reasoning for long.
    """

    client: Client
    model: str = ""
    recipe: Recipe | None = None
    limit: float | None = None
    context: int = 65_536
    tell: Progress = silent
    purse: Purse = field(default_factory=Purse)
    length: int | None = None
    reserved: int = 0
    plain: Answer | None = None
    long: Answer | None = None
    ratio: float | None = None
    prefill: tuple[int, float] | None = None
    dead: bool = False
    forces: bool = True
    brief: dict[str, Any] = field(default_factory=dict)

    def ask(self, content: str, tokens: int, system: str | None = None, **more: Any) -> Answer:
        """Ask the chat API for a whole answer of at most `tokens` tokens.

        Raises:
            NoAnswer: there is none that could be judged.

        """
        body = self._body(content, self.purse.allowed(tokens, self.reserved), system, more)

        def answer(allowed: int) -> Answer:
            reply = self.client.post(CHAT, body)
            if reply.status != 200:
                raise reply.refusal()
            return whole(reply.json(), allowed, reply.seconds)

        return self.paid(body["max_tokens"], answer)

    def stream(self, content: str, tokens: int, **more: Any) -> Answer:
        """Ask the chat API for a stream of at most `tokens` tokens, and join it; `Answer.stream` says how it ended.

        Raises:
            NoAnswer: there is none that could be judged.

        """
        more = {"stream": True, "stream_options": {"include_usage": True}, **more}
        body = self._body(content, self.purse.allowed(tokens, self.reserved), None, more)

        def answer(allowed: int) -> Answer:
            stream = self.client.stream(CHAT, body, allowed)
            return joined(stream, allowed, time.monotonic() - stream.began)

        return self.paid(body["max_tokens"], answer)

    def paid(self, allowed: int, answer: Callable[[int], Answer]) -> Answer:
        """Get an answer of at most `allowed` tokens, and count its tokens, also if it fails after the server may have generated some.

        Raises:
            NoAnswer: there is none that could be judged.

        """
        if allowed < 1:
            raise NoAnswer(unknown(f"not asked: the {self.purse.most} tokens that it may generate are used up"), status=200)
        try:
            got = answer(allowed)
        except Exception as failed:
            if not isinstance(failed, NoAnswer) or failed.spent:
                self.purse.pay(allowed, None, "")
            raise
        broken = got.stream is not None and not got.stream.done
        self.purse.pay(allowed, None if broken else got.tokens, got.text, got.pieces)
        return got

    def _body(self, content: str, tokens: int, system: str | None, more: Mapping[str, Any]) -> dict[str, Any]:
        messages = [{"role": "system", "content": system}] if system is not None else []
        messages = [*messages, {"role": "user", "content": content}]
        return {"model": self.model, "messages": messages, "temperature": 0, "max_tokens": tokens, **more}


@dataclass(frozen=True, slots=True)
class Question:
    """A question: its name, what it asks for in a few words, the sentence for a good answer, and the least tokens that it needs."""

    name: str
    about: str
    fine: str
    look: Callable[[Interview], Iterable[Found]]
    least: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its outcome: a severity, or `not asked`; its findings, the generated tokens, and the seconds that it took."""

    question: Question
    outcome: str
    findings: tuple[Finding, ...]
    tokens: int
    seconds: float
