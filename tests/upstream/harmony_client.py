# SPDX-License-Identifier: Apache-2.0
"""Drive upstream's parser, renderer and Responses server as a client of gpt-oss does.

The model's output is given as tokens: in one piece, or in chunks as in a stream, where speculative decoding brings several tokens
at once. Prompts are compared as the text that their tokens spell. The engine, the network and the model are not part of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import harmony_vocabulary as vocabulary
import support

with support.quiet():
    from openai.types.responses import ResponseFunctionToolCall
    from openai_harmony import Message, Role
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.responses.context import HarmonyContext
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
    from vllm.entrypoints.openai.responses.utils import extract_function_tool_names
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.parser.parser_manager import ParserManager
    from vllm.renderers.online_renderer import OnlineRenderer
    from vllm.sampling_params import SamplingParams

    with support.stubbed("mistral_common"):  # chat requests are looked at by a module of Mistral's tokenizer first
        import vllm.tokenizers.mistral  # noqa: F401

PARSER = ParserManager.get_parser(
    tool_parser_name="openai", reasoning_parser_name="openai_gptoss", enable_auto_tools=True, is_harmony=True
)
CHUNKS = [1, 2, 3, 7, 1000]
NAMES = ("f", "get-time.v2")
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}} for name in NAMES]
NO_SAMPLING = SamplingParams(max_tokens=10)


def chat_request(names: Sequence[str] = NAMES, **rest: Any) -> ChatCompletionRequest:
    """Make a chat request that declares some functions."""
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]
    messages = [{"role": "user", "content": "Hello"}]
    return ChatCompletionRequest(model="gpt-oss", messages=messages, **({"tools": tools} if tools else {}), **rest)


CHAT, NO_TOOLS = chat_request(), chat_request(())


# Chat completions


@dataclass
class Said:
    """An answer as a client gets it."""

    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


def whole(tokens: Sequence[int], request: ChatCompletionRequest = CHAT) -> Said:
    """Read an output that is not streamed."""
    parser = PARSER(vocabulary.Tokenizer(), request.tools)
    reasoning, content, calls = parser.parse("", request, model_output_token_ids=tokens)
    return Said(reasoning or "", content or "", [(call.name, call.arguments) for call in calls or []])


def streamed(tokens: Sequence[int], sizes: Iterable[int], request: ChatCompletionRequest = CHAT) -> Said:
    """Read an output that comes in chunks of these sizes."""
    parser, said, chunks = PARSER(vocabulary.Tokenizer(), request.tools), Said(), list(cut(tokens, sizes))
    for number, chunk in enumerate(chunks, 1):
        delta = parser.parse_delta("", chunk, request, finished=number == len(chunks))
        if delta is None:
            continue
        said.reasoning += delta.reasoning or ""
        said.content += delta.content or ""
        for call in delta.tool_calls or []:
            if call.function.name is not None:
                assert call.index == len(said.calls)
                said.calls.append((call.function.name, ""))
            name, arguments = said.calls[call.index]
            said.calls[call.index] = name, arguments + (call.function.arguments or "")
    return said


def cut(tokens: Sequence[int], sizes: Iterable[int]) -> Iterator[list[int]]:
    """Yield the tokens in chunks; an empty one, as the last of a stream can be, if there are none."""
    start = 0
    for size in sizes:
        if start >= len(tokens) and start:
            return
        yield list(tokens[start : start + size])
        start += size


def all_ways(text: str, request: ChatCompletionRequest = CHAT) -> list[Said]:
    """Read an answer in one piece, and streamed in chunks of several sizes."""
    tokens = vocabulary.encode(text)
    return [whole(tokens, request), *(streamed(tokens, itertools.repeat(size), request) for size in CHUNKS)]


# The Responses API


@dataclass
class Responded:
    """The items of a response and, of a stream, those of output_item.done and output_item.added with their indexes."""

    final: list[Any]
    done: list[Any] = field(default_factory=list)
    added: list[Any] = field(default_factory=list)
    done_at: list[int] = field(default_factory=list)
    added_at: list[int] = field(default_factory=list)


def respond(tokens: Sequence[int], sizes: Iterable[int] | None = None, tools: Sequence[dict[str, Any]] = TOOLS) -> Responded:
    """Let the Responses server read an output; streamed if there are sizes of chunks."""
    request = ResponsesRequest.model_validate(
        {"model": "gpt-oss", "input": "Hello", "tools": list(tools), "store": False, "stream": sizes is not None}
    )
    parser = PARSER(vocabulary.Tokenizer(), request.tools)
    context = HarmonyContext([], [], extract_function_tool_names(request.tools), response_parser=parser, request=request)
    server = OpenAIServingResponses.__new__(OpenAIServingResponses)
    server.use_harmony, server.tool_server, server.enable_per_request_metrics = True, None, False

    async def no_sessions(*_: Any) -> None:
        """Open no session: the tests have no tool server."""

    server._initialize_tool_sessions = no_sessions
    chunks = generated(context, list(cut(tokens, sizes if sizes is not None else [max(len(tokens), 1)])))
    arguments = (request, NO_SAMPLING, chunks, context, "gpt-oss", vocabulary.Tokenizer(), None)

    async def run() -> Responded:
        if sizes is None:
            return Responded((await server.responses_full_generator(*arguments)).output)
        events = [event async for event in server.responses_stream_generator(*arguments)]
        assert [event.sequence_number for event in events] == list(range(len(events)))
        added = [event for event in events if event.type == "response.output_item.added"]
        done = [event for event in events if event.type == "response.output_item.done"]
        return Responded(
            events[-1].response.output,
            [event.item for event in done],
            [event.item for event in added],
            [event.output_index for event in done],
            [event.output_index for event in added],
        )

    return asyncio.run(run())


async def generated(context: HarmonyContext, chunks: list[list[int]]) -> AsyncIterator[HarmonyContext]:
    """Yield the context after each of the engine's outputs."""
    for number, chunk in enumerate(chunks, 1):
        ended = number == len(chunks)
        output = CompletionOutput(0, "", chunk, None, None, finish_reason="stop" if ended else None)
        context.append_output(RequestOutput("id", None, [1], None, [output], ended))
        yield context


