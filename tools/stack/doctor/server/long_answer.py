# SPDX-License-Identifier: Apache-2.0
"""Ask for a long answer as a stream: it must not repeat itself, and its speed is measured."""

from collections.abc import Iterator
from typing import Any

from stack.deploy.recipes import Recipe
from stack.doctor.finding import Found, fine, note, unknown, wrong
from stack.doctor.server import judge
from stack.doctor.server.answers import Answer
from stack.doctor.server.chat import fault
from stack.doctor.server.interview import Interview
from stack.doctor.server.shown import seen_in, shown

LONGER = 700
"""Tokens of a long answer."""
_QUESTION = "Explain in about 250 words why the sky is blue, in plain sentences without lists."
_SPOKEN = ("content", "reasoning", "reasoning_content")
_LEAST = 8
"""Least number of tokens for a measurement of speed."""
_MANY, _WAITED, _IMPOSSIBLE = 20, 1.0, 2000
"""Pieces, seconds and pieces a second from which a stream was collected: they come late, and faster than any GPU makes them."""
_SLOW, _BEYOND = 0.75, 1.05
"""Something is wrong below this share of the expected speed, or above this share of the limit."""


def repetition(interview: Interview) -> Iterator[Found]:
    """Ask for a long answer, and look for what repeats itself."""
    answer = interview.stream(_QUESTION, LONGER, return_token_ids=True)
    yield from fault(answer)
    interview.long = answer
    for name, text in (("content", answer.content), ("reasoning", answer.reasoning)):
        found = judge.repeated(text)
        if found is not None and found.what.startswith(judge.REPEATS):
            yield wrong(
                f"a longer answer's {name} repeats itself without end{shown(found.what.removeprefix(judge.REPEATS))}",
                "a wrong kernel corrupts tokens: see the selected backends in the log, and take variables out that nothing reads "
                "(stack doctor --script, --log)",
            )
        elif found := found or judge.leaked(text, thinks=name == "reasoning"):
            yield found


def speed(interview: Interview) -> Iterator[Found]:
    """Measure the speed of the long answer."""
    if interview.long is not None and (seconds := _collected(interview.long)) is not None:
        what = f"the stream came all at once after {seconds:.1f} s, so that a reader waits for all of it, and its speed is not known"
        fix = "most often a proxy that collects it: nginx: proxy_buffering off; ask the server itself to compare"
        yield seen_in(note(what, fix), "dstackai/dstack#4269", "mostlygeek/llama-swap#292")
        return
    decoded = _decoded(interview.long) if interview.long is not None else None
    if decoded is None and interview.long is not None and any(fault(interview.long)):
        yield unknown("how fast it is: the long answer's stream did not end as it should")
        return
    if decoded is None:
        yield unknown("how fast it is: the stream has too few tokens that could be counted, or comes at once")
        return
    limit, expected = interview.limit, _expected(interview.recipe)
    beside = f", the memory allows {limit:.0f}" if limit is not None else ""
    text = f"{decoded:.1f} tokens a second, measured once"
    if limit is not None and decoded > limit * _BEYOND:
        yield unknown(f"{text}{beside}: its counts are wrong, or it speculates")
    elif expected is None:
        yield fine(f"{text}{beside}")
    elif decoded < expected[0] * _SLOW:
        yield wrong(
            f"{text}, {expected[0]:g} are expected ({expected[1]}){beside}",
            "see whether graphs are on and which backends run (stack doctor --log), and whether others ask it at the same time",
        )
    else:
        yield fine(f"{text}, {expected[0]:g} are expected ({expected[1]}){beside}")


def _decoded(answer: Answer) -> float | None:
    """Measure tokens per second after the first event that has any: by their ids as vLLM sends them, else by the final count.

    None if there are too few tokens.
    """
    assert answer.stream is not None
    sent = [
        (at, event["choices"][0])
        for event, at in zip(answer.stream.events, answer.stream.times, strict=True)
        if event.get("choices")
    ]
    counts = [(at, len(ids)) for at, choice in sent if isinstance(ids := choice.get("token_ids"), list) and ids]
    if not counts:
        # The first event has only the role, and some tokens appear in no event: count from the first text.
        spoken = [at for at, choice in sent if _speaks(choice)]
        counts = [(spoken[0], 1), (sent[-1][0], answer.tokens - 1)] if answer.tokens is not None and spoken else []
    tokens = sum(count for _, count in counts[1:])
    if tokens < _LEAST or counts[-1][0] <= counts[0][0]:
        return None
    return tokens / (counts[-1][0] - counts[0][0])


def _collected(answer: Answer) -> float | None:
    """Return the seconds after which a stream came all at once, as through a proxy that collects it; None if it did not."""
    stream = answer.stream
    assert stream is not None
    if answer.pieces < _MANY or not stream.times:
        return None
    waited, lasted = stream.times[0] - stream.began, stream.times[-1] - stream.times[0]
    return waited if waited >= _WAITED and answer.pieces > lasted * _IMPOSSIBLE else None


def _speaks(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return any(delta.get(name) for name in _SPOKEN)


def _expected(recipe: Recipe | None) -> tuple[float, str] | None:
    """Return the expected speed of one request after a short prompt, and its source."""
    if recipe is None or not recipe.speeds:
        return None
    least = min(recipe.speeds, key=lambda speed: speed.context)
    return least.decode, least.source
