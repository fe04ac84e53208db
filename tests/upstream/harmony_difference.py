# SPDX-License-Identifier: Apache-2.0
"""Compare the results of an output with the series and without it, and name the class of each difference.

A difference has to be in one of the named classes. Where an output is well-formed and calls the request's tools, only spelling may
differ: arguments as the model wrote them, line breaks between the messages of a stream, a character that was cut off, and events
of empty items. Where it is not well-formed, the class names what is wrong with it, and the invariants say what has to hold.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import harmony_sequences
import harmony_vocabulary as vocabulary
from harmony_sequences import Sequence

EVERY = 10
"""Of this many sequences, three go through the Responses server, too. It takes longer than the parser."""
NAMES = ("f", "get-time.v2")
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|endoftext|>")
_HEADER = re.compile(
    r"(?: to=([^\s<]+)<\|channel\|>(?:analysis|commentary|final)(?: ?<\|constrain\|>\w+| \w+)?"
    r"|<\|channel\|>(?:analysis|commentary|final)(?: to=([^\s<]+)(?: ?<\|constrain\|>\w+| \w+)?| ?<\|constrain\|>\w+)?)"
)


def outcome(number: int) -> dict[str, Any]:
    """Read a sequence in all ways with the vLLM of this process."""
    client = importlib.import_module("harmony_client")
    one = harmony_sequences.sequence(number)
    request = client.CHAT if one.tools else client.NO_TOOLS
    found: dict[str, Any] = {}

    def read(name: str, way: Callable[[], Any]) -> None:
        try:
            found[name] = way()
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}

    def said(heard: Any) -> list[Any]:
        return [heard.reasoning, heard.content, [list(call) for call in heard.calls]]

    read("whole", lambda: said(client.whole(one.tokens, request)))
    read("streamed", lambda: said(client.streamed(one.tokens, one.sizes, request)))
    if number % EVERY < len(harmony_sequences.KINDS):
        tools = client.TOOLS if one.tools else []
        read("items", lambda: [list(client.summary(item)) for item in client.respond(one.tokens, None, tools).final])
        read("events", lambda: _events(client.respond(one.tokens, one.sizes, tools), client.summary))
    return found


def _events(got: Any, summary: Callable[[Any], tuple[str, ...]]) -> dict[str, Any]:
    def ids(items: list[Any]) -> list[str]:
        return [item["id"] if isinstance(item, dict) else item.id for item in items]

    return {
        "final": [list(summary(item)) for item in got.final],
        "done": [list(summary(item)) for item in got.done],
        "added at": got.added_at,
        "done at": got.done_at,
        "same ids": ids(got.final) == ids(got.done) == ids(got.added),
    }


@dataclass
class Written:
    """A sequence taken apart by its control tokens, without any knowledge of the parsers."""

    bodies: list[str] = field(default_factory=list)
    """The texts of the assistant's messages."""
    recipients: list[str] = field(default_factory=list)
    defects: set[str] = field(default_factory=set)
    kinds: list[str] = field(default_factory=list)
    """The headers of the messages, as text."""


def taken_apart(one: Sequence) -> Written:
    """Find messages and defects of a sequence."""
    written, header, body, started = Written(), [], None, False
    role_given = True

    def end_body(ended: bool) -> None:
        nonlocal body
        if body is not None:
            if not ended:
                written.defects.add("a message without an end")
            if body[0]:
                written.bodies.append(vocabulary.decode(body[1]))
        body = None

    for token in one.tokens:
        text = vocabulary.decode([token]) if vocabulary.ENCODING.is_special_token(token) else ""
        if text in ("<|start|>", "<|channel|>"):
            in_body = body is not None
            end_body(ended=False)
            if text == "<|start|>":
                if started:
                    written.defects.add("a header without a message" if header else "a malformed header")
                header, started, role_given = [], True, False
            else:
                if in_body:
                    header = []
                header.append(token)
        elif text in _ENDS:
            if body is not None and text == "<|endoftext|>":
                written.defects.add("a control token within a message")
            if body is None and (header or started or role_given):
                written.defects.add("a header without a message" if header or started else "tokens between messages")
            elif body is None:
                written.defects.add("tokens between messages")
            end_body(ended=True)
            header, started, role_given = [], False, False
        elif text == "<|message|>" and body is None:
            _read_header(written, vocabulary.decode(header), role_given, started)
            whose = vocabulary.decode(header).partition("<|channel|>")[0].strip()
            body, header, started, role_given = (not whose or whose.startswith("assistant"), []), [], False, False
        elif body is not None:
            if text:
                written.defects.add("a control token within a message")
            else:
                body[1].append(token)
        else:
            header.append(token)
    if body is not None:
        end_body(ended=True)
    elif header or started:
        written.defects.add("a header that was cut off")
    return written


