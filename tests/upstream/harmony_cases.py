# SPDX-License-Identifier: Apache-2.0
"""Conversations with gpt-oss that a review found to go wrong, on the bare release or with an earlier version of the series."""

import itertools
import json
from typing import Any

import harmony_client
import harmony_vocabulary as vocabulary
import pytest
import support
from harmony_client import CHUNKS, LATER, NO_TOOLS, TOOLS, USER, Said, all_ways, chat, chat_request, render, respond, responses

with support.quiet():
    from openai_harmony import Message, Role
    from vllm.entrypoints.openai.responses.harmony import harmony_to_response_output
    from vllm.exceptions import VLLMValidationError

THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|start|>assistant<|channel|>final<|message|>Oui<|return|>"


def items(text: str, tools: list[dict[str, Any]] = TOOLS) -> list[tuple[str, ...]]:
    """Return the items of a response, which are the same streamed and whole and announced once with the indexes of the list."""
    tokens = vocabulary.encode(text)
    expected = [harmony_client.summary(item) for item in respond(tokens, None, tools).final]
    for size in CHUNKS:
        got = respond(tokens, itertools.repeat(size), tools)
        assert [harmony_client.summary(item) for item in got.final] == expected
        assert [harmony_client.summary(item) for item in got.done] == expected
        assert got.added_at == got.done_at == list(range(len(expected)))
    return expected


# Case 1


@pytest.mark.parametrize(
    "arguments", [r'{"a": "\ud83d"}', '{"a": 1, "a": 2}', '{"a": 1e400}', '{ "a":\n1}', '{"a": "東京"}', '{"a": ', ""]
)
def test_arguments_stay_as_the_model_wrote_them(arguments: str) -> None:
    text = f"{THOUGHT}<|channel|>commentary to=functions.f json<|message|>{arguments}<|call|>"
    for said in all_ways(text):
        assert said == Said("Hm.", "", [("f", arguments)])
        json.dumps(said.calls, ensure_ascii=False).encode()
    assert items(text)[-1] == ("function_call", "f", arguments)


# Cases 2 to 4


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>analysis finalizing",
        "<|channel|>analysis|final",
        "<|channel|>analysiscommentary",
        "<|channel|>final analysis",
        "<|channel|>thought",
        "",
    ],
)
def test_doubtful_channels_are_no_answer(header: str) -> None:
    text = f"{header}<|message|>secret<|end|>{FINAL}"
    for said in all_ways(text):
        assert said == Said("secret", "Oui")
    assert items(text) == [("reasoning", "secret"), ("message", "Oui")]


def test_json_stays_the_answer() -> None:
    text = '<|message|>We must answer as JSON.<|end|><|start|>assistant<|channel|>final<|message|>{"answer": 4}<|return|>'
    for said in all_ways(text):
        assert said == Said("We must answer as JSON.", '{"answer": 4}')


@pytest.mark.parametrize("header", ["final goto=1", "final", "final words"])
def test_a_final_message_is_clean(header: str) -> None:
    for said in all_ways(f"{THOUGHT}<|channel|>{header}<|message|>Oui<|return|>"):
        assert said == Said("Hm.", "Oui")


# Cases 5 and 6

DEVELOPER = {"role": "developer", "content": "Be brief."}


@pytest.mark.parametrize("tools", [[], TOOLS])
def test_developer_messages_survive_new_instructions(tools: list[dict[str, Any]]) -> None:
    history = harmony_client.stored(input=[DEVELOPER, USER], tools=tools)
    messages, prompt = responses(history, input="And then?", instructions="Speak Dutch.", tools=tools)
    assert prompt.count("Be brief.") == prompt.count("Speak Dutch.") == 1
    _, later = responses(messages, instructions_before="Speak Dutch.", input="And now?", tools=tools)
    assert later.count("Be brief.") == 1
    assert "Dutch" not in later


