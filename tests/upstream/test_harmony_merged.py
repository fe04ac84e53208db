# SPDX-License-Identifier: Apache-2.0
"""The series harmony: what early forks of vLLM mended for gpt-oss, and upstream has mended since.

Nothing of ours is left of these points; the tests stay, so that a bump that loses one of them is seen. They know how
vLLM 0.17.1 spelled the same things, and fail there.
"""

import importlib
import os
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import harmony_vocabulary as vocabulary
import pytest
import support
from packaging.requirements import Requirement

TREE = Path(os.environ["STACK_PROOF_TREE"])
# What is imported beside the code under test; all but the first by vLLM 0.17.1 only.
UNINSTALLED = ("mistral_common", "gguf", "diskcache", "ijson")


def imported(*names: str) -> ModuleType:
    """The first of some modules that this release has."""
    name = next(name for name in names if (TREE / name.replace(".", "/")).with_suffix(".py").exists())
    with support.quiet(), support.stubbed(*UNINSTALLED):
        importlib.import_module("vllm.tokenizers.mistral")  # chat requests go by it, and import it when they do
        return importlib.import_module(name)


MERGED = {
    "https://github.com/vllm-project/vllm/pull/44330": [
        "test_instructions_stand_in_the_developer_message",
        "test_the_variable_puts_them_into_the_system_message",
    ],
    "https://github.com/vllm-project/vllm/pull/47062": ["test_an_answer_trapped_in_its_header_is_returned"],
    "https://github.com/vllm-project/vllm/issues/46464": ["test_a_stray_token_is_no_error"],
    "https://github.com/vllm-project/vllm/issues/54615": ["test_the_vocabulary_needs_no_download"],
}
FAILS_ON = "v0.17.1"

pytestmark = pytest.mark.filterwarnings("ignore")

USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "weather", "description": "now", "parameters": {"type": "object"}}}


# What the model says


parsing = imported("vllm.parser.harmony", "vllm.entrypoints.openai.parser.harmony_utils")
chat = imported("vllm.entrypoints.openai.chat_completion.protocol")


def read(text: str) -> tuple[str | None, str | None]:
    """The reasoning and the content of an answer."""
    tokens = vocabulary.encode(text)
    if hasattr(parsing, "parse_chat_output"):
        reasoning, content, _ = parsing.parse_chat_output(tokens)
        return reasoning, content
    manager = imported("vllm.parser.parser_manager").ParserManager
    parser = manager.get_parser(tool_parser_name="openai", reasoning_parser_name="openai_gptoss", is_harmony=True)
    request = chat.ChatCompletionRequest(model="gpt-oss", messages=[USER])
    reasoning, content, _ = parser(vocabulary.Tokenizer()).parse("", request, model_output_token_ids=tokens)
    return reasoning, content


def test_an_answer_is_read() -> None:
    thought = "<|channel|>analysis<|message|>Easy.<|end|>"
    assert read(thought + "<|start|>assistant<|channel|>final<|message|>Bonjour<|return|>") == ("Easy.", "Bonjour")


def test_reasoning_that_was_cut_off_is_reasoning() -> None:
    assert read("<|channel|>analysis<|message|>The user wants") == ("The user wants", None)


def test_an_answer_trapped_in_its_header_is_returned() -> None:
    """Without <|message|> the answer is part of the header; it was dropped."""
    thought = "<|channel|>analysis<|message|>Easy.<|end|>"
    reasoning, content = read(thought + '<|start|>assistant<|channel|>final {"answer": "oui"}<|return|>')
    assert reasoning == "Easy."
    assert content is not None
    assert '{"answer": "oui"}' in content


@pytest.mark.parametrize("stray", ["<|return|>", "<|call|>", " of"])
def test_a_stray_token_is_no_error(stray: str) -> None:
    """After the end of a message a token other than <|start|> made the request fail."""
    assert read(f"<|channel|>final<|message|>Bonjour<|end|>{stray}") == (None, "Bonjour")


def test_the_vocabulary_needs_no_download() -> None:
    """The package that vLLM asks for has the vocabulary in it."""
    lines = [line.partition("#")[0].strip() for line in (TREE / "requirements/common.txt").read_text().splitlines()]
    asked = [Requirement(line) for line in lines if re.match(r"\w+-harmony\b", line)]
    assert [requirement.name for requirement in asked] == ["oss-harmony"]
    assert vocabulary.decode(vocabulary.encode("Bonjour<|return|>")) == "Bonjour<|return|>"


# What the model is told

rendering = imported("vllm.renderers.online_renderer", "vllm.entrypoints.openai.chat_completion.serving")


def ask(*messages: dict[str, Any], **rest: Any) -> list[dict[str, Any]]:
    """The harmony messages that a chat request's prompt is rendered from."""
    owner = getattr(rendering, "OnlineRenderer", None) or rendering.OpenAIServingChat
    # The map of efforts is asked for since v0.33.0.
    tools = {"supports_browsing": False, "supports_code_interpreter": False}
    server = SimpleNamespace(**tools, renderer=None, reasoning_effort_map=None)
    request = chat.ChatCompletionRequest(model="gpt-oss", messages=list(messages), **rest)
    prompt, _ = owner._make_request_with_harmony(server, request, True)
    return [message.to_dict() for message in prompt]


@pytest.fixture(autouse=True)
def _day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "2026-03-01")


def test_a_question_is_asked() -> None:
    prompt = ask(USER)
    assert [message["role"] for message in prompt] == ["system", "user"]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_instructions_stand_in_the_developer_message(role: str, tools: list[dict[str, Any]] | None) -> None:
    """They came as a second system message, after the developer message that lists the tools."""
    prompt = ask({"role": role, "content": "Speak French."}, USER, tools=tools)
    assert [message["role"] for message in prompt] == ["system", "developer", "user"]
    assert prompt[1]["content"][0]["instructions"] == "Speak French."
    assert "French" not in str(prompt[0])


def test_the_variable_puts_them_into_the_system_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had no effect on chat requests."""
    monkeypatch.setenv("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS", "1")
    prompt = ask({"role": "system", "content": "Speak French."}, USER)
    assert [message["role"] for message in prompt] == ["system", "user"]
    assert prompt[0]["content"][0]["model_identity"].endswith("\nSpeak French.")
