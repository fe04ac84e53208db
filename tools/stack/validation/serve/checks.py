# SPDX-License-Identifier: Apache-2.0
"""What a server is asked, and what has to come back. Each check raises Wrong, or hands back what it measured.

The model's answers are known, so nothing here is "some text came back".
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
"""The control tokens that end an answer and a call of a tool."""
LONG = 64
"""Tokens that are enough for every answer."""
REQUESTS, AT_ONCE = 200, 12

Measured = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a check works with: the server, the recipe, its log, and the tokens of the texts of `prompts.texts`."""

    talk: Talk
    recipe: Recipe
    log: Callable[[], str]
    tokens: Mapping[str, Sequence[int]]
    stack: str = ""
    """The digest of the stack that it should have in it."""


def identifiers() -> tuple[tuple[str, ...], ...]:
    """Letters for each of many requests, no two alike."""
    chosen = random.Random(20)  # noqa: S311  (not for secrets)
    found: dict[tuple[str, ...], None] = {}
    while len(found) < REQUESTS:
        found[tuple(chosen.sample(expected_replies.LETTERS, 6))] = None
    return tuple(found)


def models(asked: Asked) -> Measured:
    """It lists its model, with its length."""
    page = asked.talk.get("/v1/models")
    served = [one.get("id") for one in page.get("data", [])]
    if served != [asked.talk.model]:
        raise Wrong(f"it lists {served}", request="GET /v1/models", answer=page, expected=[asked.talk.model])
    return {"context": float(page["data"][0]["max_model_len"])}


def version(asked: Asked) -> Measured:
    """The running process names the digest of this stack in its version, which its wheel has from there."""
    found = str(asked.talk.get("/version").get("version"))
    mark = f".g{asked.stack[:8]}"
    if f"{mark}." not in f"{found}.":
        raise Wrong(f"it runs {found}, not this stack", request="GET /version", answer=found, expected=f"…{mark}…")
    return {"version": found}


def chat(asked: Asked) -> Measured:
    """A whole answer: content, reasoning, how it ended, and every token of it."""
    got = _chat(asked)
    _whole(got, prompts.LETTERS)
    got.equal("the tokens of the answer", got.part("choices", 0, "token_ids"), asked.tokens[_said(prompts.LETTERS)])
    counted = len(asked.tokens[_asked(prompts.LETTERS)]), len(asked.tokens[_said(prompts.LETTERS)])
    got.equal("usage", (got.part("usage", "prompt_tokens"), got.part("usage", "completion_tokens")), counted)
    return {}


def chat_stream(asked: Asked) -> Measured:
    """The same as a stream, which has to say the same, in more than one piece."""
    prompt = prompts.echo(prompts.LETTERS)
    got = asked.talk.stream(CHAT, **_greedy(), **prompt.body, return_token_ids=True, stream_options={"include_usage": True})
    joined = _joined(got)
    got.equal("the role", joined["role"], "assistant")
    got.equal("the content", joined["content"], expected_replies.content(prompts.LETTERS))
    got.equal("the reasoning", joined["reasoning"], expected_replies.THOUGHT)
    got.equal("how it ended", joined["finish_reason"], ["stop"])
    got.equal("the tokens of the answer", joined["token_ids"], asked.tokens[_said(prompts.LETTERS)])
    got.equal(
        "usage", [event["usage"]["completion_tokens"] for event in got.events if event.get("usage")], [len(joined["token_ids"])]
    )
    if joined["pieces"] < len(prompts.LETTERS):
        raise got.wrong(f"the content comes in {joined['pieces']} pieces: that is no stream")
    return {"events": float(len(got.events))}


def responses(asked: Asked) -> Measured:
    """A whole answer of the Responses API: an item for the reasoning, one for the message, and as many tokens as there are."""
    got = asked.talk.ask(RESPONSES, input=prompts.asked(prompts.LETTERS), temperature=0, max_output_tokens=LONG)
    _response(got, got.answer)
    counted = len(asked.tokens[_asked(prompts.LETTERS)]), len(asked.tokens[_said(prompts.LETTERS)])
    got.equal("usage", (got.part("usage", "input_tokens"), got.part("usage", "output_tokens")), counted)
    return {}


