# SPDX-License-Identifier: Apache-2.0
"""Read answers of the chat API, whole and streamed, into one form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stack.doctor.finding import wrong
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.events import Json, Stream
from stack.doctor.server.shown import SEE_LOG, shown

_REASONING = ("reasoning", "reasoning_content")
_CALLS = 20
"""Most calls of tools that are read from one answer."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool; `arguments` is the server's text, or another value if it is not a text. `names`: how often a name came."""

    name: str
    arguments: Any
    names: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the chat API.

    `ended`: the finish reason; `allowed`: `max_tokens` of the request; `tokens` and `prompt`: the server's counts of generated and of
    prompt tokens, None if it does not count; `ids`: the tokens of the prompt, if the server shows them; `logprobs`: as the server sent
    them; `stream`: the events, None for a whole answer, and `pieces`: how many of them had a text.
    """

    content: str
    reasoning: str
    calls: tuple[Call, ...]
    ended: str
    allowed: int
    seconds: float
    tokens: int | None = None
    prompt: int | None = None
    ids: tuple[Any, ...] = ()
    logprobs: Any = None
    stream: Stream | None = None
    pieces: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether `max_tokens` ended it."""
        return self.ended == "length"

    @property
    def text(self) -> str:
        """All that was generated, as far as it is text."""
        return self.reasoning + self.content + "".join(str(call.arguments) for call in self.calls)


def odd(problem: str, answer: object) -> NoAnswer:
    """Make the error of an answer that has another form than OpenAI's API prescribes."""
    return NoAnswer(wrong(f"{problem}: {shown(answer)}", SEE_LOG), status=200, spent=True)


def part(answer: object, *keys: str | int) -> Any:
    """Return a part of an answer, by keys and positions.

    Raises:
        NoAnswer: the answer has no such part.

    """
    value: Any = answer
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError):
            raise odd(f"the answer has no {'.'.join(map(str, keys))}", answer) from None
        except TypeError:
            raise odd(f"the answer has a wrong form at {'.'.join(map(str, keys))}", answer) from None
    return value


def count(value: object) -> int | None:
    """Return a count of tokens; None if it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None


def whole(value: Any, allowed: int, seconds: float) -> Answer:
    """Read an answer that came in one piece.

    Raises:
        NoAnswer: it has another form.

    """
    message = part(value, "choices", 0, "message")
    if not isinstance(message, dict):
        raise odd("the answer has a wrong form: its message is not an object", value)
    choice, usage = value["choices"][0], value.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    reasoning = next((message[name] for name in _REASONING if message.get(name)), None)
    ids = value.get("prompt_token_ids")
    return Answer(
        _text(message.get("content"), "content", value),
        _text(reasoning, "reasoning", value),
        _calls(message.get("tool_calls"), value),
        str(choice.get("finish_reason")),
        allowed,
        seconds,
        count(usage.get("completion_tokens")),
        count(usage.get("prompt_tokens")),
        tuple(ids) if isinstance(ids, list) else (),
        choice.get("logprobs"),
    )


def _text(value: object, name: str, answer: object) -> str:
    """Return a text of an answer; null is an empty one."""
    if value is not None and not isinstance(value, str):
        raise odd(f"{name} is not a text", answer)
    return value or ""


def _calls(value: object, answer: object) -> tuple[Call, ...]:
    """Read the calls of tools in a message."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise odd("tool_calls is not a list", answer)
    functions = [call.get("function") if isinstance(call, dict) else None for call in value[:_CALLS]]
    if not all(isinstance(function, dict) for function in functions):
        raise odd("a call of a tool has no function", answer)
    return tuple(Call(str(function.get("name")), function.get("arguments")) for function in functions if function)


def joined(stream: Stream, allowed: int, seconds: float) -> Answer:
    """Join the events of a stream into one answer.

    Raises:
        NoAnswer: an event has another form.

    """
    texts = _Texts()
    for event in stream.events:
        if event.get("choices") is not None:
            texts.add(event)
    usages = [event["usage"] for event in stream.events if isinstance(event.get("usage"), dict)]
    usage: Json = usages[-1] if usages else {}
    return Answer(
        "".join(texts.content),
        "".join(texts.reasoning),
        tuple(texts.calls.values()),
        texts.ended,
        allowed,
        seconds,
        count(usage.get("completion_tokens")),
        count(usage.get("prompt_tokens")),
        stream=stream,
        pieces=texts.pieces,
    )


class _Texts:
    """Collects the deltas of a stream."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, Call] = {}
        self.ended = "None"
        self.pieces = 0

    def add(self, event: Json) -> None:
        """Add the delta of an event."""
        choices = event["choices"]
        if not isinstance(choices, list):
            raise odd("choices of an event is not a list", event)
        for choice in choices[:1]:
            delta = choice.get("delta", {}) if isinstance(choice, dict) else None
            if not isinstance(delta, dict):
                raise odd("an event has a wrong form", event)
            self.content.append(_text(delta.get("content"), "content", event))
            reasoning = next((delta[name] for name in _REASONING if delta.get(name)), None)
            self.reasoning.append(_text(reasoning, "reasoning", event))
            self._call(delta.get("tool_calls") or (), event)
            self.pieces += any(delta.get(name) for name in ("content", *_REASONING, "tool_calls"))
            self.ended = str(choice.get("finish_reason") or self.ended)

    def _call(self, calls: Sequence[Any], event: Json) -> None:
        """Add parts of calls, as clients do: by their index, with texts joined."""
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                raise odd("a call of a tool has no function", event)
            index = call.get("index", 0)
            before = self.calls.get(index if isinstance(index, int) else 0, Call("", "", 0))
            if len(self.calls) >= _CALLS and before.names == 0:
                continue
            arguments = function.get("arguments")
            text = arguments if isinstance(arguments, str) or arguments is None else None
            if text is None and arguments is not None:
                raise odd("the arguments of a call are not a text", event)
            name = function.get("name")
            self.calls[index if isinstance(index, int) else 0] = Call(
                before.name + (name if isinstance(name, str) else ""),
                before.arguments + (text or ""),
                before.names + bool(name),
            )
