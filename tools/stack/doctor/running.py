# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a running server: what only its answers show.

Every answer is taken for what somebody says who may be wrong: one that is missing, late, or of another form is a finding.
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
"""Harmony's tokens that begin a message, and that say that it is the system's."""
_SPOKEN = ("content", "reasoning", "reasoning_content")
_LEAST = 8
"""Tokens that say how fast it is."""
_SLOW, _BEYOND = 0.75, 1.05
"""Shares of the expected speed below which, and of the limit above which something is wrong."""
_CONTROL = re.compile(r"<\|(?:start|end|channel|message|return|call|constrain)\|>")


@dataclass(frozen=True, slots=True)
class Subject:
    """A server, and what is expected of it: the recipe's speeds, and the tokens a second that the memory allows at most."""

    talk: Talk
    recipe: Recipe | None = None
    limit: float | None = None


def look(
    url: str, name: str | None, recipe: Recipe | None, limit: float | None, *, key: str | None, longest: float
) -> Iterator[Finding]:
    """What is found by asking a server.

    Args:
        url: its address, without /v1.
        name: of the model; the only one unless given.
        recipe: by which it was started.
        limit: tokens a second that the hardware's memory allows.
        key: that it wants to see.
        longest: seconds for all answers together.

    """
    until = time.monotonic() + longest
    subject = Subject(Talk(url, name or "", longest, key, until), recipe, limit)
    silent = False
    for check in CHECKS:
        if silent or time.monotonic() >= until:
            why = "the server does not answer" if silent else f"the {longest:g} seconds of --timeout are over"
            yield Finding(check.name, url, unknown(f"not asked: {why}"))
            continue
        said = _said(check, subject)
        yield from (Finding(check.name, url, one) for one in said)
        bad = any(one.severity in (Severity.WRONG, Severity.UNKNOWN) for one in said)
        silent = bad and (check.name in ("health", "model") or time.monotonic() >= until)
        if check.name == "model" and not silent and not subject.talk.model:
            names = _served(subject)
            silent = not names
            subject = replace(subject, talk=replace(subject.talk, model=names[0] if names else ""))


def _said(check: Check[Subject], subject: Subject) -> tuple[Found, ...]:
    try:
        with subject.talk.taken():
            return tuple(check.look(subject)) or (fine(check.fine),)
    except Wrong as failed:
        told = failed.details.get("answer")
        shown = f" ({_short(told)})" if told else ""
        if re.search(r"answers 40[13]", failed.problem):
            return (unknown(f"{failed.problem}: it wants a key", "set VLLM_API_KEY to it"),)
        return (wrong(f"{failed.problem}{shown}", "see the server's log: stack doctor --log FILE"),)


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    text = "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= 120 else f"{text[:117]}…"


def _health(subject: Subject) -> Iterator[Found]:
    talk = subject.talk
    try:
        with bounded_http.asked(f"{talk.url}/health", None, min(_HEALTH, talk.patience), talk.key) as answer:
            status = answer.status_code
    except bounded_http.BROKEN as failed:
        yield wrong(f"nothing answers ({bounded_http.why(failed)})", "start the server, or correct --url")
        return
    if status != 200:
        yield wrong(
            f"/health answers {status}: its engine is dead, or it is no vLLM", "see the server's log: stack doctor --log FILE"
        )


def _served(subject: Subject) -> list[str]:
    """The names of its models; none if it does not say them this time."""
    try:
        with subject.talk.taken():
            return [str(one["id"]) for one in subject.talk.get("/v1/models")["data"]]
    except Wrong:
        return []


def _model(subject: Subject) -> Iterator[Found]:
    page = subject.talk.get("/v1/models")["data"]
    names = [str(one["id"]) for one in page]
    wanted = subject.talk.model
    if not names:
        yield wrong("it serves no model", "see the server's log: stack doctor --log FILE")
    elif wanted and wanted not in names:
        yield wrong(f"it serves {_short(', '.join(names))}, not {wanted}", "name one of them with --model")
    elif not wanted and len(names) > 1:
        yield wrong(f"it serves {_short(', '.join(names))}", "name one of them with --model")
    else:
        one = next(one for one in page if not wanted or one["id"] == wanted)
        expected = _repository(subject.recipe)
        if expected is not None and expected not in (str(one["id"]), str(one.get("root"))):
            yield note(
                f"it serves {_short(one['id'])}, recipe {subject.recipe.name if subject.recipe else ''} is for {expected}"
            )
        else:
            yield fine(f"it serves {_short(one['id'])}, up to {_short(one.get('max_model_len'))} tokens")


def _repository(recipe: Recipe | None) -> str | None:
    if recipe is None or recipe.model not in checkpoints.known():
        return None
    return checkpoints.load(recipe.model).repository


