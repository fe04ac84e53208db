# SPDX-License-Identifier: Apache-2.0
"""Ask for a forced call of a tool, whole and as a stream: its name and its arguments have to be usable."""

import json
import re
from collections.abc import Iterator

from stack.doctor.finding import Found, note, unknown, wrong
from stack.doctor.server import judge
from stack.doctor.server.answers import Answer, Call
from stack.doctor.server.chat import fault
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.interview import REFUSED, Interview
from stack.doctor.server.shown import seen_in, shown

ENOUGH = 256
"""Tokens of a call, with the reasoning before it."""
NAME = "get_weather"
_KEY = "city"
_QUESTION = f"What is the weather in Paris now? Call {NAME}."
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": NAME,
            "description": "Get the weather of a city.",
            "parameters": {"type": "object", "properties": {_KEY: {"type": "string"}}, "required": [_KEY]},
        },
    }
]
_FORCED = {"type": "function", "function": {"name": NAME}}
_AS_TEXT = re.compile(rf"{NAME}|<tool_call>|<\|?function|\[TOOL_CALLS\]")
_PARSER = "most often the tool parser is missing or another model's: --enable-auto-tool-choice --tool-call-parser of this model"


def whole(interview: Interview) -> Iterator[Found]:
    """Ask for a call as one piece."""
    try:
        answer = interview.ask(_QUESTION, ENOUGH, tools=_TOOLS, tool_choice=_FORCED)
    except NoAnswer as failed:
        yield _refused(failed)
        return
    yield from _judged(interview, answer)


def streamed(interview: Interview) -> Iterator[Found]:
    """Ask for a call as a stream."""
    try:
        answer = interview.stream(_QUESTION, ENOUGH, tools=_TOOLS, tool_choice=_FORCED)
    except NoAnswer as failed:
        yield _refused(failed)
        return
    yield from (tuple(fault(answer)) or _judged(interview, answer))


def _refused(failed: NoAnswer) -> Found:
    """Report a server that offers no tools; that is not a fault."""
    jinja = "jinja" in failed.found.what or "Unsupported param: tools" in failed.found.what
    if failed.status not in REFUSED and not jinja:
        raise failed
    fix = "start llama-server with --jinja" if jinja else f"for clients that need tools: {_PARSER.partition(': ')[2]}"
    return note(f"it refuses a call of a tool: {failed.found.what}", fix)


def _judged(interview: Interview, answer: Answer) -> Iterator[Found]:
    if not answer.calls:
        yield next(judge.garbled(answer.content, answer.reasoning), None) or _none(interview, answer)
        return
    call = answer.calls[0]
    if call.names > 1:
        what = f"the stream sends the tool's name {call.names} times, so that clients join it to {shown(call.name, 40)}"
        yield seen_in(
            wrong(what, f"{_PARSER}; a newer server"), "NousResearch/hermes-agent#8259", "weicj/vLLM-2080Ti-Definitive#127"
        )
    elif call.name != NAME:
        what = f"it calls {shown(call.name, 60) or 'a tool without a name'}, where {NAME} was forced"
        yield seen_in(wrong(what, f"{_PARSER}; for gpt-oss openai, and a newer server"), "vllm-project/vllm#32587")
    else:
        yield from _arguments(answer, call)


def _none(interview: Interview, answer: Answer) -> Found:
    if answer.is_cut and not _AS_TEXT.search(answer.content):
        return unknown(f"whether it calls a tool: the answer was cut off at {answer.allowed} tokens")
    if _AS_TEXT.search(answer.content):
        return wrong(f"the call of a tool is in `content`, as text: {shown(answer.content)}", _PARSER)
    said = shown(answer.content or answer.reasoning) or "an empty answer"
    if not interview.forces:
        what = f"the model did not call a tool, and this server does not force calls: {said}"
        return note(what, "start llama-server with --jinja, and use a model that was taught to call tools")
    return wrong(f"a forced call of a tool does not come (finish_reason {shown(answer.ended, 20)}): {said}", _PARSER)


def _arguments(answer: Answer, call: Call) -> Iterator[Found]:
    if not isinstance(call.arguments, str):
        what = f"the arguments of a call are {type(call.arguments).__name__}, not a text with JSON: {shown(call.arguments)}"
        yield wrong(what, "clients of OpenAI's API parse a text: most often a proxy in between translates another API")
        return
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        value = None
    if answer.is_cut and not isinstance(value, dict):
        yield unknown(f"whether the arguments of a call are JSON: the answer was cut off at {answer.allowed} tokens")
    elif not isinstance(value, dict):
        what = f"the arguments of a call are not a JSON object: {shown(call.arguments)}"
        yield seen_in(wrong(what, f"{_PARSER}; a newer server, whose parser joins the pieces right"), "vllm-project/vllm#11279")
    elif not isinstance(value.get(_KEY), str):
        what = f"the arguments of a call do not have the text `{_KEY}` that the tool requires: {shown(call.arguments)}"
        yield wrong(what, f"{_PARSER}, or the server does not constrain the arguments to the tool's schema")