def responses_stream(asked: Asked) -> Measured:
    """The same as a stream: what its deltas say together is what its last event holds."""
    got = asked.talk.stream(RESPONSES, input=prompts.asked(prompts.LETTERS), temperature=0, max_output_tokens=LONG)
    last = got.events[-1]
    got.equal("the last event", last.get("type"), "response.completed")
    _response(got, last["response"])
    for kind, text in (
        ("reasoning_text", expected_replies.THOUGHT),
        ("output_text", expected_replies.content(prompts.LETTERS)),
    ):
        deltas = [event["delta"] for event in got.events if event.get("type") == f"response.{kind}.delta"]
        got.equal(f"what the deltas of {kind} say", "".join(deltas), text)
        if len(deltas) < 2:
            raise got.wrong(f"{kind} comes in {len(deltas)} piece: that is no stream")
    return {"events": float(len(got.events))}


def tool_call(asked: Asked) -> Measured:
    """A call of a tool: its name and arguments, no content, and the reasoning before it."""
    got = _chat(asked, prompts.CHAT["tools"])
    (call,) = got.part("choices", 0, "message", "tool_calls") or [None]
    if call is None:
        raise got.wrong("no tool is called", expected_replies.CALL)
    got.equal("the tool", call["function"]["name"], expected_replies.TOOL)
    _arguments(got, call["function"]["arguments"])
    got.equal("the content", got.part("choices", 0, "message", "content"), None)
    got.equal("the reasoning", got.part("choices", 0, "message", "reasoning"), expected_replies.THOUGHT)
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "tool_calls")
    got.equal("the tokens of the answer", got.part("choices", 0, "token_ids"), asked.tokens["called"])
    return {}


def tool_call_stream(asked: Asked) -> Measured:
    """The same as a stream."""
    prompt = prompts.CHAT["tools"]
    got = asked.talk.stream(CHAT, **_greedy(), **prompt.body, return_token_ids=True)
    joined = _joined(got)
    got.equal("the tool", joined["name"], expected_replies.TOOL)
    _arguments(got, joined["arguments"])
    got.equal("the content", joined["content"], "")
    got.equal("how it ended", joined["finish_reason"], ["tool_calls"])
    return {}


def tool_call_responses(asked: Asked) -> Measured:
    """The same by the Responses API."""
    tools = [{"type": "function", **prompts.TOOL}]
    got = asked.talk.ask(RESPONSES, input=prompts.asked(prompts.LETTERS), tools=tools, temperature=0, max_output_tokens=LONG)
    calls = [item for item in got.part("output") if item.get("type") == "function_call"]
    got.equal("the tools", [item["name"] for item in calls], [expected_replies.TOOL])
    _arguments(got, calls[0]["arguments"])
    return {}


def ends_at_limit(asked: Asked) -> Measured:
    """An answer that `max_tokens` cuts within the reasoning: no content, what there is of the reasoning, and why it ended."""
    got = asked.talk.ask(CHAT, **prompts.echo(prompts.LETTERS).body, temperature=0, max_tokens=5)
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "length")
    got.equal("the content", got.part("choices", 0, "message", "content"), None)
    got.equal("the reasoning", got.part("choices", 0, "message", "reasoning"), " ".join(expected_replies.THOUGHT.split()[:2]))
    return {}


def ends_at_word(asked: Asked) -> Measured:
    """An answer that a stop word ends: nothing comes after it, and the answer says which word it was.

    vLLM leaves the word itself in gpt-oss's content (it parses tokens, not the text that was cut): that is taken either way.
    """
    word = f" {prompts.LETTERS[3]}"
    got = asked.talk.ask(CHAT, **prompts.echo(prompts.LETTERS).body, temperature=0, max_tokens=LONG, stop=[word])
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "stop")
    got.equal("what ended it", got.part("choices", 0, "stop_reason"), word)
    content = str(got.part("choices", 0, "message", "content"))
    got.equal("the content", content.removesuffix(word), expected_replies.content(prompts.LETTERS[:3]))
    return {}


def ends_at_token(asked: Asked) -> Measured:
    """Answers end with the control token that means so: a message with one, a call with another."""
    for prompt, token, why in ((prompts.echo(prompts.LETTERS), RETURN, "stop"), (prompts.CHAT["tools"], CALLED, "tool_calls")):
        got = _chat(asked, prompt)
        got.equal("the last token", (got.part("choices", 0, "token_ids") or [None])[-1], token)
        got.equal("how it ended", got.part("choices", 0, "finish_reason"), why)
    return {}