def _asked(subject: Subject, content: str, tokens: int, system: str | None = None, **more: Any) -> Exchange:
    messages = [{"role": "system", "content": system}] if system is not None else []
    return subject.talk.ask(
        CHAT, messages=[*messages, {"role": "user", "content": content}], temperature=0, max_tokens=tokens, **more
    )


def _texts(got: Exchange) -> tuple[str, str, str]:
    """Content, reasoning, and how it ended; what is null is empty."""
    message = got.part("choices", 0, "message")
    content, reasoning = message.get("content") or "", message.get("reasoning") or message.get("reasoning_content") or ""
    if not isinstance(content, str) or not isinstance(reasoning, str):
        raise got.wrong("content or reasoning is no text")
    return content, reasoning, str(got.part("choices", 0, "finish_reason"))


def _content(subject: Subject) -> Iterator[Found]:
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


def _system(subject: Subject) -> Iterator[Found]:
    without, with_it = (_asked(subject, _QUESTION, _ENOUGH, system, return_token_ids=True) for system in (None, _SYSTEM))
    counts = [one.part("usage", "prompt_tokens") for one in (without, with_it)]
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
        yield from (replace(one, what=f"with a system message {one.what}") for one in garbled)
    elif _MARK in content and _MARK not in plain:
        yield fine("a system message changes the answer as it should")
    elif (content, reasoning) == _texts(without)[:2]:
        yield note("a system message arrives and changes nothing: a small model may do so, gpt-oss does not")
    else:
        yield note(f"a system message arrives, and is not followed: {_short(content)}")


def _systems(ids: list[Any]) -> int:
    """How many system messages a prompt of harmony has."""
    return sum(pair == (_START, _SYSTEM_ROLE) for pair in itertools.pairwise(ids))


def _repetition(subject: Subject) -> Iterator[Found]:
    content, reasoning, _ = _texts(_asked(subject, _LONG, _LONGER))
    for name, text in (("content", content), ("reasoning", reasoning)):
        if repeated := loop(text):
            yield wrong(
                f"a longer answer's {name} repeats itself without end: {_short(repeated)}",
                "a wrong kernel corrupts tokens: see the selected backends in the log, and take variables out that nothing reads "
                "(stack doctor --script, --log)",
            )


def _speed(subject: Subject) -> Iterator[Found]:
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
    said = f"{speed:.1f} tokens a second, measured once"
    if subject.limit is not None and speed > subject.limit * _BEYOND:
        yield unknown(f"{said}{limit}: its counts are wrong, or it speculates")
    elif expected is None:
        yield fine(f"{said}{limit}")
    elif speed < expected[0] * _SLOW:
        yield wrong(
            f"{said}, {expected[0]:g} are expected ({expected[1]}){limit}",
            "see whether graphs are on and which backends run (stack doctor --log), and whether others ask it at the same time",
        )
    else:
        yield fine(f"{said}, {expected[0]:g} are expected ({expected[1]}){limit}")


def _decoded(got: Exchange) -> float | None:
    """Tokens a second behind the first event that has some: by their ids as vLLM sends them, else as many as are counted at the end.

    None where they are too few to say.
    """
    sent = [
        (at, choice) for event, at in zip(got.events, got.times, strict=True) for choice in (event.get("choices") or ())[:1]
    ]
    told = [(at, len(choice["token_ids"])) for at, choice in sent if choice.get("token_ids")]
    if not told:
        # The first event has the role only; some tokens show in no event.
        counted = [event["usage"]["completion_tokens"] for event in got.events if event.get("usage")]
        spoken = [at for at, choice in sent if any((choice.get("delta") or {}).get(name) for name in _SPOKEN)]
        told = [(spoken[0], 1), (sent[-1][0], int(counted[-1]) - 1)] if counted and spoken else []
    tokens = sum(count for _, count in told[1:])
    if tokens < _LEAST or told[-1][0] <= told[0][0]:
        return None
    return tokens / (told[-1][0] - told[0][0])


def _expected(recipe: Recipe | None) -> tuple[float, str] | None:
    """What one request should decode after a short prompt, and who says so."""
    if recipe is None or not recipe.speeds:
        return None
    least = min(recipe.speeds, key=lambda one: one.context)
    return least.decode, least.source


CHECKS: tuple[Check[Subject], ...] = (
    Check("health", "it answers /health", _health),
    Check("model", "it serves a model", _model),
    Check("content", "`content` has the answer", _content),
    Check("system-message", "a system message changes the answer as it should", _system),
    Check("repetition", "a longer answer does not repeat itself", _repetition),
    Check("speed", "it is as fast as expected", _speed),
)
