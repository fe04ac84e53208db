# SPDX-License-Identifier: Apache-2.0
"""Ask the chat API what a user would: a short question, whole and as a stream, with log-probabilities, and with a system message."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stack.doctor.finding import Found, fine, note, unknown, wrong
from stack.doctor.server import judge
from stack.doctor.server.answers import Answer, odd
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.interview import CAPITAL, REFUSED, Interview
from stack.doctor.server.shown import SEE_LOG, hidden, seen_in, shown

ENOUGH = 512
"""Tokens of a short answer, with its reasoning."""
_SCORED = 8
"""Tokens of the answer with log-probabilities."""
_IMPOSSIBLE = -9000.0
"""A chosen token cannot be that improbable; servers write -9999 in place of NaN and of minus infinity."""
_CITY = "paris"
_MARK = "ZEBRA"
SYSTEM = (
    f"You always end every answer with the word {_MARK} in capitals. This rule holds for every answer, however short it is."
)
_START, _SYSTEM_ROLE = 200006, 17360
"""Harmony's tokens for the begin of a message, and for the system role."""
_PROXY = "most often a proxy that cuts or collects streams (nginx: proxy_buffering off, a longer proxy_read_timeout), or an engine that died: "


def content(interview: Interview) -> Iterator[Found]:
    """Ask for the capital of France, as one piece."""
    interview.plain = interview.ask(CAPITAL, ENOUGH)
    yield from judged(interview.plain)


def judged(answer: Answer) -> Iterator[Found]:
    """Judge an answer to CAPITAL."""
    if garbled := tuple(judge.garbled(answer.content, answer.reasoning)):
        yield from garbled
    elif answer.content.strip():
        yield from _capital(answer)
    elif answer.is_cut:
        yield cut(answer)
    elif answer.reasoning:
        yield seen_in(
            wrong(
                f"`content` is null and `reasoning` has all of the answer (finish_reason {shown(answer.ended, 20)}): the reasoning parser "
                f"is another model's: {shown(answer.reasoning)}",
                "--reasoning-parser openai_gptoss for gpt-oss, none for models that do not reason",
            ),
            "vllm-project/vllm#17349",
            "QwenLM/Qwen3#1297",
        )
    else:
        tokens = "no" if answer.tokens is None else answer.tokens
        yield seen_in(
            wrong(
                f"`content` is null, and {tokens} tokens are counted (finish_reason {shown(answer.ended, 20)})",
                f"most often a parser that drops all of it, or an engine that ends at once: {SEE_LOG}",
            ),
            "vllm-project/vllm#41902",
        )


def cut(answer: Answer) -> Found:
    """Report an answer that ended within its reasoning."""
    return note(
        f"`content` is null since the answer was cut off at {answer.allowed} tokens while it was still reasoning (finish_reason length)",
        'ask with a larger max_tokens, or with "reasoning_effort": "low"',
    )


def _capital(answer: Answer) -> Iterator[Found]:
    if _CITY in answer.content.casefold():
        return
    if answer.is_cut:
        yield unknown(
            f"whether it knows the capital of France: the answer was cut off at {answer.allowed} tokens: {shown(answer.content)}"
        )
        return
    found = wrong(
        f"asked for the capital of France, it does not name Paris: {shown(answer.content)}",
        "most often wrong kernels for this quantization, a damaged checkpoint or another model's chat template: compare with another "
        "backend (--linear-backend, --moe-backend, --attention-backend), and see stack doctor --log FILE",
    )
    yield seen_in(found, "vllm-project/vllm#49886", "NVIDIA/dgx-spark-playbooks#76")


