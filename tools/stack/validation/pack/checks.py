# SPDX-License-Identifier: Apache-2.0
"""What is asked of a server with dummy weights: does it do what it says, by the path that the recipe names, and how fast.

A check returns what it measured, and raises `StackError` with what is wrong.
"""

import random
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.validation.pack import client, profile
from stack.validation.pack.recipes import Recipe

MODEL = "gpt-oss-120b"
RUNS = 5
_DECODED = 128
_PROFILED, _MORE = 8, 32
"""Tokens of the shorter answer beneath the profiler, and how many more the longer one has."""
_REQUESTS, _AT_ONCE = 200, 12
_TEXT = 199_998
"""How many tokens of the vocabulary are text."""

Measured = Mapping[str, float | str]
Rate = Callable[[client.Answer], float]


@dataclass(frozen=True, slots=True)
class Speed:
    """Runs of one measurement, in tokens a second."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.runs)

    def measured(self) -> Measured:
        """The median, and every run: an outlier is to be seen."""
        return {"tok/s": self.median, "runs": " ".join(f"{run:.1f}" for run in self.runs)}


def backends(log: str, recipe: Recipe) -> Measured:
    """The log names what the recipe expects."""
    missing = [line for line in recipe.log if line not in log]
    if missing:
        named = [line.rpartition("] ")[2] for line in log.splitlines() if " backend" in line or "for MXFP4 GEMM" in line]
        raise StackError(
            f"its log has no {missing[0]!r}; it has: {'; '.join(named)[:600]}", "another kernel runs than is meant"
        )
    return {"log": "; ".join(recipe.log)}


def version(port: int, expected: str) -> Measured:
    """The server that answers is the stack's own build."""
    status, said = client.call(port, "GET", "/version")
    found = said.get("version") if isinstance(said, dict) else said
    if status != 200 or found != expected:
        raise StackError(f"it says it is {found!r}, and {expected!r} was packed", "another vLLM is on Python's path")
    return {"version": expected}


def models(port: int) -> Measured:
    """It serves the one model under its name."""
    status, said = client.call(port, "GET", "/v1/models")
    names = [one.get("id") for one in said.get("data", [])] if isinstance(said, dict) else said
    if status != 200 or names != [MODEL]:
        raise StackError(f"it answers {status} and serves {names}, not {MODEL}", "see its log")
    return {"model": MODEL}


def chat(port: int) -> Measured:
    """A conversation is answered; what is said is not looked at."""
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Answer in one word."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
        "max_tokens": 32,
        "temperature": 0,
    }
    status, said = client.call(port, "POST", "/v1/chat/completions", body)
    if status != 200:
        raise StackError(f"it answers {status}: {str(said)[:300]}", "see its log")
    usage, (choice,) = said["usage"], said["choices"]
    if (
        choice["finish_reason"] not in ("length", "stop", "tool_calls")
        or not 0 < usage["completion_tokens"] <= body["max_tokens"]
    ):
        raise StackError(f"it ends with {choice['finish_reason']} after {usage['completion_tokens']} tokens", "see its log")
    return {"tokens": usage["completion_tokens"], "finish": choice["finish_reason"]}


def echoes(port: int) -> Measured:
    """Many requests at once: each gets its own prompt back, token by token, and as many tokens as it asked for."""
    source = random.Random(12)  # noqa: S311 - the same prompts on every run
    asked = [(_prompt(source, source.randrange(1, 400)), source.randrange(1, 24)) for _ in range(_REQUESTS)]

    def wrong(one: tuple[list[int], int]) -> str | None:
        prompt, tokens = one
        answer = client.complete(port, MODEL, prompt, tokens)
        if list(answer.asked) != prompt:
            return f"a prompt of {len(prompt)} tokens came back as another of {len(answer.asked)}"
        return None if answer.counted == tokens else f"{answer.counted} tokens came where {tokens} were asked for"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        faults = [fault for fault in pool.map(wrong, asked) if fault]
    if faults:
        raise StackError(f"{len(faults)} of {_REQUESTS} answers are wrong: {faults[0]}", "answers are mixed up")
    return {"requests": _REQUESTS, "at once": _AT_ONCE}


def decode(port: int, context: int) -> Speed:
    """How fast one sequence goes on behind a context of so many tokens, alone on the server."""
    return Speed(tuple(_runs(port, context, _DECODED, lambda answer: answer.decode_rate())))


def prefill(port: int, length: int) -> Speed:
    """How fast a prompt of so many tokens is read, until its first token is there."""
    return Speed(tuple(_runs(port, length, 1, lambda answer: length / answer.times[0])))


def profiled(port: int, folder: Path, context: int) -> Measured:
    """What the GPU does for a token behind a context of so many tokens: two answers beneath the profiler."""
    seen: list[bytes] = []
    for tokens in (_PROFILED, _PROFILED + _MORE):
        before = profile.traces(folder)
        _called(port, "/start_profile")
        client.complete(port, MODEL, _prompt(random.Random(context), context), tokens)  # noqa: S311
        _called(port, "/stop_profile")
        seen.append(profile.written(folder, before))
    short, long = seen
    return profile.token(short, long, _MORE).measured()


def _called(port: int, path: str) -> None:
    status, said = client.call(port, "POST", path)
    if status != 200:
        raise StackError(f"{path} answers {status}: {str(said)[:300]}", "see its log")


def _runs(port: int, length: int, tokens: int, rate: Rate) -> list[float]:
    """A run that warms up, then those that count; each with a prompt of its own, which no cache knows."""
    found = []
    for run in range(RUNS + 1):
        prompt = _prompt(random.Random(f"{length} {tokens} {run}"), length)  # noqa: S311
        answer = client.complete(port, MODEL, prompt, tokens)
        if list(answer.asked) != prompt or answer.counted != tokens:
            raise StackError(
                f"{answer.counted} tokens came where {tokens} were asked for, or the prompt is another", "see the log"
            )
        if run:
            found.append(rate(answer))
    return found


def _prompt(source: random.Random, length: int) -> list[int]:
    return [source.randrange(_TEXT) for _ in range(length)]