def prompt(name: str) -> Callable[[Asked], Measured]:
    """A check that a conversation reaches the model token by token as harmony writes it."""

    def check(asked: Asked) -> Measured:
        got = _chat(asked, prompts.CHAT[name])
        found, expected = list(got.part("prompt_token_ids") or []), list(asked.tokens[f"prompt {name}"])
        if found != expected:
            place = next((place for place, (one, two) in enumerate(zip(found, expected, strict=False)) if one != two), -1)
            raise got.wrong(
                f"the prompt is another from token {place} on: {found[max(place, 0) :][:12]} of {len(found)}",
                f"{expected[max(place, 0) :][:12]} of {len(expected)}: {prompts.CHAT[name].text}",
            )
        return {"tokens": float(len(found))}

    return check


def many_at_once(asked: Asked) -> Measured:
    """Many requests at once, half of them as streams: each gets its own identifier back, and its own tokens, all of them."""

    def one(number: int, letters: Sequence[str]) -> None:
        body = prompts.echo(letters).body
        name = f"own-{number}-{''.join(letters)}"
        own: Json = {**_greedy(), "return_token_ids": True, "request_id": name}
        got = asked.talk.stream(CHAT, **body, **own) if number % 2 else asked.talk.ask(CHAT, **body, **own)
        said_back = _joined(got) if number % 2 else _taken(got)
        got.equal("the identifier", said_back["id"], [f"chatcmpl-{name}"])
        got.equal("the content", said_back["content"], expected_replies.content(letters))
        got.equal("the tokens of the prompt", said_back["prompt_token_ids"], list(asked.tokens[_asked(letters)]))
        got.equal("the tokens of the answer", said_back["token_ids"], list(asked.tokens[_said(letters)]))

    return _at_once(asked, one)


def _at_once(asked: Asked, one: Callable[[int, Sequence[str]], None]) -> Measured:
    """Do something for each identifier, several at once; the first that is wrong stands for all."""
    wrong: list[Wrong] = []

    def taken(number: int, letters: Sequence[str]) -> None:
        with asked.talk.taken():
            one(number, letters)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(taken, number, letters) for number, letters in enumerate(identifiers())]:
            failed = future.exception()
            if isinstance(failed, Wrong):
                wrong.append(failed)
            elif failed is not None:
                raise failed
    if wrong:
        raise Wrong(f"{len(wrong)} of {REQUESTS} requests: {wrong[0].problem}", **wrong[0].told)
    return {"requests": float(REQUESTS), "at once": float(AT_ONCE)}


def backends(asked: Asked) -> Measured:
    """The log names the backends that the recipe expects."""
    log = asked.log()
    missing = [line for line in asked.recipe.log if line not in log]
    if missing:
        named = [line.strip() for line in log.splitlines() if "ackend" in line and "config:" not in line]
        raise Wrong(
            f"the log does not say {missing[0]!r}", answer="\n".join(named[-10:]) or "nothing of backends", expected=missing
        )
    return {"said": " / ".join(asked.recipe.log)}


def characters_of_arguments(asked: Asked) -> Measured:
    """Arguments of a call keep their characters beyond ASCII."""
    got = _chat(asked, prompts.CHAT["tools"])
    (call,) = got.part("choices", 0, "message", "tool_calls") or [None]
    if call is None or "ö" not in call["function"]["arguments"]:
        raise got.wrong("the arguments are spelled otherwise", expected_replies.ARGUMENTS)
    return {}


def null_tool_calls(asked: Asked) -> Measured:
    """A user's message with `tool_calls` null, as clients dump it, is a message."""
    message = {"role": "user", "content": prompts.asked(prompts.LETTERS), "tool_calls": None}
    _whole(asked.talk.ask(CHAT, messages=[message], **_greedy()), prompts.LETTERS)
    return {}


def lists_of_outputs(asked: Asked) -> Measured:
    """The output of a function can be a list of parts."""
    call = {
        "type": "function_call",
        "call_id": "call_1",
        "name": expected_replies.TOOL,
        "arguments": expected_replies.ARGUMENTS,
    }
    output = {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "12 °C"}]}
    user = {"role": "user", "content": prompts.asked(prompts.LETTERS)}
    _response(*_both(asked.talk.ask(RESPONSES, input=[user, call, output], temperature=0, max_output_tokens=LONG)))
    return {}


