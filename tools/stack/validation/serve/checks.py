# SPDX-License-Identifier: Apache-2.0
"""Requests to a server, and the answers that must come back. Each check raises Wrong, or returns its measurements.

The model's answers are known in advance, so a check compares the whole answer.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stack.deploy.recipes import Recipe
from stack.validation.model import expected_replies
from stack.validation.serve import prompts
from stack.validation.serve.client import Exchange, Json, Talk, Wrong

CHAT, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/completions"
RETURN, CALLED = 200002, 200012
"""The control tokens that end an answer, and a call of a tool."""
LONG = 64
"""A limit of tokens that is enough for every answer."""
REQUESTS, AT_ONCE = 200, 12

Measured = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class ServerUnderTest:
    """The input of a check: a connection to the server, its recipe, its log, and the tokens of the texts of `prompts.texts`.

    `stack`: digest of the stack that the server must be built from. `date`: that in the server's system message. `requests`: how many are
    sent where many are sent at once.
    """

    talk: Talk
    recipe: Recipe
    log: Callable[[], str]
    tokens: Mapping[str, Sequence[int]]
    stack: str = ""
    date: str = prompts.DATE
    requests: int = REQUESTS


def identifiers() -> tuple[tuple[str, ...], ...]:
    """Draw letters for each of many requests, no two alike."""
    chosen = random.Random(20)  # noqa: S311  (not for secrets)
    letters: dict[tuple[str, ...], None] = {}
    while len(letters) < REQUESTS:
        letters[tuple(chosen.sample(expected_replies.LETTERS, 6))] = None
    return tuple(letters)


def models(server: ServerUnderTest) -> Measured:
    """Check that the server lists its model with its length."""
    page = server.talk.get("/v1/models")
    served = [model.get("id") for model in page.get("data", [])]
    if served != [server.talk.model]:
        raise Wrong(f"it lists {served}", request="GET /v1/models", answer=page, expected=[server.talk.model])
    return {"context": float(page["data"][0]["max_model_len"])}


def version(server: ServerUnderTest) -> Measured:
    """Check that the running server's version names the digest of this stack, which the wheel build puts there."""
    running = str(server.talk.get("/version").get("version"))
    mark = f".g{server.stack[:8]}"
    if f"{mark}." not in f"{running}.":
        raise Wrong(f"it runs {running}, not this stack", request="GET /version", answer=running, expected=f"…{mark}…")
    return {"version": running}


def chat(server: ServerUnderTest) -> Measured:
    """Check a whole answer: content, reasoning, why it ended, and every token."""
    got = _chat(server)
    _whole(got, prompts.LETTERS)
    got.equal("the tokens of the answer", got.part("choices", 0, "token_ids"), server.tokens[_answer_key(prompts.LETTERS)])
    counted = len(server.tokens[_prompt_key(prompts.LETTERS)]), len(server.tokens[_answer_key(prompts.LETTERS)])
    got.equal("usage", (got.part("usage", "prompt_tokens"), got.part("usage", "completion_tokens")), counted)
    return {}


def chat_stream(server: ServerUnderTest) -> Measured:
    """Check that a stream has the same content as a whole answer, in more than one piece."""
    prompt = prompts.echo(prompts.LETTERS)
    got = server.talk.stream(CHAT, **_greedy(), **prompt.body, return_token_ids=True, stream_options={"include_usage": True})
    joined = _joined(got)
    got.equal("the role", joined["role"], "assistant")
    got.equal("the content", joined["content"], expected_replies.content(prompts.LETTERS))
    got.equal("the reasoning", joined["reasoning"], expected_replies.THOUGHT)
    got.equal("how it ended", joined["finish_reason"], ["stop"])
    got.equal("the tokens of the answer", joined["token_ids"], server.tokens[_answer_key(prompts.LETTERS)])
    got.equal(
        "usage", [event["usage"]["completion_tokens"] for event in got.events if event.get("usage")], [len(joined["token_ids"])]
    )
    # A busy front end sends what has gathered meanwhile as one piece.
    if joined["pieces"] < 2:
        raise got.wrong(f"the content comes in {joined['pieces']} piece, so it is not a stream")
    return {"events": float(len(got.events))}


