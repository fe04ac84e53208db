# SPDX-License-Identifier: Apache-2.0
"""The answers of a server that is in order, as vLLM gives them; `servers` changes them where a server is to be bad."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
MODEL = "openai/gpt-oss-120b"
PROSE = " ".join(f"word{number} of{number * 7} rain" for number in range(150))
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="openai/gpt-oss-120b"} 0.0
vllm:num_requests_waiting{engine="0",model_name="openai/gpt-oss-120b"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="openai/gpt-oss-120b"} 0.03125
vllm:num_preemptions_total{engine="0",model_name="openai/gpt-oss-120b"} 0.0
vllm:generation_tokens_total{engine="0",model_name="openai/gpt-oss-120b"} 4711.0
"""
_NUMBER = re.compile(r"number of the red door is (\d+)")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of HTTP; a body of several pieces is sent as they come."""

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(value: object, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status)


def error(status: int, message: str) -> Reply:
    return as_json({"error": {"message": message, "type": "Error", "code": status}}, status)


def system(body: Json) -> str:
    return next((str(one["content"]) for one in body["messages"] if one["role"] == "system"), "")


def asked(body: Json) -> str:
    return str(body["messages"][-1]["content"])


def answer(
    content: str | None, *, reasoning: str | None = "Easy.", ended: str = "stop", prompt: int = 70, ids: Any = None
) -> Json:
    message = {"role": "assistant", "content": content, "reasoning": reasoning}
    usage = {"prompt_tokens": prompt, "completion_tokens": 20}
    return {"choices": [{"message": message, "finish_reason": ended}], "usage": usage, "prompt_token_ids": ids}


def call(name: str = "get_weather", arguments: Any = '{"city": "Paris"}') -> Json:
    made = answer(None)
    made["choices"][0]["message"]["tool_calls"] = [
        {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    ]
    return made


def answered(body: Json) -> Json:
    """As gpt-oss does: a system message is obeyed, a long answer is prose, a number in the prompt is found, a tool is called."""
    if body.get("tools"):
        return call()
    if found := _NUMBER.search(asked(body)):
        return answer(found[1], prompt=70 + len(asked(body).split()))
    told = system(body)
    text = PROSE if "250" in asked(body) else "Paris"
    ids = [200006, 17360, 200008, 5, 200007, 200006, 77944, 200008]
    made = answer(f"{text} ZEBRA" if told else text, prompt=70 + len(told.split()), ids=ids)
    if body.get("logprobs"):
        scored = [{"token": token, "logprob": -0.01, "top_logprobs": []} for token in ("Par", "is")]
        made["choices"][0]["logprobs"] = {"content": scored}
    return made


def event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


DONE = event(b"[DONE]")


def delta(**parts: Any) -> bytes:
    """An event with a part of an answer."""
    return event({"choices": [{"index": 0, "delta": parts, "finish_reason": None}]})


def events(made: Json, pieces: int, pause: float, counts: str) -> Iterator[bytes]:
    """A whole answer as a stream of `pieces` pieces, with `pause` seconds between them."""
    choice = made["choices"][0]
    message, text = choice["message"], choice["message"].get("content") or ""
    yield delta(role="assistant", content="")
    if message.get("reasoning"):
        yield delta(reasoning=message["reasoning"])
    for position, tool in enumerate(message.get("tool_calls") or ()):
        function = tool["function"]
        yield delta(tool_calls=[{"index": position, "id": tool["id"], "function": {"name": function["name"], "arguments": ""}}])
        for part in split(str(function["arguments"]), 2):
            yield delta(tool_calls=[{"index": position, "function": {"arguments": part}}])
    begun = time.monotonic()
    parts = split(text, pieces)
    for number, part in enumerate(parts):
        # A token that was late does not delay the next ones.
        time.sleep(max(0.0, begun + number * pause - time.monotonic()))
        ids = {"token_ids": [number]} if counts == "ids" else {}
        yield event({"choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None, **ids}]})
    yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if counts != "none":
        yield event({"choices": [], "usage": {"prompt_tokens": 70, "completion_tokens": len(parts)}})
    yield DONE


def split(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[place : place + size] for place in range(0, len(text), size)]


def response(body: Json, text: str = "Paris") -> Json:
    output = [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Easy."}]},
        {"type": "message", "content": [{"type": "output_text", "text": text}]},
    ]
    return {"id": "resp_1", "status": "completed", "output": output, "usage": {"input_tokens": 70, "output_tokens": 20}}


def response_events(body: Json, text: str = "Paris") -> list[bytes]:
    made = response(body, text)
    return [
        event({"type": "response.created", "response": {**made, "status": "in_progress", "output": []}}),
        *(event({"type": "response.output_text.delta", "delta": part}) for part in split(text, 2)),
        event({"type": "response.completed", "response": made}),
    ]