def logprobs(interview: Interview) -> Iterator[Found]:
    """Ask for log-probabilities, which show NaN before the text does."""
    try:
        answer = interview.ask(CAPITAL, _SCORED, logprobs=True, top_logprobs=1)
    except NoAnswer as failed:
        yield _unscored(interview, failed)
        return
    if not isinstance(answer.logprobs, dict) or not answer.logprobs.get("content"):
        yield note("it sends no log-probabilities although they were asked for")
        return
    entries = answer.logprobs["content"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise odd("logprobs has a wrong form", answer.logprobs)
    bad = [entry for entry in entries if not _is_possible(entry.get("logprob"))]
    if bad:
        what = f"the log-probability of {len(bad)} of {len(entries)} chosen tokens is {_value(bad[0])}, which stands for NaN in the logits"
        yield seen_in(wrong(f"{what} (token {shown(bad[0].get('token'), 20)})", judge.NAN_FIX), "vllm-project/vllm#13035")


def _unscored(interview: Interview, failed: NoAnswer) -> Found:
    if failed.status in REFUSED:
        return note(f"it refuses to send log-probabilities: {failed.found.what}")
    if failed.status is None or failed.status < 500 or interview.plain is None:
        raise failed
    what = f"asked for log-probabilities {failed.found.what}, while it answers without them: NaN cannot be written as JSON"
    return seen_in(wrong(what, judge.NAN_FIX), "vllm-project/vllm#13035", "sgl-project/sglang#5984")


def _is_possible(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > _IMPOSSIBLE


def _value(entry: dict[str, Any]) -> str:
    value = entry.get("logprob")
    return "null" if value is None else shown(value, 20)


def streamed(interview: Interview) -> Iterator[Found]:
    """Ask for the capital of France as a stream, and compare it with the whole answer.

    The text of a broken stream is not judged: what it lacks may have been lost with the stream.
    """
    answer = interview.stream(CAPITAL, ENOUGH)
    faults = tuple(fault(answer)) or tuple(judged(answer))
    yield from faults
    if not faults and (plain := interview.plain) is not None and not (plain.is_cut or answer.is_cut):
        yield from _compared(plain.content, answer.content)


def fault(answer: Answer) -> Iterator[Found]:
    """Report a stream that does not end as it should."""
    stream = answer.stream
    assert stream is not None
    if stream.error is not None:
        what = f"the stream ends in an error event: {stream.error}"
        yield wrong(what, f"most often the engine failed while it generated, or a parser did: {SEE_LOG}")
    elif stream.overrun:
        what = f"the stream goes on after max_tokens={answer.allowed}: reading stopped after {len(stream.events)} events: {shown(answer.text)}"
        yield wrong(what, "most often a proxy or server that ignores max_tokens; a client would pay for all of it")
    elif stream.late is not None:
        yield replace(stream.late, what=f"the stream does not end: {stream.late.what.removeprefix('it does not answer: ')}")
    elif stream.broken:
        yield wrong(f"the stream breaks off after {len(stream.events)} events: {shown(stream.broken)}", f"{_PROXY}{SEE_LOG}")
    elif not stream.done:
        after = f"after {len(stream.events)} events and finish_reason {shown(answer.ended, 20)}"
        yield wrong(f"the stream breaks off without [DONE], {after}: {shown(answer.text)}", f"{_PROXY}{SEE_LOG}")


def _compared(plain: str, stream: str) -> Iterator[Found]:
    """Compare the same answer, whole and as a stream, at temperature 0."""
    if plain == stream:
        return
    if plain.split() == stream.split():
        what = f"the stream's text differs from the whole answer's in blanks: {shown(repr(hidden(stream)), 60)}, {shown(repr(hidden(plain)), 60)}"
        yield note(what, "most often a parser that strips only one of both")
        return
    yield note(
        f"the stream's text differs from the whole answer's at temperature 0: {shown(stream, 60)} / {shown(plain, 60)}",
        "with other requests in the same batch the last bits of the sums differ, so it may be chance: ask again while nobody else does "
        "(VLLM_BATCH_INVARIANT=1 excludes it); if it stays, the stream's parser loses or adds text",
    )


def system_message(interview: Interview) -> Iterator[Found]:
    """Ask the same with a system message: it has to arrive in the prompt, and to change the answer."""
    plain = interview.plain
    try:
        with_it = interview.ask(CAPITAL, ENOUGH, SYSTEM, return_token_ids=True)
    except NoAnswer as failed:
        if failed.status not in REFUSED or "system" not in failed.found.what.lower():
            raise
        yield note(f"it refuses a system message: {failed.found.what}", "put its text into the first message of the user")
        return
    if (systems := _systems(with_it.ids)) > 1:
        yield wrong(
            f"the prompt has {systems} system messages: the client's stands beside harmony's own, and the model was never taught that",
            "use the pinned vLLM, which makes it harmony's developer message",
        )
    elif plain is not None and (more := _more(plain, with_it)) < len(SYSTEM.split()) // 2:
        yield wrong(
            f"a system message of {len(SYSTEM.split())} words adds {more} tokens to the prompt: it does not arrive",
            "see the chat template",
        )
    elif garbled := tuple(judge.garbled(with_it.content)):
        yield from (replace(found, what=f"with a system message {found.what}") for found in garbled)
    else:
        yield _obeyed(plain, with_it)


def _obeyed(plain: Answer | None, with_it: Answer) -> Found:
    if _MARK in with_it.content and (plain is None or _MARK not in plain.content):
        return fine("a system message changes the answer as it should")
    if not with_it.content and with_it.is_cut:
        return unknown(f"whether a system message is followed: the answer was cut off at {with_it.allowed} tokens of reasoning")
    if plain is not None and (plain.content, plain.reasoning) == (with_it.content, with_it.reasoning):
        return note("a system message arrives and changes nothing: a small model may do so, gpt-oss does not")
    return note(f"a system message arrives, and is not followed: {shown(with_it.content)}")


def _more(plain: Answer, with_it: Answer) -> int:
    """Return how many tokens a system message adds to the prompt."""
    if plain.prompt is None or with_it.prompt is None:
        raise odd("the answer has no usage.prompt_tokens", with_it.content)
    return with_it.prompt - plain.prompt


def _systems(ids: tuple[Any, ...]) -> int:
    """Count the system messages in a harmony prompt."""
    return sum(pair == (_START, _SYSTEM_ROLE) for pair in itertools.pairwise(ids))