def responses(server: ServerUnderTest) -> Measured:
    """Check a whole answer of the Responses API: one item for the reasoning, one for the message, and the token counts."""
    got = server.talk.ask(RESPONSES, input=prompts.request_text(prompts.LETTERS), temperature=0, max_output_tokens=LONG)
    _response(got, got.answer)
    counted = len(server.tokens[_prompt_key(prompts.LETTERS)]), len(server.tokens[_answer_key(prompts.LETTERS)])
    got.equal("usage", (got.part("usage", "input_tokens"), got.part("usage", "output_tokens")), counted)
    return {}


def responses_stream(server: ServerUnderTest) -> Measured:
    """Check that a stream's deltas together have the content of its last event."""
    got = server.talk.stream(RESPONSES, input=prompts.request_text(prompts.LETTERS), temperature=0, max_output_tokens=LONG)
    last = got.events[-1]
    got.equal("the last event", last.get("type"), "response.completed")
    _response(got, last["response"])
    for kind, text in (
        ("reasoning_text", expected_replies.THOUGHT),
        ("output_text", expected_replies.content(prompts.LETTERS)),
    ):
        deltas = [event["delta"] for event in got.events if event.get("type") == f"response.{kind}.delta"]
        got.equal(f"the joined deltas of {kind}", "".join(deltas), text)
        if len(deltas) < 2:
            raise got.wrong(f"{kind} comes in {len(deltas)} piece, so it is not a stream")
    return {"events": float(len(got.events))}


def tool_call(server: ServerUnderTest) -> Measured:
    """Check a call of a tool: its name and arguments, no content, and the reasoning before it."""
    got = _chat(server, prompts.CHAT["tools"])
    (call,) = got.part("choices", 0, "message", "tool_calls") or [None]
    if call is None:
        raise got.wrong("no tool is called", expected_replies.CALL)
    got.equal("the tool", call["function"]["name"], expected_replies.TOOL)
    _arguments(got, call["function"]["arguments"])
    got.equal("the content", got.part("choices", 0, "message", "content"), None)
    got.equal("the reasoning", got.part("choices", 0, "message", "reasoning"), expected_replies.THOUGHT)
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "tool_calls")
    got.equal("the tokens of the answer", got.part("choices", 0, "token_ids"), server.tokens["called"])
    return {}


def tool_call_stream(server: ServerUnderTest) -> Measured:
    """Check a call of a tool in a stream."""
    prompt = prompts.CHAT["tools"]
    got = server.talk.stream(CHAT, **_greedy(), **prompt.body, return_token_ids=True)
    joined = _joined(got)
    got.equal("the tool", joined["name"], expected_replies.TOOL)
    _arguments(got, joined["arguments"])
    got.equal("the content", joined["content"], "")
    got.equal("how it ended", joined["finish_reason"], ["tool_calls"])
    return {}


def tool_call_responses(server: ServerUnderTest) -> Measured:
    """Check a call of a tool in the Responses API."""
    tools = [{"type": "function", **prompts.TOOL}]
    got = server.talk.ask(
        RESPONSES, input=prompts.request_text(prompts.LETTERS), tools=tools, temperature=0, max_output_tokens=LONG
    )
    calls = [item for item in got.part("output") if item.get("type") == "function_call"]
    got.equal("the tools", [item["name"] for item in calls], [expected_replies.TOOL])
    _arguments(got, calls[0]["arguments"])
    return {}


def ends_at_limit(server: ServerUnderTest) -> Measured:
    """Check an answer that `max_tokens` cuts within the reasoning: no content, a part of the reasoning, and why it ended."""
    got = server.talk.ask(CHAT, **prompts.echo(prompts.LETTERS).body, temperature=0, max_tokens=5)
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "length")
    got.equal("the content", got.part("choices", 0, "message", "content"), None)
    got.equal("the reasoning", got.part("choices", 0, "message", "reasoning"), " ".join(expected_replies.THOUGHT.split()[:2]))
    return {}