def test_answers_in_the_history_stay_answers() -> None:
    """Two turns without a user message between them, the second with a call."""
    begun, _ = responses(input="Hello", tools=TOOLS)
    said = [("analysis", "Old."), ("final", "Bonjour"), ("analysis", "New."), ("commentary", "{}")]
    history = [*begun, *(Message.from_role_and_content(Role.ASSISTANT, text).with_channel(where) for where, text in said)]
    history[-1] = history[-1].with_recipient("functions.f")
    call = harmony_client.ResponseFunctionToolCall(type="function_call", call_id="c1", name="f", arguments="{}")
    _, prompt = responses(
        history, [call], input=[{"type": "function_call_output", "call_id": "c1", "output": "21"}], tools=TOOLS
    )
    assert "<|channel|>final<|message|>Bonjour<|end|>" in prompt
    assert "Old." not in prompt
    assert "New." in prompt


@pytest.mark.parametrize(("phase", "channel"), [("commentary", "commentary"), ("final_answer", "final")])
def test_the_phase_of_a_message_is_its_channel(phase: str, channel: str) -> None:
    """OpenAI's client has this field to tell preambles from answers."""
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    (item,) = harmony_to_response_output(
        Message.from_role_and_content(Role.ASSISTANT, "Oui").with_channel(channel), frozenset()
    )
    assert item.phase == phase
    messages, _ = responses(input=[USER, {"role": "assistant", "content": "Oui", "phase": phase}, call])
    assert messages[-2].channel == channel


# Cases 7 to 9

RECIPIENTS = [
    "<|channel|>final to=ms_output json",
    "<|channel|>commentary to=mcp code",
    " to=user<|channel|>final",
    "<|channel|>commentary to=python code",
    "<|channel|>commentary to=container.exec json",
    "<|channel|>commentary to=assistant",
    "<|channel|>commentary to=functions.",
]


@pytest.mark.parametrize("header", [*RECIPIENTS, "<|channel|>commentary to=functions.f json"])
def test_without_tools_nothing_is_a_call(header: str) -> None:
    text = f"{THOUGHT}{header}<|message|>{{}}<|call|>"
    for request in (NO_TOOLS, chat_request(tool_choice="none")):
        for said in all_ways(text, request):
            assert said == Said("Hm.", "{}")
    assert items(text, []) == [("reasoning", "Hm."), ("message", "{}")]


@pytest.mark.parametrize("header", RECIPIENTS)
def test_recipients_that_are_no_tools_are_text(header: str) -> None:
    text = f"{THOUGHT}{header}<|message|>{{}}<|call|>"
    for said in all_ways(text):
        assert said == Said("Hm.", "{}")
    assert items(text) == [("reasoning", "Hm."), ("message", "{}")]


@pytest.mark.parametrize("recipient", ["functions.functions.f", "functions.f?", "tools.f", "function.f"])
def test_a_misspelt_tool_is_that_tool(recipient: str) -> None:
    text = f"{THOUGHT}<|channel|>commentary to={recipient} json<|message|>{{}}<|call|>"
    for said in all_ways(text):
        assert said == Said("Hm.", "", [("f", "{}")])
    assert items(text)[-1] == ("function_call", "f", "{}")


@pytest.mark.parametrize(
    ("author", "said"),
    [
        ("functions.f", Said("", "", [("f", '{"a":1}')])),  # a call without its recipient
        ("functions.g", Said()),
        ("functions.f to=assistant", Said()),
        ("user", Said()),
    ],
)
def test_other_authors_are_the_same_streamed_and_whole(author: str, said: Said) -> None:
    text = f'<|start|>{author}<|channel|>commentary json<|message|>{{"a":1}}<|call|>'
    for each in all_ways(text):
        assert each == said
    assert items(text) == [("function_call", *call) for call in said.calls]