def counted(asked: Asked) -> Measured:
    """A whole answer, of whatever content: it says something, ends for a known reason, and as many tokens as it counts."""
    got = _chat(asked)
    tokens, usage = got.part("choices", 0, "token_ids") or [], got.part("usage")
    got.equal(
        "usage",
        (usage.get("prompt_tokens"), usage.get("completion_tokens")),
        (len(asked.tokens[_asked(prompts.LETTERS)]), len(tokens)),
    )
    message, why = got.part("choices", 0, "message"), got.part("choices", 0, "finish_reason")
    if not (message.get("content") or message.get("reasoning")) or why not in ("stop", "length"):
        raise got.wrong(f"the answer is empty, or ended by {why}")
    return {"tokens": float(len(tokens))}


def same_as_stream(asked: Asked) -> Measured:
    """Greedily, a stream says to the token what a whole answer does, in more than one piece."""
    got = _chat(asked)
    joined = _joined(asked.talk.stream(CHAT, **_greedy(), **prompts.echo(prompts.LETTERS).body, return_token_ids=True))
    message = got.part("choices", 0, "message")
    whole = [got.part("choices", 0, "token_ids"), message.get("content") or "", message.get("reasoning") or ""]
    got.equal("the stream", [joined["token_ids"], joined["content"], joined["reasoning"]], whole)
    return {"tokens": float(len(joined["token_ids"]))}


def own_prompts_at_once(asked: Asked) -> Measured:
    """Many requests at once: each gets its own identifier and prompt back, and as many tokens as it counts."""

    def one(number: int, letters: Sequence[str]) -> None:
        name = f"own-{number}-{''.join(letters)}"
        body = prompts.echo(letters).body
        got = asked.talk.ask(CHAT, **body, **_greedy(), return_token_ids=True, request_id=name)
        got.equal("the identifier", got.part("id"), f"chatcmpl-{name}")
        got.equal("the tokens of the prompt", got.part("prompt_token_ids"), list(asked.tokens[_asked(letters)]))
        got.equal("usage", got.part("usage", "completion_tokens"), len(got.part("choices", 0, "token_ids")))

    return _at_once(asked, one)


CHECKS: Mapping[str, Callable[[Asked], Measured]] = MappingProxyType(
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
GENERAL: Mapping[str, Callable[[Asked], Measured]] = MappingProxyType(
    {
        "models": models,
        "version": version,
        **{f"prompt/{name}": prompt(name) for name in prompts.CHAT},
        "answer/counted": counted,
        "answer/same-as-stream": same_as_stream,
        "own-prompts-at-once": own_prompts_at_once,
    }
)
"""What can be asked of any gpt-oss, whose answers are not known."""
EFFECTS: Mapping[str, Mapping[str, Callable[[Asked], Measured]]] = MappingProxyType(
    {
        "harmony": {
            "characters-of-arguments": characters_of_arguments,
            "null-tool-calls": null_tool_calls,
            "lists-of-outputs": lists_of_outputs,
        }
    }
)
"""What a series changes for clients of a CPU server, by its name: without the series, these fail."""


def _greedy() -> Json:
    return {"temperature": 0, "max_tokens": LONG}


def _asked(letters: Sequence[str]) -> str:
    return f"asked {' '.join(letters)}"


def _said(letters: Sequence[str]) -> str:
    return f"said {' '.join(letters)}"


def _chat(asked: Asked, prompt: prompts.Prompt | None = None) -> Exchange:
    body = (prompt or prompts.echo(prompts.LETTERS)).body
    return asked.talk.ask(CHAT, **_greedy(), **body, return_token_ids=True)


def _whole(got: Exchange, letters: Sequence[str]) -> None:
    """A chat answer to an echo."""
    got.equal("the content", got.part("choices", 0, "message", "content"), expected_replies.content(letters))
    got.equal("the reasoning", got.part("choices", 0, "message", "reasoning"), expected_replies.THOUGHT)
    got.equal("how it ended", got.part("choices", 0, "finish_reason"), "stop")
    got.equal("the calls", got.answer["choices"][0]["message"].get("tool_calls") or [], [])


def _response(got: Exchange, response: Json) -> None:
    """An answer of the Responses API to an echo."""
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
        raise got.wrong(f"the arguments are no JSON: {arguments!r}", expected_replies.ARGUMENTS) from failed
    got.equal("the arguments", found, json.loads(expected_replies.ARGUMENTS))


def _taken(got: Exchange) -> Json:
    """Of a whole chat answer what `_joined` finds in a stream."""
    return {
        "id": [got.part("id")],
        "content": got.part("choices", 0, "message", "content"),
        "prompt_token_ids": got.part("prompt_token_ids"),
        "token_ids": got.part("choices", 0, "token_ids"),
    }


def _joined(got: Exchange) -> Json:
    """What the events of a chat stream say together."""
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