def ends_at_word(server: ServerUnderTest) -> Measured:
    """Check an answer that a stop word ends: nothing follows it, and the answer names the word.

    vLLM leaves the word itself in gpt-oss's content, because it parses tokens and not the cut text. Both forms are accepted.
    """
    word = f" {prompts.LETTERS[3]}"
    got = server.talk.ask(CHAT, **prompts.echo(prompts.LETTERS).body, temperature=0, max_tokens=LONG, stop=[word])
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "stop")
    got.equal("what ended it", got.part("choices", 0, "stop_reason"), word)
    content = str(got.part("choices", 0, "message", "content"))
    got.equal("the content", content.removesuffix(word), expected_replies.content(prompts.LETTERS[:3]))
    return {}


def ends_at_token(server: ServerUnderTest) -> Measured:
    """Check that answers end with the right control token: one for a message, another for a call."""
    for prompt, token, why in ((prompts.echo(prompts.LETTERS), RETURN, "stop"), (prompts.CHAT["tools"], CALLED, "tool_calls")):
        got = _chat(server, prompt)
        got.equal("the last token", (got.part("choices", 0, "token_ids") or [None])[-1], token)
        got.equal("how it ended", got.part("choices", 0, "finish_reason"), why)
    return {}


def prompt(name: str) -> Callable[[ServerUnderTest], Measured]:
    """Make a check that a conversation reaches the model as harmony's exact tokens."""

    def check(server: ServerUnderTest) -> Measured:
        got = _chat(server, prompts.CHAT[name])
        found, expected = list(got.part("prompt_token_ids") or []), list(server.tokens[f"prompt {name}"])
        if found != expected:
            place = next(
                (place for place, (token, other) in enumerate(zip(found, expected, strict=False)) if token != other), -1
            )
            raise got.wrong(
                f"the prompt differs from token {place} on: {found[max(place, 0) :][:12]} of {len(found)}",
                f"{expected[max(place, 0) :][:12]} of {len(expected)}: {prompts.on(server.date, prompts.CHAT[name].text)}",
            )
        return {"tokens": float(len(found))}

    return check


def many_at_once(server: ServerUnderTest) -> Measured:
    """Send many requests at once, half as streams; each must get its own identifier and all of its own tokens back."""

    def echoed(number: int, letters: Sequence[str]) -> None:
        body = prompts.echo(letters).body
        name = f"own-{number}-{''.join(letters)}"
        own: Json = {**_greedy(), "return_token_ids": True, "request_id": name}
        got = server.talk.stream(CHAT, **body, **own) if number % 2 else server.talk.ask(CHAT, **body, **own)
        answer = _joined(got) if number % 2 else _taken(got)
        got.equal("the identifier", answer["id"], [f"chatcmpl-{name}"])
        got.equal("the content", answer["content"], expected_replies.content(letters))
        got.equal("the tokens of the prompt", answer["prompt_token_ids"], list(server.tokens[_prompt_key(letters)]))
        got.equal("the tokens of the answer", answer["token_ids"], list(server.tokens[_answer_key(letters)]))

    return _at_once(server, echoed)


def _at_once(server: ServerUnderTest, run: Callable[[int, Sequence[str]], None]) -> Measured:
    """Call `run` for each identifier, several at once; report the first failure and the number of failures."""
    wrong: list[Wrong] = []

    def taken(number: int, letters: Sequence[str]) -> None:
        with server.talk.taken():
            run(number, letters)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(taken, number, letters) for number, letters in enumerate(identifiers()[: server.requests])]:
            failed = future.exception()
            if isinstance(failed, Wrong):
                wrong.append(failed)
            elif failed is not None:
                raise failed
    if wrong:
        raise Wrong(f"{len(wrong)} of {server.requests} requests: {wrong[0].problem}", **wrong[0].details)
    return {"requests": float(server.requests), "at once": float(AT_ONCE)}


def backends(server: ServerUnderTest) -> Measured:
    """Check that the log names the backends that the recipe expects."""
    log = server.log()
    missing = [line for line in server.recipe.log if line not in log]
    if missing:
        named = [line.strip() for line in log.splitlines() if "ackend" in line and "config:" not in line]
        raise Wrong(
            f"the log does not contain {missing[0]!r}",
            answer="\n".join(named[-10:]) or "no line about backends",
            expected=missing,
        )
    return {"said": " / ".join(server.recipe.log)}


