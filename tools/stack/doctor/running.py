# SPDX-License-Identifier: Apache-2.0
"""Check a running server by its answers.

No answer is trusted: a missing or late one, or one of another form, is a finding.
"""

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from stack.base import bounded_http
from stack.deploy import checkpoints
from stack.deploy.recipes import Recipe
from stack.doctor.finding import Check, Finding, Found, Severity, fine, note, unknown, wrong
from stack.doctor.loops import loop
from stack.validation.serve.client import Exchange, Talk, Wrong

CHAT = "/v1/chat/completions"
_HEALTH = 10.0
_QUESTION = "What is the capital of France? Answer with its name only."
_MARK = "ZEBRA"
_SYSTEM = (
    f"You always end every answer with the word {_MARK} in capitals. This rule holds for every answer, however short it is."
)
_LONG = "Explain in about 250 words why the sky is blue, in plain sentences without lists."
_ENOUGH, _LONGER, _MEASURED = 512, 700, 128
_START, _SYSTEM_ROLE = 200006, 17360
"""Harmony's tokens for the begin of a message, and for the system role."""
_SPOKEN = ("content", "reasoning", "reasoning_content")
_LEAST = 8
"""Least number of tokens for a measurement of speed."""
_SLOW, _BEYOND = 0.75, 1.05
"""Something is wrong below this share of the expected speed, or above this share of the limit."""
_CONTROL = re.compile(r"<\|(?:start|end|channel|message|return|call|constrain)\|>")


@dataclass(frozen=True, slots=True)
class ServerSubject:
    """A server, and what is expected of it: the recipe's speeds, and the tokens per second that the memory allows at most."""

    talk: Talk
    recipe: Recipe | None = None
    limit: float | None = None


def look(
    url: str, name: str | None, recipe: Recipe | None, limit: float | None, *, key: str | None, longest: float
) -> Iterator[Finding]:
    """Check a server by sending it requests.

    Args:
        url: its address, without /v1.
        name: of the model; by default the only one.
        recipe: the recipe by which it was started.
        limit: tokens per second that the hardware's memory allows.
        key: the API key.
        longest: seconds for all answers together.

    """
    until = time.monotonic() + longest
    subject = ServerSubject(Talk(url, name or "", longest, key, until), recipe, limit)
    silent = False
    for check in CHECKS:
        if silent or time.monotonic() >= until:
            why = "the server does not answer" if silent else f"the {longest:g} seconds of --timeout are over"
            yield Finding(check.name, url, unknown(f"not asked: {why}"))
            continue
        results = _results(check, subject)
        yield from (Finding(check.name, url, result) for result in results)
        bad = any(result.severity in (Severity.WRONG, Severity.UNKNOWN) for result in results)
        silent = bad and (check.name in ("health", "model") or time.monotonic() >= until)
        if check.name == "model" and not silent and not subject.talk.model:
            names = _served(subject)
            silent = not names
            subject = replace(subject, talk=replace(subject.talk, model=names[0] if names else ""))


def _results(check: Check[ServerSubject], subject: ServerSubject) -> tuple[Found, ...]:
    try:
        with subject.talk.taken():
            return tuple(check.look(subject)) or (fine(check.fine),)
    except Wrong as failed:
        answer = failed.details.get("answer")
        shown = f" ({_short(answer)})" if answer else ""
        if re.search(r"answers 40[13]", failed.problem):
            return (unknown(f"{failed.problem}: it wants a key", "set VLLM_API_KEY to it"),)
        return (wrong(f"{failed.problem}{shown}", "see the server's log: stack doctor --log FILE"),)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= 120 else f"{text[:117]}…"


def _health(subject: ServerSubject) -> Iterator[Found]:
    talk = subject.talk
    try:
        with bounded_http.asked(f"{talk.url}/health", None, min(_HEALTH, talk.patience), talk.key) as answer:
            status = answer.status_code
    except bounded_http.BROKEN as failed:
        yield wrong(f"the server does not answer ({bounded_http.why(failed)})", "start the server, or correct --url")
        return
    if status != 200:
        yield wrong(
            f"/health answers {status}: its engine is dead, or it is not a vLLM server",
            "see the server's log: stack doctor --log FILE",
        )


