# SPDX-License-Identifier: Apache-2.0
"""Servers on the loopback interface that answer as vLLM does, each bad in one way, and the finding that each has to give."""

import gzip
import itertools
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler
from typing import Any

from stack.doctor import running
from stack.doctor.finding import Finding, Severity

from ..loopback import listening
from .good_server import (
    DONE,
    METRICS,
    MODEL,
    PROSE,
    Json,
    Reply,
    answer,
    answered,
    as_json,
    asked,
    call,
    delta,
    error,
    event,
    events,
    response,
    response_events,
    system,
)

__all__ = ["MODEL", "PROSE", "Json", "answer", "answered"]
WRONG, NOTE, UNKNOWN = Severity.WRONG, Severity.NOTE, Severity.UNKNOWN
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
Change = Callable[[str, Json, Reply], Reply]
"""Changes the answer of a good server, by the path and the body of the request."""


def looked(*server: Any, **more: Any) -> Iterator[Finding]:
    """Yield the findings of an interview, which has the same arguments."""
    for asked_one in running.interview(*server, **more):
        yield from asked_one.findings


@dataclass(frozen=True, slots=True)
class Manner:
    """How a server answers. `chat`: makes the answer of a request, as it should be unless given; `raw`: bytes in place of every answer.

    `late`: seconds before each; `pause`: seconds between the `tokens` of a stream, whose `counts` are ids, a usage at its end, or none;
    `change`: changes an answer; `metrics`: the text of /metrics.
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
    change: Change | None = None
    metrics: str = METRICS


@dataclass(frozen=True, slots=True)
class Case:
    """How a server answers, and what a check has to say of it."""

    manner: Manner
    severity: Severity
    what: str
    fix: str = ""
    longest: float = 30.0


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
    return answer("The sky is " + "blue and the sea is " * 40 if "250" in asked(body) else "Paris")


def on(path: str, reply: "Reply | Callable[[Json], Reply]", *, streams: bool | None = None) -> Manner:
    """Answer requests of a path with another reply; `streams`: only those for a stream, or only the others."""

    def change(found: str, body: Json, good: Reply) -> Reply:
        if found != path or (streams is not None and bool(body.get("stream")) != streams):
            return good
        return reply(body) if callable(reply) else reply

    return Manner(change=change)


def sse(*pieces: bytes) -> Reply:
    return Reply(pieces, kind="text/event-stream")


def streaming(*pieces: bytes, done: bool = True) -> Manner:
    """Every stream of the chat API has these events."""
    return on(CHAT, sse(*pieces, *((DONE,) if done else ())), streams=True)


def calling(name: str = "get_weather", arguments: Any = '{"city": "Paris"}') -> Manner:
    return Manner(chat=lambda body: call(name, arguments) if body.get("tools") else answered(body))


def scoring(value: Any) -> Manner:
    """Log-probabilities are these."""

    def chat(body: Json) -> Json:
        made = answered(body)
        if body.get("logprobs"):
            made["choices"][0]["logprobs"] = {"content": [{"token": "Par", "logprob": value}]}
        return made

    return Manner(chat=chat)


def at_length(most: int, content: str, *, prompt: int | None = None) -> Manner:
    """Prompts of more than `most` words have another answer."""

    def chat(body: Json) -> Json:
        made = answered(body)
        if len(asked(body).split()) > most:
            made["choices"][0]["message"]["content"] = content
            if prompt is not None:
                made["usage"]["prompt_tokens"] = prompt
        return made

    return Manner(chat=chat)


def collected(path: str, body: Json, good: Reply) -> Reply:
    """A proxy that waits for the end of a long stream."""
    if not body.get("stream") or "250" not in asked(body):
        return good
    time.sleep(1.0)
    return replace(good, body=b"".join(events(answered(body), 200, 0, "ids")))


def slow_prompts(body: Json) -> Json:
    """Reading takes a second for each 8,000 words."""
    time.sleep(len(asked(body).split()) / 8000)
    return answered(body)


def refusing(most: int) -> Manner:
    long = error(400, "This model's maximum context length is 4096 tokens.")
    return on(CHAT, lambda body: long if len(asked(body).split()) > most else as_json(answered(body)), streams=False)


def counting(name: str, value: float) -> Manner:
    """One number of /metrics is this."""
    lines = [line for line in METRICS.splitlines() if not line.startswith(f"{name}{{")]
    return Manner(metrics="\n".join([*lines, f'{name}{{engine="0"}} {value}', ""]))


def forever() -> Iterator[bytes]:
    return itertools.repeat(delta(content="a and b "))


def dripping(data: bytes = b": wait\n", pause: float = 0.02) -> Iterator[bytes]:
    """Bytes that keep a connection alive without an end."""
    for _ in range(10_000):
        time.sleep(pause)
        yield data


BOMB = gzip.compress(b" " * 2**24, 1)
PACKED = {"content-encoding": "gzip"}
HTML = Reply(b"<!DOCTYPE html><html><title>Sign in \x1b]0;x\x07</title></html>", kind="text/html; charset=utf-8")
GRAPHS = 'sglang:num_running_reqs 0\nsglang:cuda_graph_passes_total{mode="decode_none"} 40.0\n'
LLAMA = "llamacpp:requests_processing 0\nllamacpp:requests_deferred 3\n"

LOUD: Mapping[str, list[Case]] = {
    "health": [
        Case(Manner(health=503), WRONG, "/health answers 503", "log"),
        Case(Manner(late=5), WRONG, "the server does not answer", "--url"),
        Case(
            on("/health", Reply(status=302, headers={"location": "http://k@evil.example/health"})),
            WRONG,
            "redirects to evil.example",
        ),
        Case(
            on("/health", Reply(status=307, headers={"location": "http://[bad"})),
            WRONG,
            "the server does not answer (Invalid IPv6 URL)",
        ),
        Case(on("/health", error(404, "Not Found")), NOTE, "it has no /health"),
        Case(on("/health", error(403, "Forbidden")), UNKNOWN, "it wants a key", "VLLM_API_KEY"),
    ],
    "model": [
        Case(Manner(models=[]), WRONG, "it serves no model"),
        Case(Manner(models=[{"id": "a"}, {"id": "b"}]), WRONG, "it serves a, b", "--model"),
        Case(Manner(models=7), WRONG, "a wrong form"),
        Case(Manner(models=[7]), WRONG, "a wrong form"),
        Case(Manner(raw=b"<html>"), WRONG, "the answer is not JSON"),
        Case(Manner(raw=b'{"data": ' + b"[" * 100_000), WRONG, "the answer is not JSON"),
        Case(Manner(status=401), UNKNOWN, "it wants a key", "VLLM_API_KEY"),
        Case(Manner(status=429), UNKNOWN, "too busy", "later"),
        Case(Manner(models=[{"id": "other", "max_model_len": 8}]), NOTE, "it serves other, recipe gpt-oss-120b-spark is for"),
        Case(on("/v1/models", HTML), WRONG, "not JSON but a web page: <!DOCTYPE html>", "--url"),
        Case(on("/v1/models", Reply(BOMB, headers=PACKED)), WRONG, "more than 8 MiB came"),
    ],
    "metrics": [
        Case(on("/metrics", error(404, "Not Found")), NOTE, "it has no /metrics", "--enable-metrics"),
        Case(
            on("/metrics", error(501, "This server does not support metrics endpoint.")),
            NOTE,
            "it has no /metrics",
            "--metrics",
        ),
        Case(on("/metrics", HTML), NOTE, "none of the numbers"),
        Case(counting("vllm:num_requests_running", 3), NOTE, "3 requests of others run at the same time", "ask again"),
        Case(counting("vllm:num_requests_waiting", 7), NOTE, "7 requests of others wait", "--max-num-seqs"),
        Case(counting("vllm:kv_cache_usage_perc", 0.97), NOTE, "the KV cache is 97% full", "--kv-cache-dtype"),
        Case(counting("vllm:num_preemptions_total", 12), NOTE, "12 requests were preempted", "--max-num-seqs"),
        Case(counting("vllm:corrupted_requests_total", 2), WRONG, "2 requests had NaN in the logits", "--linear-backend"),
        Case(Manner(metrics=GRAPHS), WRONG, "none of 40 decode passes used CUDA graphs", "--disable-cuda-graph"),
        Case(Manner(metrics=LLAMA), NOTE, "3 requests of others wait"),
        Case(on("/metrics", Reply(b"vllm:" * 2**21)), WRONG, "more than 8 MiB came"),
        Case(on("/metrics", Reply(dripping())), WRONG, "no whole answer came in", "log", longest=1.0),
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
        Case(ends("Paris<|im_end|>\n<|im_start|>user"), WRONG, "control tokens in it, <|im_end|>", "chat template"),
        Case(ends("analysisThe user asks for a capital.assistantfinalParis"), WRONG, "channels in it", "openai_gptoss"),
        Case(ends("analysisWe need to answer Paris"), WRONG, "channels in it", "openai_gptoss"),
        Case(ends("<think>\nA capital…\n</think>\n\nParis"), WRONG, "its mark <think>", "--reasoning-parser"),
        Case(ends("The user asks.</think>Paris"), WRONG, "its mark </think>", "--reasoning-parser"),
        Case(ends("<mm:think>Paris"), WRONG, "its mark <mm:think>", "--reasoning-parser"),
        Case(ends("[THINK]Hm[/THINK]Paris"), WRONG, "its mark [THINK]", "--reasoning-parser"),
        Case(ends("!!!!!!!!!!"), WRONG, "nothing but `!`", "--linear-backend"),
        Case(ends("Paris" + "!" * 60), WRONG, "turns into `!` without end", "--linear-backend"),
        Case(ends(None, reasoning="!" * 500, ended="length"), WRONG, "nothing but `!`", "--linear-backend"),
        Case(ends("0" * 200), WRONG, "one token without end (0)", "log"),
        Case(ends("'s" * 100), WRONG, "one token without end ('s)", "log"),
        Case(ends("Paris" * 100), WRONG, "one token without end (Paris)", "log"),
        Case(ends("Paris " + "the " * 30), WRONG, "one token without end (the)", "log"),
        Case(ends("na na " * 60), WRONG, "an answer repeats itself"),
        Case(ends("Paris is " + "a town and a place " * 12), WRONG, "an answer repeats itself"),
        Case(ends("I am a large banana."), WRONG, "does not name Paris: I am a large banana.", "backend"),
        Case(ends("\x1b[2J\x07\u202eLondon"), WRONG, "does not name Paris: �[2J��London", "backend"),
        Case(ends("Well, the capital is", ended="length"), UNKNOWN, "the answer was cut off"),
        Case(ends(7), WRONG, "is not a text"),  # type: ignore[arg-type]
        Case(Manner(chat=lambda _: {"choices": []}), WRONG, "the answer has no choices.0.message"),
        Case(Manner(chat=lambda _: {"choices": [{"message": "\x1b[31m"}]}), WRONG, "a wrong form"),
        Case(Manner(chat=lambda _: {"choices": {"0": 1}}), WRONG, "the answer has no choices.0.message"),
        Case(on(CHAT, as_json([1, 2])), WRONG, "a wrong form"),
        Case(on(CHAT, HTML), WRONG, "not JSON but a web page"),
        Case(on(CHAT, error(404, "The model does not support Chat Completions API")), WRONG, "it answers 404", "--model"),
        Case(on(CHAT, error(400, "default chat template is no longer allowed")), WRONG, "it answers 400", "--chat-template"),
        Case(on(CHAT, replace(HTML, status=502)), WRONG, "it answers 502 (<!DOCTYPE html>", "a proxy answers"),
        Case(on(CHAT, error(500, "EngineCore\x1b[31m died")), WRONG, "it answers 500 (EngineCore�[31m died)", "--log"),
        Case(on(CHAT, Reply(BOMB, headers=PACKED)), WRONG, "more than 8 MiB came"),
        Case(on(CHAT, Reply(b"not gzip", headers=PACKED)), WRONG, "it does not answer"),
        Case(on(CHAT, Reply(dripping(b" "))), WRONG, "no whole answer came in", "--timeout", longest=1.0),
        Case(
            on(CHAT, Reply(status=302, headers={"location": "https://evil.example/"})),
            WRONG,
            "redirects to evil.example",
            "--url",
        ),
    ],
    "stream": [
        Case(
            streaming(delta(content="Par"), event({"error": {"message": "engine died\x07"}})),
            WRONG,
            "an error event: engine died�",
            "log",
        ),
        Case(streaming(event({"object": "error", "message": "dead"})), WRONG, "an error event: dead", "log"),
        Case(streaming(event({"error": "flat"})), WRONG, "an error event: flat"),
        Case(
            streaming(delta(content="Paris"), done=False),
            WRONG,
            "breaks off without [DONE], after 1 events",
            "proxy_read_timeout",
        ),
        Case(streaming(done=False), WRONG, "breaks off without [DONE], after 0 events"),
        Case(
            streaming(delta(reasoning="It is Paris."), event({"choices": [{"delta": {}, "finish_reason": "stop"}]})),
            WRONG,
            "`reasoning` has all of the answer",
            "--reasoning-parser",
        ),
        Case(streaming(event({"choices": [{"delta": {}, "finish_reason": "stop"}]})), WRONG, "`content` is null"),
        Case(
            streaming(delta(content="<think>A capital"), delta(content="</think>Paris")),
            WRONG,
            "its mark <think>",
            "--reasoning-parser",
        ),
        Case(streaming(delta(content="London")), WRONG, "does not name Paris"),
        Case(
            streaming(delta(content="Paris, of course")), NOTE, "differs from the whole answer's at temperature 0", "same batch"
        ),
        Case(streaming(delta(content="Paris\n")), NOTE, "differs from the whole answer's in blanks"),
        Case(streaming(event(b"{no json")), WRONG, "an event is not a JSON object: {no json"),
        Case(streaming(event([1])), WRONG, "an event is not a JSON object: [1]"),
        Case(streaming(event({"choices": 7})), WRONG, "choices of an event is not a list"),
        Case(streaming(event({"choices": [{"delta": 7}]})), WRONG, "a wrong form"),
        Case(streaming(delta(content=["Paris"])), WRONG, "content is not a text"),
        Case(on(CHAT, as_json(answer("Paris")), streams=True), WRONG, "is application/json, not a stream", "proxy"),
        Case(on(CHAT, HTML, streams=True), WRONG, "is text/html, not a stream"),
        Case(on(CHAT, error(500, "no"), streams=True), WRONG, "it answers 500 (no)"),
        Case(
            on(CHAT, lambda _: Reply(forever(), kind="text/event-stream"), streams=True), WRONG, "goes on after max_tokens=512"
        ),
        Case(
            on(CHAT, lambda _: Reply(dripping(), kind="text/event-stream"), streams=True),
            WRONG,
            "the stream does not end",
            longest=1.0,
        ),
        Case(on(CHAT, sse(b"data: " + b"x" * (2**20 + 2**18)), streams=True), WRONG, "a line has more than 1 MiB"),
        Case(
            on(CHAT, Reply(BOMB, kind="text/event-stream", headers=PACKED), streams=True),
            WRONG,
            "breaks off after 0 events: a line has more",
        ),
        Case(
            on(CHAT, Reply(gzip.compress(b"\n" * 2**24, 1), kind="text/event-stream", headers=PACKED), streams=True),
            WRONG,
            "more than 100,000 lines came",
        ),
    ],
    "system-message": [
        Case(Manner(chat=twice), WRONG, "2 system messages", "developer message"),
        Case(Manner(chat=deaf), WRONG, "adds 0 tokens to the prompt: it does not arrive"),
        Case(Manner(chat=garbage), WRONG, "with a system message an answer has control tokens"),
        Case(Manner(chat=stubborn), NOTE, "arrives and changes nothing"),
        Case(
            on(CHAT, lambda body: error(400, "System role not supported") if system(body) else as_json(answered(body))),
            NOTE,
            "it refuses a system message: it answers 400 (System role not supported)",
            "first message of the user",
        ),
        Case(Manner(chat=lambda body: answered(body) | {"usage": None}), WRONG, "usage"),
    ],
    "tool-call": [
        Case(
            calling("get_weather<|channel|>commentary"),
            WRONG,
            "it calls get_weather<|channel|>commentary",
            "--tool-call-parser",
        ),
        Case(calling(arguments='{"city": "Par'), WRONG, "are not a JSON object", "--tool-call-parser"),
        Case(calling(arguments="[" * 100_000), WRONG, "are not a JSON object"),
        Case(calling(arguments={"city": "Paris"}), WRONG, "are dict, not a text with JSON"),
        Case(calling(arguments="{}"), WRONG, "do not have the text `city`"),
        Case(ends('<tool_call>{"name": "get_weather"}</tool_call>'), WRONG, "is in `content`, as text", "--tool-call-parser"),
        Case(ends("!!!!!!!!"), WRONG, "nothing but `!`", "--linear-backend"),
        Case(ends("It is sunny in Paris."), WRONG, "a forced call of a tool does not come", "--tool-call-parser"),
        Case(ends(None, ended="length"), UNKNOWN, "the answer was cut off"),
        Case(
            replace(ends("It is sunny."), models=[{"id": MODEL, "owned_by": "llamacpp"}]),
            NOTE,
            "does not force calls",
            "--jinja",
        ),
        Case(
            on(CHAT, lambda body: error(400, "no tools") if body.get("tools") else as_json(answered(body))),
            NOTE,
            "no tools",
            "parser",
        ),
        Case(
            on(CHAT, error(500, "tools param requires --jinja flag")),
            NOTE,
            "requires --jinja",
            "start llama-server with --jinja",
        ),
        Case(Manner(chat=lambda _: {"choices": [{"message": {"tool_calls": 7}}]}), WRONG, "tool_calls is not a list"),
        Case(Manner(chat=lambda _: {"choices": [{"message": {"tool_calls": [7]}}]}), WRONG, "has no function"),
    ],
    "tool-call-stream": [
        Case(
            streaming(
                *(delta(tool_calls=[{"index": 0, "function": {"name": "get_weather", "arguments": part}}]) for part in "{}")
            ),
            WRONG,
            "sends the tool's name 2 times",
            "--tool-call-parser",
        ),
        Case(
            streaming(
                delta(tool_calls=[{"index": 0, "function": {"name": "get_weather", "arguments": '{}{"city": "Paris"}'}}])
            ),
            WRONG,
            "are not a JSON object",
            "--tool-call-parser",
        ),
        Case(streaming(delta(content="get_weather(Paris)")), WRONG, "is in `content`, as text", "--tool-call-parser"),
        Case(streaming(delta(tool_calls=[{"index": 0}])), WRONG, "has no function"),
        Case(streaming(delta(tool_calls=[{"index": "x", "function": {"name": 7}}])), WRONG, "a tool without a name"),
        Case(streaming(delta(content=""), done=False), WRONG, "breaks off without [DONE]"),
    ],
    "responses": [
        Case(on(RESPONSES, error(404, "Not Found")), NOTE, "it has no /v1/responses"),
        Case(on(RESPONSES, error(400, "bad\x1b")), NOTE, "refuses a plain question: it answers 400 (bad�)"),
        Case(on(RESPONSES, error(500, "oops")), WRONG, "it answers 500 (oops)", "--log"),
        Case(on(RESPONSES, lambda body: as_json(response(body, "London"))), WRONG, "does not name Paris"),
        Case(on(RESPONSES, lambda body: as_json(response(body, ""))), WRONG, "`reasoning` has all of the answer"),
        Case(on(RESPONSES, lambda body: as_json(response(body, "") | {"status": "incomplete"})), NOTE, "cut off at 256 tokens"),
        Case(on(RESPONSES, as_json({"status": "failed", "output": [], "error": {"message": "no"}})), WRONG, "status is failed"),
        Case(on(RESPONSES, as_json({"output": 7})), WRONG, "no list `output`"),
        Case(on(RESPONSES, as_json({"output": [{"type": "message", "content": 7}]})), WRONG, "a wrong form"),
        Case(on(RESPONSES, HTML), WRONG, "not JSON but a web page"),
    ],
    "responses-stream": [
        Case(on(RESPONSES, error(404, "Not Found")), NOTE, "it has no /v1/responses"),
        Case(on(RESPONSES, lambda body: sse(*response_events(body)[:-1])), WRONG, "breaks off without [DONE]"),
        Case(
            on(RESPONSES, lambda body: sse(*response_events(body)[:2], event({"type": "error", "message": "died"}))),
            WRONG,
            "an error event: died",
            "log",
        ),
        Case(
            on(RESPONSES, sse(event({"type": "response.failed", "response": {"output": [], "error": {"message": "dead"}}}))),
            WRONG,
            "dead",
            "log",
        ),
        Case(
            on(RESPONSES, lambda body: sse(*response_events(body)[:2], response_events(body)[-1])),
            WRONG,
            "the deltas of the stream are not the text of its last event",
        ),
        Case(on(RESPONSES, lambda body: sse(*response_events(body, "London"))), WRONG, "does not name Paris"),
    ],
    "repetition": [
        Case(Manner(chat=endless), WRONG, "repeats itself without end: ", "--script"),
        Case(ends("Paris " + "the " * 100), WRONG, "repeats itself without end, one token", "--script"),
        Case(ends("Paris " + "!" * 100), WRONG, "turns into `!` without end", "--linear-backend"),
        Case(ends("The sky is blue.<|end|><|start|>assistant"), WRONG, "control tokens in it"),
        Case(streaming(delta(content=PROSE), done=False), WRONG, "breaks off without [DONE]"),
    ],
    "speed": [
        Case(Manner(pause=0.05), WRONG, "60 are expected (the fork's container", "graphs"),
        Case(Manner(pause=0), UNKNOWN, "its counts are wrong, or it speculates"),
        Case(Manner(pause=0.05, counts="usage"), WRONG, "60 are expected (the fork's container", "graphs"),
        Case(Manner(change=collected), NOTE, "came all at once after", "proxy_buffering off"),
        Case(Manner(counts="none"), UNKNOWN, "too few tokens that could be counted"),
    ],
    "logprobs": [
        Case(scoring(math.nan), WRONG, "is nan, which stands for NaN", "--linear-backend"),
        Case(scoring(math.inf), WRONG, "is inf, which stands for NaN", "--linear-backend"),
        Case(scoring(None), WRONG, "is null, which stands for NaN", "--linear-backend"),
        Case(scoring(-9999.0), WRONG, "is -9999.0, which stands for NaN", "--linear-backend"),
        Case(scoring("x\x1b[2J"), WRONG, "is x�[2J"),
        Case(
            on(
                CHAT,
                lambda body: error(500, "Out of range") if body.get("logprobs") else as_json(answered(body)),
                streams=False,
            ),
            WRONG,
            "while it answers without them",
            "--dtype bfloat16",
        ),
        Case(
            on(CHAT, lambda body: error(400, "no") if body.get("logprobs") else as_json(answered(body)), streams=False),
            NOTE,
            "it refuses to send log-probabilities",
        ),
        Case(ends("Paris"), NOTE, "it sends no log-probabilities"),
    ],
    "context-8k": [
        Case(at_length(2000, "123"), WRONG, "does not find a number at the beginning of a prompt of", "--attention-backend"),
        Case(at_length(2000, "!!!!!!!!"), WRONG, "nothing but `!`", "--attention-backend"),
        Case(at_length(2000, "123", prompt=2048), WRONG, "was cut to 2,048 tokens", "OLLAMA_CONTEXT_LENGTH"),
        Case(ends("London"), UNKNOWN, "does not find a number in one of 250 words either"),
        Case(Manner(models=[{"id": MODEL, "max_model_len": 4096}]), NOTE, "a request may have 4,096 tokens at most"),
        Case(refusing(2000), WRONG, "refuses one of about 8,192", "client_max_body_size"),
        Case(replace(refusing(2000), models=[{"id": MODEL}]), NOTE, "it takes no prompt of 8,192 tokens"),
    ],
    "context-64k": [
        Case(at_length(20_000, "123"), WRONG, "does not find a number at the beginning of a prompt of", "--attention-backend"),
        Case(Manner(models=[{"id": MODEL, "max_model_len": 32_768}]), NOTE, "a request may have 32,768 tokens at most"),
        Case(Manner(models=[{"id": MODEL}]), NOTE, "does not say how long a request may be"),
        Case(
            Manner(chat=slow_prompts), UNKNOWN, "by the time of the shorter one it would take about", "--timeout", longest=4.0
        ),
        Case(ends("London"), UNKNOWN, "was not answered"),
    ],
}


@contextmanager
def serving(manner: Manner, key: str | None = None, seen: "list[Json] | None" = None) -> Iterator[str]:
    """The server's address, as long as the block runs.

    `key`: who does not show it is refused, but for /health. `seen`: gets the body of each request.
    """

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            time.sleep(manner.late)
            if self.path in ("/health", "/metrics"):
                good = (
                    Reply(status=manner.health) if self.path == "/health" else Reply(manner.metrics.encode(), kind="text/plain")
                )
            elif not self._is_let_in():
                return
            else:
                models = [{"id": MODEL, "max_model_len": 131072}] if manner.models is None else manner.models
                good = Reply(manner.raw or json.dumps({"data": models}).encode(), manner.status)
            self._send(good, {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if seen is not None:
                seen.append(body)
            if self._is_let_in():
                self._send(self._answer(body), body)

        def _answer(self, body: Json) -> Reply:
            if self.path == RESPONSES:
                return sse(*response_events(body)) if body.get("stream") else as_json(response(body))
            made = (manner.chat or answered)(body)
            if body.get("stream"):
                pieces = min(body["max_tokens"], manner.tokens)
                return Reply(events(made, pieces, manner.pause, manner.counts), kind="text/event-stream")
            return Reply(manner.raw or json.dumps(made).encode(), manner.status)

        def _is_let_in(self) -> bool:
            known = key is None or self.headers["authorization"] == f"Bearer {key}"
            if not known:
                self._send(Reply(b'{"error": "Unauthorized"}', 401), {})
            return known

        def _send(self, good: Reply, body: Json) -> None:
            reply = manner.change(self.path, body, good) if manner.change is not None else good
            self.send_response(reply.status)
            self.send_header("content-type", reply.kind)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            pieces: Iterable[bytes] = (reply.body,) if isinstance(reply.body, bytes) else reply.body
            for piece in pieces:
                self.wfile.write(piece)

    with listening(Handler) as port:
        yield f"http://127.0.0.1:{port}"