def summary(item: Any) -> tuple[str, ...]:
    """Return an item's type with its texts."""
    fields = item if isinstance(item, dict) else item.model_dump()
    match fields["type"]:
        case "function_call":
            return fields["type"], fields["name"], fields["arguments"]
        case "mcp_call":
            return fields["type"], fields["server_label"], fields["name"], fields["arguments"]
        case "code_interpreter_call":
            return fields["type"], fields["code"]
        case "web_search_call":
            return fields["type"], str(fields["action"])
    return fields["type"], "".join(part["text"] for part in fields["content"] or ())


def responded(text: str, size: int | None = None) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the items of the response, and those of the output_item.done events if it is streamed."""
    got = respond(vocabulary.encode(text), None if size is None else itertools.repeat(size))
    assert got.added_at == got.done_at
    return [summary(item) for item in got.final], [summary(item) for item in got.done]


# Prompts

USER = {"role": "user", "content": "Hello"}
LATER = {"role": "user", "content": "And then?"}


def renderer() -> OnlineRenderer:
    """Make the renderer for gpt-oss, without a parser, which would look at response formats only."""
    made = OnlineRenderer.__new__(OnlineRenderer)
    made.use_harmony, made.parser = True, None
    made.supports_browsing, made.supports_code_interpreter = False, False
    made.reasoning_effort_map = None  # asked for since v0.33.0
    made.renderer = SimpleNamespace(tokenizer=vocabulary.Tokenizer())
    made.model_config = SimpleNamespace(max_model_len=131072, hf_config=SimpleNamespace(model_type="gpt_oss"))
    return made


def chat(*messages: dict[str, Any]) -> str:
    """Return the prompt of a chat request, after the system message."""
    request = ChatCompletionRequest(model="gpt-oss", messages=list(messages))
    _, inputs = renderer()._make_request_with_harmony(request, should_include_tools=False)
    return after_system(inputs[0]["prompt_token_ids"])


def render(
    history: Sequence[Message] | None = None,
    calls: Sequence[ResponseFunctionToolCall] = (),
    instructions_before: str | None = None,
    **request: Any,
) -> Any:
    """Render a Responses request after a conversation that the server has stored."""
    # Before the patch, the renderer does not ask for the previous request's instructions.
    before = {} if instructions_before is None else {"previous_instructions": instructions_before}
    return renderer()._render_responses_with_harmony(
        ResponsesRequest.model_validate({"model": "gpt-oss", **request}),
        previous_messages=history,
        previous_response_outputs=list(calls),
        tool_server=None,
        **before,
    )


def responses(
    history: Sequence[Message] | None = None, calls: Sequence[ResponseFunctionToolCall] = (), **request: Any
) -> tuple[list[Message], str]:
    """Return the messages and the prompt of a Responses request."""
    result = render(history, calls, **request)
    assert hasattr(result, "engine_input"), result
    return result.messages, vocabulary.decode(result.engine_input["prompt_token_ids"])


def after_system(tokens: Sequence[int]) -> str:
    """Return the text of a prompt after its system message."""
    return vocabulary.decode(tokens).partition("<|end|>")[2].removesuffix("<|start|>assistant")


def stored(**request: Any) -> list[Message]:
    """Return a conversation as the server keeps it: a request, a thought and an answer."""
    messages, _ = responses(**request)
    thought = Message.from_role_and_content(Role.ASSISTANT, "Hm.").with_channel("analysis")
    return [*messages, thought, Message.from_role_and_content(Role.ASSISTANT, "Bonjour").with_channel("final")]