def _read_header(written: Written, text: str, role_given: bool, started: bool) -> None:
    role = "" if role_given else "assistant"
    matched = _HEADER.fullmatch(text.removeprefix(role)) if text.startswith(role) and (started or role_given) else None
    written.kinds.append(text)
    if matched is None:
        other = not role_given and not text.startswith("assistant")
        written.defects.add("a message of another author" if other else "a malformed header")
    recipient = next(filter(None, matched.groups()), None) if matched else None
    if recipient is not None:
        written.recipients.append(recipient)


def _declared(one: Sequence, recipient: str) -> bool:
    return one.tools and recipient.removeprefix("functions.") in NAMES


def _respelt(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments))
    except ValueError:
        return arguments


def _spelling(what: str, base: Any, ours: Any) -> str | None:
    """Return the class of a difference of spelling only."""
    if what == "items" or "error" in base or "error" in ours:
        return None
    if what == "events":
        empty = {"", "{}"}
        more = [item for item in ours["done"] if item not in base["done"]]
        if base["final"] == ours["final"] and all(item[-1].rstrip("\ufffd") in empty for item in more):
            return "events of empty items"
        return None

    def texts(said: Any, change: Callable[[str], str]) -> Any:
        return [change(said[0]), change(said[1]), [[name, change(arguments)] for name, arguments in said[2]]]

    def with_arguments(said: Any) -> Any:
        return [*said[:2], [[name, _respelt(arguments)] for name, arguments in said[2]]]

    if with_arguments(base) == with_arguments(ours):
        return "arguments as they were written"
    if texts(base, lambda text: text.rstrip("\ufffd")) == texts(ours, lambda text: text.rstrip("\ufffd")):
        return "a character that was cut off"
    # The library's stream stops at bytes that do not make a character.
    stopped = base[2] == ours[2] and any("\ufffd" in text for text in ours[:2])
    if what == "streamed" and stopped and all(own.startswith(text) for text, own in zip(base[:2], ours[:2], strict=True)):
        return "a character that was cut off"
    without = [texts(said, lambda text: text.replace("\n", "").rstrip("\ufffd")) for said in (base, ours)]
    if what == "streamed" and without[0] == without[1]:
        return "line breaks between messages of a stream"
    return None


def meant(one: Sequence, what: str, base: Any, ours: Any) -> str | None:
    """Return the class of a difference; None if it is not meant."""
    spelling = _spelling(what, base, ours)
    if spelling is not None:
        return spelling
    written = taken_apart(one)
    if any(not _declared(one, recipient) for recipient in written.recipients):
        return "a recipient that is no tool" if one.tools else "a recipient without any tools"
    order = (
        "a message of another author",
        "a malformed header",
        "a header without a message",
        "a message without an end",
        "a control token within a message",
        "a header that was cut off",
        "tokens between messages",
    )
    return next((defect for defect in order if defect in written.defects), None)


def broken(one: Sequence, ours: dict[str, Any]) -> list[str]:
    """Return the invariants that an outcome breaks."""
    found = [f"{what}: {got['error']}" for what, got in ours.items() if "error" in got]
    if found:
        return found
    whole, streamed = ours["whole"], ours["streamed"]
    if whole != streamed:
        found.append("a stream says something else than a whole answer")
    shown = [whole[0], whole[1], *(part for call in whole[2] for part in call)]
    if any("<|" in text for text in shown):
        found.append("control tokens in a text")
    if any(body not in text for body in taken_apart(one).bodies for text in ["\0".join(shown)]):
        found.append("lost text")
    if not one.tools and whole[2]:
        found.append("a call without tools")
    if any(name not in NAMES for name, _ in whole[2]):
        found.append("a call of no tool")
    if "events" in ours:
        events, items = ours["events"], ours["items"]
        numbers = list(range(len(items)))
        if not (items == events["final"] == events["done"] and events["same ids"]):
            found.append("items of a stream differ")
        if not (events["added at"] == events["done at"] == numbers):
            found.append("indexes of events are out of step")
    return found
