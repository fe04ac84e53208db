# SPDX-License-Identifier: Apache-2.0
"""The series harmony: what a chat request for gpt-oss becomes before it is rendered to tokens.

The request, the server's method and openai-harmony's messages are the real ones; rendering needs a vocabulary that
openai-harmony downloads, so it is replaced and the messages that reach it are looked at. Later releases have the method
in other modules.
"""

import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import support

with support.quiet():
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

INSTRUCTIONS = "vllm/bring-a-client-s-instructions-to-where-harmony-wants-them.patch"

PROVES = {
    INSTRUCTIONS: [
        "test_instructions_stand_in_the_developer_message",
        "test_instructions_and_tools_share_the_developer_message",
        "test_the_variable_puts_them_into_the_system_message",
    ],
}

pytestmark = pytest.mark.filterwarnings("ignore")

TOOL = {"type": "function", "function": {"name": "weather", "description": "now", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "Hello"}

PLACES = {
    "vllm.renderers.online_renderer": "OnlineRenderer",
    "vllm.entrypoints.serve.render.serving": "OpenAIServingRender",
    "vllm.entrypoints.openai.chat_completion.serving": "OpenAIServingChat",
}

Prompt = list[dict[str, Any]]
Ask = Callable[..., Prompt]


def making_the_request() -> tuple[ModuleType, Callable[..., Any]]:
    """The module and the method that make a chat request into harmony messages."""
    for name, owner in PLACES.items():
        if (support.TREE / name.replace(".", "/")).with_suffix(".py").exists():
            module = importlib.import_module(name)
            if method := getattr(getattr(module, owner, None), "_make_request_with_harmony", None):
                return module, method
    raise LookupError("no release had it anywhere else")


@pytest.fixture(name="ask")
def _ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The harmony messages that a chat request's prompt is rendered from."""
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "2026-03-01")
    module, method = making_the_request()
    monkeypatch.setattr(module, "render_for_completion", lambda messages: [])
    server = SimpleNamespace(
        supports_browsing=False, supports_code_interpreter=False, renderer=None, reasoning_effort_map=None
    )

    def ask(*messages: dict[str, Any], tools_are_included: bool = True, **rest: Any) -> Prompt:
        request = ChatCompletionRequest(model="gpt-oss", messages=list(messages), **rest)
        prompt, _ = method(server, request, tools_are_included)
        return [message.to_dict() for message in prompt]

    return ask


def roles(prompt: Prompt) -> list[str]:
    return [message["role"] for message in prompt]


def instructions(prompt: Prompt) -> str | None:
    (developer,) = [message for message in prompt if message["role"] == "developer"]
    (content,) = developer["content"]
    return content.get("instructions")


def text(message: dict[str, Any]) -> str:
    (content,) = message["content"]
    return content["text"]


def identity(prompt: Prompt) -> str:
    return prompt[0]["content"][0]["model_identity"]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("content", ["Speak French.", [{"type": "text", "text": "Speak "}, {"type": "text", "text": "French."}]])
def test_instructions_stand_in_the_developer_message(ask: Ask, role: str, content: Any) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: one system message, one developer message, in this order."""
    prompt = ask({"role": role, "content": content}, USER)
    assert roles(prompt) == ["system", "developer", "user"]
    assert instructions(prompt) == "Speak French."
    assert "French" not in identity(prompt)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_and_tools_share_the_developer_message(ask: Ask, role: str) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: with tools there is still one of each."""
    prompt = ask({"role": role, "content": "Speak French."}, USER, tools=[TOOL])
    assert roles(prompt) == ["system", "developer", "user"]
    assert instructions(prompt) == "Speak French."
    assert [tool["name"] for tool in prompt[1]["content"][0]["tools"]["functions"]["tools"]] == ["weather"]


def test_leading_messages_are_joined(ask: Ask) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: several messages, empty ones among them."""
    prompt = ask(
        {"role": "system", "content": "Speak French."},
        {"role": "system", "content": ""},
        {"role": "developer", "content": "Be brief."},
        USER,
    )
    assert roles(prompt) == ["system", "developer", "user"]
    assert instructions(prompt).split() == ["Speak", "French.", "Be", "brief."]


@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_the_variable_puts_them_into_the_system_message(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, tools: list[dict[str, Any]] | None
) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: the variable means for chat what it means for responses."""
    monkeypatch.setenv("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS", "1")
    prompt = ask({"role": "system", "content": "Speak French."}, USER, tools=tools)
    assert roles(prompt) == (["system", "developer", "user"] if tools else ["system", "user"])
    assert identity(prompt).endswith("\nSpeak French.")
    if tools:
        assert instructions(prompt) is None


@pytest.mark.parametrize("leading", [[], [{"role": "system", "content": ""}]])
def test_without_instructions_there_is_no_developer_message(ask: Ask, leading: Prompt) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: nothing is added where there is nothing to say."""
    prompt = ask(*leading, USER)
    assert roles(prompt)[:1] == ["system"]
    assert "developer" not in roles(prompt)
    assert text(prompt[-1]) == "Hello"


def test_tools_that_are_not_included_leave_the_instructions(ask: Ask) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: tool_choice none hides the tools only."""
    prompt = ask({"role": "system", "content": "Speak French."}, USER, tools=[TOOL], tools_are_included=False)
    assert roles(prompt)[:2] == ["system", "developer"]
    assert not prompt[1]["content"][0].get("tools")


def test_later_messages_stay_where_they_are(ask: Ask) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: the middle of a conversation is not rearranged."""
    prompt = ask(
        USER,
        {"role": "assistant", "content": "Bonjour"},
        {"role": "developer", "content": "Be brief."},
        USER,
    )
    assert roles(prompt) == ["system", "user", "assistant", "developer", "user"]
    assert text(prompt[3]) == "Be brief."


def test_a_conversation_of_instructions_only(ask: Ask) -> None:
    """bring-a-client-s-instructions-to-where-harmony-wants-them.patch: nothing is lost where nobody asks anything."""
    prompt = ask({"role": "system", "content": "Speak French."})
    assert "French" in str(prompt)
