# SPDX-License-Identifier: Apache-2.0
"""Conversations as clients send them, each with the harmony text that the model must get, written out in full.

The format follows OpenAI's description of harmony (cookbook, "OpenAI harmony response format"). It leaves two things open. The header
of a call that is sent back follows gpt-oss's own chat template, and a tool's result follows harmony's library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stack.validation.model import expected_replies

DATE = "2025-01-01"
"""The date that our recipes set for the server; another server's texts have its own in this place."""
LETTERS = ("q", "x", "m", "b", "t", "k")
TOOL = {
    "name": expected_replies.TOOL,
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": TOOL}]
_NAMESPACE = f"""\
# Tools

## functions

namespace functions {{

// The weather of a city.
type {expected_replies.TOOL} = (_: {{
city: string,
}}) => any;

}} // namespace functions"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation: the body of its request without the model, and the text that the model must get."""

    body: Mapping[str, Any]
    text: str


def request_text(letters: Sequence[str]) -> str:
    """Write a message that asks the model to echo letters."""
    return " ".join((expected_replies.ASKED, *letters))


def _system(effort: str = "medium", *, tools: bool = False) -> str:
    calls = "\nCalls to these tools must go to the commentary channel: 'functions'." if tools else ""
    return (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        f"Knowledge cutoff: 2024-06\nCurrent date: {DATE}\n\nReasoning: {effort}\n\n"
        f"# Valid channels: analysis, commentary, final. Channel must be included for every message.{calls}<|end|>"
    )


def _developer(*parts: str) -> str:
    content = "\n\n".join(parts)
    return f"<|start|>developer<|message|>{content}<|end|>"


def _instructions(text: str) -> str:
    return f"# Instructions\n\n{text}"


def _user(text: str) -> str:
    return f"<|start|>user<|message|>{text}<|end|>"


_NEXT = "<|start|>assistant"
_ASKED = request_text(LETTERS)
_CALLED = {
    "id": "call_1",
    "type": "function",
    "function": {"name": expected_replies.TOOL, "arguments": expected_replies.ARGUMENTS},
}

CHAT: Mapping[str, Prompt] = MappingProxyType(
    {
        "system-message": Prompt(
            {"messages": [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": _ASKED}]},
            _system() + _developer(_instructions("Answer briefly.")) + _user(_ASKED) + _NEXT,
        ),
        "developer-message": Prompt(
            {
                "messages": [{"role": "developer", "content": "Sei kurz: 短く."}, {"role": "user", "content": _ASKED}],
                "reasoning_effort": "high",
            },
            _system("high") + _developer(_instructions("Sei kurz: 短く.")) + _user(_ASKED) + _NEXT,
        ),
        "turns": Prompt(
            {
                "messages": [
                    {"role": "user", "content": "Good morning"},
                    {"role": "assistant", "content": "Good morning to you"},
                    {"role": "user", "content": _ASKED},
                ],
                "reasoning_effort": "low",
            },
            _system("low")
            + _user("Good morning")
            + "<|start|>assistant<|channel|>final<|message|>Good morning to you<|end|>"
            + _user(_ASKED)
            + _NEXT,
        ),
        "tools": Prompt(
            {
                "messages": [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": _ASKED}],
                "tools": TOOLS,
            },
            _system(tools=True) + _developer(_instructions("Answer briefly."), _NAMESPACE) + _user(_ASKED) + _NEXT,
        ),
        "tool-result": Prompt(
            {
                "messages": [
                    {"role": "user", "content": _ASKED},
                    {"role": "assistant", "content": None, "tool_calls": [_CALLED]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "12 °C"},
                ],
                "tools": TOOLS,
            },
            _system(tools=True)
            + _developer(_NAMESPACE)
            + _user(_ASKED)
            + f"<|start|>assistant to=functions.{expected_replies.TOOL}<|channel|>commentary json<|message|>{expected_replies.ARGUMENTS}<|call|>"
            + f"<|start|>functions.{expected_replies.TOOL}<|channel|>commentary to=assistant<|message|>12 °C<|end|>"
            + _NEXT,
        ),
    }
)


def echo(letters: Sequence[str]) -> Prompt:
    """Make a conversation of a single user message that asks to echo letters."""
    message = request_text(letters)
    return Prompt({"messages": [{"role": "user", "content": message}]}, _system() + _user(message) + _NEXT)


def on(date: str, text: str) -> str:
    """Return a text as a server has it whose system message has that date."""
    return text.replace(f"Current date: {DATE}\n", f"Current date: {date}\n")


def texts(identifiers: Sequence[Sequence[str]], date: str = DATE) -> dict[str, str]:
    """Collect all texts whose tokens are needed: prompts, answers, the scored text, and an echo of each identifier."""
    texts = {f"prompt {name}": prompt.text for name, prompt in CHAT.items()}
    texts |= {f"asked {' '.join(letters)}": echo(letters).text for letters in (LETTERS, *identifiers)}
    texts |= {f"said {' '.join(letters)}": expected_replies.echo(letters) for letters in (LETTERS, *identifiers)}
    texts |= {"called": expected_replies.call(), "scored": expected_replies.TEXT}
    return {name: on(date, text) for name, text in texts.items()}