def _served(subject: ServerSubject) -> list[str]:
    """Return the names of its models; empty if this request fails."""
    try:
        with subject.talk.taken():
            return [str(model["id"]) for model in subject.talk.get("/v1/models")["data"]]
    except Wrong:
        return []


def _model(subject: ServerSubject) -> Iterator[Found]:
    page = subject.talk.get("/v1/models")["data"]
    names = [str(model["id"]) for model in page]
    wanted = subject.talk.model
    if not names:
        yield wrong("it serves no model", "see the server's log: stack doctor --log FILE")
    elif wanted and wanted not in names:
        yield wrong(f"it serves {_short(', '.join(names))}, not {wanted}", "name one of them with --model")
    elif not wanted and len(names) > 1:
        yield wrong(f"it serves {_short(', '.join(names))}", "name one of them with --model")
    else:
        model = next(entry for entry in page if not wanted or entry["id"] == wanted)
        expected = _repository(subject.recipe)
        if expected is not None and expected not in (str(model["id"]), str(model.get("root"))):
            yield note(
                f"it serves {_short(model['id'])}, recipe {subject.recipe.name if subject.recipe else ''} is for {expected}"
            )
        else:
            yield fine(f"it serves {_short(model['id'])}, up to {_short(model.get('max_model_len'))} tokens")


def _repository(recipe: Recipe | None) -> str | None:
    if recipe is None or recipe.model not in checkpoints.known():
        return None
    return checkpoints.load(recipe.model).repository


def _asked(subject: ServerSubject, content: str, tokens: int, system: str | None = None, **more: Any) -> Exchange:
    messages = [{"role": "system", "content": system}] if system is not None else []
    return subject.talk.ask(
        CHAT, messages=[*messages, {"role": "user", "content": content}], temperature=0, max_tokens=tokens, **more
    )


def _texts(got: Exchange) -> tuple[str, str, str]:
    """Return content, reasoning, and the finish reason; null becomes an empty text."""
    message = got.part("choices", 0, "message")
    content, reasoning = message.get("content") or "", message.get("reasoning") or message.get("reasoning_content") or ""
    if not isinstance(content, str) or not isinstance(reasoning, str):
        raise got.wrong("content or reasoning is not a text")
    return content, reasoning, str(got.part("choices", 0, "finish_reason"))


def _content(subject: ServerSubject) -> Iterator[Found]:
    got = _asked(subject, _QUESTION, _ENOUGH)
    content, reasoning, ended = _texts(got)
    counted = got.answer.get("usage", {}).get("completion_tokens")
    if content:
        yield from _garbled(content)
    elif ended == "length":
        yield note(
            f"`content` is null since the answer was cut off at {_ENOUGH} tokens while it was still reasoning (finish_reason length)",
            'ask with a larger max_tokens, or with "reasoning_effort": "low"',
        )
    elif reasoning:
        yield wrong(
            f"`content` is null and `reasoning` has all of the answer (finish_reason {_short(ended)}): the reasoning parser is another model's",
            "--reasoning-parser openai_gptoss for gpt-oss, none for models that do not reason",
        )
    else:
        yield wrong(
            f"`content` is null, and {_short(counted)} tokens are counted (finish_reason {_short(ended)})",
            "see the server's log: stack doctor --log FILE",
        )


def _garbled(content: str) -> Iterator[Found]:
    if found := _CONTROL.search(content):
        yield wrong(
            f"an answer has control tokens in it, {found[0]}: {_short(content)}",
            "see which MoE and linear backends the log names",
        )
    elif repeated := loop(content):
        yield wrong(f"an answer repeats itself: {_short(repeated)}", "see which MoE and linear backends the log names")


def _system(subject: ServerSubject) -> Iterator[Found]:
    without, with_it = (_asked(subject, _QUESTION, _ENOUGH, system, return_token_ids=True) for system in (None, _SYSTEM))
    counts = [got.part("usage", "prompt_tokens") for got in (without, with_it)]
    more = counts[1] - counts[0]
    content, reasoning, _ = _texts(with_it)
    plain, _, _ = _texts(without)
    garbled = tuple(_garbled(content))
    ids = with_it.answer.get("prompt_token_ids")
    systems = _systems(ids) if isinstance(ids, list) else 0
    if systems > 1:
        yield wrong(
            f"the prompt has {systems} system messages: the client's stands beside harmony's own, and the model was never taught that",
            "use the pinned vLLM, which makes it harmony's developer message",
        )
    elif more < len(_SYSTEM.split()) // 2:
        yield wrong(
            f"a system message of {len(_SYSTEM.split())} words adds {_short(more)} tokens to the prompt: it does not arrive",
            "see the chat template",
        )
    elif garbled:
        yield from (replace(result, what=f"with a system message {result.what}") for result in garbled)
    elif _MARK in content and _MARK not in plain:
        yield fine("a system message changes the answer as it should")
    elif (content, reasoning) == _texts(without)[:2]:
        yield note("a system message arrives and changes nothing: a small model may do so, gpt-oss does not")
    else:
        yield note(f"a system message arrives, and is not followed: {_short(content)}")