def characters_of_arguments(server: ServerUnderTest) -> Measured:
    """Check that a call's arguments keep their characters beyond ASCII."""
    got = _chat(server, prompts.CHAT["tools"])
    (call,) = got.part("choices", 0, "message", "tool_calls") or [None]
    if call is None or "ö" not in call["function"]["arguments"]:
        raise got.wrong("the arguments are spelled differently", expected_replies.ARGUMENTS)
    return {}


def null_tool_calls(server: ServerUnderTest) -> Measured:
    """Check that a user's message with `tool_calls` null, as clients serialize it, is accepted."""
    message = {"role": "user", "content": prompts.request_text(prompts.LETTERS), "tool_calls": None}
    _whole(server.talk.ask(CHAT, messages=[message], **_greedy()), prompts.LETTERS)
    return {}


def lists_of_outputs(server: ServerUnderTest) -> Measured:
    """Check that the output of a function can be a list of parts."""
    call = {
        "type": "function_call",
        "call_id": "call_1",
        "name": expected_replies.TOOL,
        "arguments": expected_replies.ARGUMENTS,
    }
    output = {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "12 °C"}]}
    user = {"role": "user", "content": prompts.request_text(prompts.LETTERS)}
    _response(*_both(server.talk.ask(RESPONSES, input=[user, call, output], temperature=0, max_output_tokens=LONG)))
    return {}


def counted(server: ServerUnderTest) -> Measured:
    """Check a whole answer of unknown content: it is not empty, ends for a known reason, and its token count is right."""
    got = _chat(server)
    tokens, usage = got.part("choices", 0, "token_ids") or [], got.part("usage")
    got.equal(
        "usage",
        (usage.get("prompt_tokens"), usage.get("completion_tokens")),
        (len(server.tokens[_prompt_key(prompts.LETTERS)]), len(tokens)),
    )
    message, why = got.part("choices", 0, "message"), got.part("choices", 0, "finish_reason")
    if not (message.get("content") or message.get("reasoning")) or why not in ("stop", "length"):
        raise got.wrong(f"the answer is empty, or ended by {why}")
    return {"tokens": float(len(tokens))}


def same_as_stream(server: ServerUnderTest) -> Measured:
    """Check that a greedy stream has the same tokens as a whole answer."""
    got = _chat(server)
    joined = _joined(server.talk.stream(CHAT, **_greedy(), **prompts.echo(prompts.LETTERS).body, return_token_ids=True))
    message = got.part("choices", 0, "message")
    whole = [got.part("choices", 0, "token_ids"), message.get("content") or "", message.get("reasoning") or ""]
    got.equal("the stream", [joined["token_ids"], joined["content"], joined["reasoning"]], whole)
    return {"tokens": float(len(joined["token_ids"]))}


def own_prompts_at_once(server: ServerUnderTest) -> Measured:
    """Send many requests at once; each must get its own identifier and prompt back, and a right token count."""

    def echoed(number: int, letters: Sequence[str]) -> None:
        name = f"own-{number}-{''.join(letters)}"
        body = prompts.echo(letters).body
        got = server.talk.ask(CHAT, **body, **_greedy(), return_token_ids=True, request_id=name)
        got.equal("the identifier", got.part("id"), f"chatcmpl-{name}")
        got.equal("the tokens of the prompt", got.part("prompt_token_ids"), list(server.tokens[_prompt_key(letters)]))
        got.equal("usage", got.part("usage", "completion_tokens"), len(got.part("choices", 0, "token_ids")))

    return _at_once(server, echoed)


CHECKS: Mapping[str, Callable[[ServerUnderTest], Measured]] = MappingProxyType(
    {
        "models": models,
        "version": version,
        "chat/whole": chat,
        "backends": backends,
        **{f"prompt/{name}": prompt(name) for name in prompts.CHAT},
        "chat/stream": chat_stream,
        "responses/whole": responses,
        "responses/stream": responses_stream,
        "tool-call/chat": tool_call,
        "tool-call/stream": tool_call_stream,
        "tool-call/responses": tool_call_responses,
        "ends/limit": ends_at_limit,
        "ends/word": ends_at_word,
        "ends/token": ends_at_token,
        "many-at-once": many_at_once,
    }
)
GENERAL: Mapping[str, Callable[[ServerUnderTest], Measured]] = MappingProxyType(
    {
        "models": models,
        "version": version,
        **{f"prompt/{name}": prompt(name) for name in prompts.CHAT},
        "answer/counted": counted,
        "answer/same-as-stream": same_as_stream,
        "own-prompts-at-once": own_prompts_at_once,
    }
)
"""Checks for any gpt-oss, whose answers are not known in advance."""
EFFECTS: Mapping[str, Mapping[str, Callable[[ServerUnderTest], Measured]]] = MappingProxyType(
    {
        "harmony": {
            "characters-of-arguments": characters_of_arguments,
            "null-tool-calls": null_tool_calls,
            "lists-of-outputs": lists_of_outputs,
        }
    }
)
"""Effects of a series for clients of a CPU server, by series: without it, these checks fail."""


