# SPDX-License-Identifier: Apache-2.0
"""All questions, in the order in which they are asked: what is cheap and explains the rest comes first."""

from stack.doctor.server import basics, chat, context, long_answer, metrics, responses, tools
from stack.doctor.server.interview import Question

_CALL = "has its name and its arguments"
QUESTIONS = (
    Question("health", "/health", "it answers /health", basics.health),
    Question("model", "/v1/models: its model and the length of a request", "it serves a model", basics.model),
    Question("metrics", "/metrics: other requests, KV cache, preemptions, graphs", "/metrics shows no fault", metrics.look),
    Question("content", "the capital of France", "`content` has the answer, and it is Paris", chat.content, 256),
    Question(
        "stream", "the same as a stream", "a stream ends as it should, with the text of the whole answer", chat.streamed, 160
    ),
    Question("system-message", "the same with a system message", "a system message arrives", chat.system_message, 160),
    Question("tool-call", "a forced call of a tool", f"a forced call of a tool {_CALL}", tools.whole, 96),
    Question("tool-call-stream", "the same call as a stream", f"a call of a tool as a stream {_CALL}", tools.streamed, 96),
    Question("responses", "the capital of France by /v1/responses", "/v1/responses answers", responses.whole, 96),
    Question(
        "responses-stream", "the same by its events", "the events of /v1/responses have the same text", responses.events, 96
    ),
    Question(
        "repetition",
        "250 words about the sky, as a stream",
        "a longer answer does not repeat itself",
        long_answer.repetition,
        320,
    ),
    Question("speed", "the speed of that stream", "it is as fast as expected", long_answer.speed),
    Question(
        "logprobs", "the capital of France with log-probabilities", "log-probabilities are numbers: no NaN", chat.logprobs, 8
    ),
    Question(
        "context-8k",
        "a number at the beginning of a prompt of 8,192 tokens",
        "it reads 8,192 tokens",
        context.question(context.SHORT),
        2 * context.LEAST,
    ),
    Question(
        "context-64k",
        "a number at the beginning of a prompt of 65,536 tokens",
        "it reads 65,536 tokens",
        context.question(context.LONG),
        context.LEAST,
    ),
)