def _systems(ids: list[Any]) -> int:
    """Count the system messages in a harmony prompt."""
    return sum(pair == (_START, _SYSTEM_ROLE) for pair in itertools.pairwise(ids))


def _repetition(subject: ServerSubject) -> Iterator[Found]:
    content, reasoning, _ = _texts(_asked(subject, _LONG, _LONGER))
    for name, text in (("content", content), ("reasoning", reasoning)):
        if repeated := loop(text):
            yield wrong(
                f"a longer answer's {name} repeats itself without end: {_short(repeated)}",
                "a wrong kernel corrupts tokens: see the selected backends in the log, and take variables out that nothing reads "
                "(stack doctor --script, --log)",
            )


def _speed(subject: ServerSubject) -> Iterator[Found]:
    got = subject.talk.stream(
        CHAT,
        messages=[{"role": "user", "content": _LONG}],
        temperature=0,
        max_tokens=_MEASURED,
        stream_options={"include_usage": True},
        return_token_ids=True,
    )
    speed = _decoded(got)
    if speed is None:
        yield unknown("how fast it is: the stream has too few tokens that could be counted, or comes at once")
        return
    expected = _expected(subject.recipe)
    limit = f", the memory allows {subject.limit:.0f}" if subject.limit is not None else ""
    speed_text = f"{speed:.1f} tokens a second, measured once"
    if subject.limit is not None and speed > subject.limit * _BEYOND:
        yield unknown(f"{speed_text}{limit}: its counts are wrong, or it speculates")
    elif expected is None:
        yield fine(f"{speed_text}{limit}")
    elif speed < expected[0] * _SLOW:
        yield wrong(
            f"{speed_text}, {expected[0]:g} are expected ({expected[1]}){limit}",
            "see whether graphs are on and which backends run (stack doctor --log), and whether others ask it at the same time",
        )
    else:
        yield fine(f"{speed_text}, {expected[0]:g} are expected ({expected[1]}){limit}")


def _decoded(got: Exchange) -> float | None:
    """Measure tokens per second after the first event that has any: by their ids as vLLM sends them, else by the final count.

    None if there are too few tokens.
    """
    sent = [
        (at, choice) for event, at in zip(got.events, got.times, strict=True) for choice in (event.get("choices") or ())[:1]
    ]
    counts = [(at, len(choice["token_ids"])) for at, choice in sent if choice.get("token_ids")]
    if not counts:
        # The first event has only the role, and some tokens appear in no event: count from the first text.
        counted = [event["usage"]["completion_tokens"] for event in got.events if event.get("usage")]
        spoken = [at for at, choice in sent if any((choice.get("delta") or {}).get(name) for name in _SPOKEN)]
        counts = [(spoken[0], 1), (sent[-1][0], int(counted[-1]) - 1)] if counted and spoken else []
    tokens = sum(count for _, count in counts[1:])
    if tokens < _LEAST or counts[-1][0] <= counts[0][0]:
        return None
    return tokens / (counts[-1][0] - counts[0][0])


def _expected(recipe: Recipe | None) -> tuple[float, str] | None:
    """Return the expected speed of one request after a short prompt, and its source."""
    if recipe is None or not recipe.speeds:
        return None
    least = min(recipe.speeds, key=lambda speed: speed.context)
    return least.decode, least.source


CHECKS: tuple[Check[ServerSubject], ...] = (
    Check("health", "it answers /health", _health),
    Check("model", "it serves a model", _model),
    Check("content", "`content` has the answer", _content),
    Check("system-message", "a system message changes the answer as it should", _system),
    Check("repetition", "a longer answer does not repeat itself", _repetition),
    Check("speed", "it is as fast as expected", _speed),
)