def _greedy() -> Json:
    return {"temperature": 0, "max_tokens": LONG}


def _prompt_key(letters: Sequence[str]) -> str:
    return f"asked {' '.join(letters)}"


def _answer_key(letters: Sequence[str]) -> str:
    return f"said {' '.join(letters)}"


def _chat(server: ServerUnderTest, prompt: prompts.Prompt | None = None) -> Exchange:
    body = (prompt or prompts.echo(prompts.LETTERS)).body
    return server.talk.ask(CHAT, **_greedy(), **body, return_token_ids=True)


def _whole(got: Exchange, letters: Sequence[str]) -> None:
    """Check a chat answer to an echo."""
    got.equal("the content", got.part("choices", 0, "message", "content"), expected_replies.content(letters))
    got.equal("the reasoning", got.part("choices", 0, "message", "reasoning"), expected_replies.THOUGHT)
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "stop")
    got.equal("the calls", got.answer["choices"][0]["message"].get("tool_calls") or [], [])


def _response(got: Exchange, response: Json) -> None:
    """Check an answer of the Responses API to an echo."""
    items = [
        (item.get("type"), "".join(part["text"] for part in item.get("content") or [])) for item in response.get("output", [])
    ]
    got.equal(
        "the output", items, [("reasoning", expected_replies.THOUGHT), ("message", expected_replies.content(prompts.LETTERS))]
    )
    got.equal("the status", response.get("status"), "completed")


def _both(got: Exchange) -> tuple[Exchange, Json]:
    return got, got.answer


def _arguments(got: Exchange, arguments: str) -> None:
    try:
        found = json.loads(arguments)
    except ValueError as failed:
        raise got.wrong(f"the arguments are not JSON: {arguments!r}", expected_replies.ARGUMENTS) from failed
    got.equal("the arguments", found, json.loads(expected_replies.ARGUMENTS))


def _taken(got: Exchange) -> Json:
    """Extract from a whole chat answer the fields that `_joined` collects from a stream."""
    return {
        "id": [got.part("id")],
        "content": got.part("choices", 0, "message", "content"),
        "prompt_token_ids": got.part("prompt_token_ids"),
        "token_ids": got.part("choices", 0, "token_ids"),
    }


def _joined(got: Exchange) -> Json:
    """Join the events of a chat stream."""
    joined: Json = {"role": None, "content": "", "reasoning": "", "name": "", "arguments": "", "pieces": 0}
    joined |= {"finish_reason": [], "token_ids": [], "prompt_token_ids": None}
    joined["id"] = sorted({str(event.get("id")) for event in got.events})
    for event in got.events:
        joined["prompt_token_ids"] = event.get("prompt_token_ids") or joined["prompt_token_ids"]
        for choice in event.get("choices", []):
            _add(joined, choice)
    return joined


def _add(joined: Json, choice: Json) -> None:
    delta: dict[str, Any] = choice.get("delta", {})
    joined["role"] = delta.get("role") or joined["role"]
    joined["content"] += delta.get("content") or ""
    joined["pieces"] += bool(delta.get("content"))
    joined["reasoning"] += delta.get("reasoning") or ""
    for call in delta.get("tool_calls") or []:
        function = call.get("function") or {}
        joined["name"] += function.get("name") or ""
        joined["arguments"] += function.get("arguments") or ""
    joined["finish_reason"] += [choice["finish_reason"]] if choice.get("finish_reason") else []
    joined["token_ids"] += choice.get("token_ids") or []