# Cases 10 and 11


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("<|channel|>analysis", "reasoning"),
        ("<|channel|>commentary", "message"),
        ("<|channel|>final", "message"),
        ("<|channel|>commentary to=functions.f json", "function_call"),
        ("<|channel|>commentary to=weather.now json", "mcp_call"),
    ],
)
def test_empty_items_are_announced(header: str, kind: str) -> None:
    tools = [*TOOLS, {"type": "mcp", "server_label": "weather", "server_url": "http://localhost"}]
    first, second = items(f"{header}<|message|><|end|>{FINAL}", tools)
    assert first[0] == kind
    assert second == ("message", "Oui")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ('to=browser.search<|message|>{"query": "a"}', "web_search_call"),
        ("to=browser.search<|message|>[1]", "mcp_call"),
        ("to=browser.search<|message|>{", "web_search_call"),
        ("to=browser.foo<|message|>{}", "mcp_call"),
        ('to=browser.open<|message|>{"id": 5}', "web_search_call"),
        ('to=browser.find<|message|>{"pattern": 5}', "web_search_call"),
    ],
)
def test_browser_calls_end_no_request(call: str, kind: str) -> None:
    text = f"<|channel|>analysis {call}<|call|>{FINAL}"
    first, second = items(text, [{"type": "web_search_preview"}])
    assert first[0] == kind
    assert second == ("message", "Oui")


# Cases 12 to 16


@pytest.mark.parametrize(
    ("recipient", "arguments"),
    [
        ("browser.open", '{"cursor":2,"id":5}'),
        ("browser.search", '{"query": "a", "topn": 3}'),
        ("a.b.c", "{}"),
        ("weather.weather", "{}"),
        ("weather", "{}"),
    ],
)
def test_calls_come_back_as_they_were(recipient: str, arguments: str) -> None:
    call = Message.from_role_and_content(Role.ASSISTANT, arguments).with_channel("commentary").with_recipient(recipient)
    made = [json.loads(item.model_dump_json()) for item in harmony_to_response_output(call, frozenset())]
    messages, _ = responses(input=[USER, *made])
    assert (messages[-1].recipient, messages[-1].content[0].text) == (recipient, arguments)


def test_an_id_that_is_used_twice() -> None:
    words: list[dict[str, Any]] = [USER]
    for name in ("f", "g"):
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
        words += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": name},
        ]
    prompt = chat(*words)
    for name in ("f", "g"):
        assert f"<|start|>functions.{name}<|channel|>commentary to=assistant<|message|>{name}<|end|>" in prompt


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_null_text_is_empty(role: str) -> None:
    parts = [{"type": "text", "text": None}, {"type": "text", "text": "Bonjour"}]
    assert chat(USER, {"role": role, "content": parts}, LATER) == chat(USER, {"role": role, "content": "Bonjour"}, LATER)


@pytest.mark.parametrize("end", ["<|call|>", "<|return|>", "<|end|>", ""])
@pytest.mark.parametrize("header", ["<|channel|>commentary to=functions.f", "<|channel|>final__HANDOFF__", "<|channel|>final"])
def test_headers_without_message_show_no_control_tokens(header: str, end: str) -> None:
    for said in all_ways(f"{THOUGHT}{header}{end}"):
        assert "<|" not in str(said)
        assert said.reasoning == "Hm."
        assert said.calls == ([("f", "")] if "functions.f" in header and end else [])


SHELL = {"type": "exec", "command": ["ls"], "env": {}}
FUNCTION = {"type": "function", "name": "f", "parameters": {}}


@pytest.mark.parametrize(
    "item",
    [
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": "x"},
        {"type": "local_shell_call", "id": "i", "call_id": "c", "status": "completed", "action": SHELL},
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_1"},
        {"type": "mcp_list_tools", "id": "i", "server_label": "s", "tools": []},
        {"type": "namespace", "name": "n", "description": "d", "tools": [FUNCTION]},
        {"type": "custom", "name": "c"},
        {"type": "local_shell"},
    ],
)
def test_errors_name_items_and_tools(item: dict[str, Any]) -> None:
    kind = item.get("type", "item_reference")
    if kind in ("namespace", "custom", "local_shell"):
        with pytest.raises(VLLMValidationError, match=rf"tools\[1\]: tool type '{kind}'"):
            render(input="Hello", tools=[FUNCTION, item])
        return
    result = render(input=[USER, item])
    if kind == "mcp_list_tools":
        assert len(result.messages) == 2
    else:
        assert result.error.code == 400
        assert result.error.message.startswith(f"input[1]: Unknown input type: {kind}")
