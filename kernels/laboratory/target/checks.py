# SPDX-License-Identifier: Apache-2.0
"""Checks of a server with dummy weights: does it answer correctly, with the kernels that the recipe names, and how fast.

A check returns its measurements, and raises `StackError` if something is wrong.
"""

import random
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from laboratory.target import client, profile
from stack.base.errors import StackError
from stack.validation.pack.recipes import Recipe

MODEL = "gpt-oss-120b"
RUNS = 5
_DECODED = 128
_PROFILED, _MORE = 8, 32
"""Tokens of the shorter profiled answer, and how many more the longer one has."""
_REQUESTS, _AT_ONCE = 200, 12
_TEXT = 199_998
"""Number of tokens of the vocabulary that are text."""

Measured = Mapping[str, float | str]
Rate = Callable[[client.Answer], float]


@dataclass(frozen=True, slots=True)
class Speed:
    """Runs of one measurement, in tokens per second."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median run."""
        return statistics.median(self.runs)

    def measured(self) -> Measured:
        """Return the median and every run, so that outliers can be seen."""
        return {"tok/s": self.median, "runs": " ".join(f"{run:.1f}" for run in self.runs)}


def backends(log: str, recipe: Recipe) -> Measured:
    """Check that the log names the backends that the recipe expects."""
    missing = [line for line in recipe.log if line not in log]
    if missing:
        named = [line.rpartition("] ")[2] for line in log.splitlines() if " backend" in line or "for MXFP4 GEMM" in line]
        raise StackError(
            f"its log has no {missing[0]!r}; it has: {'; '.join(named)[:600]}", "another kernel runs than the recipe expects"
        )
    return {"log": "; ".join(recipe.log)}


def version(port: int, expected: str) -> Measured:
    """Check that the server runs the stack's own build."""
    status, answer = client.call(port, "GET", "/version")
    running = answer.get("version") if isinstance(answer, dict) else answer
    if status != 200 or running != expected:
        raise StackError(f"it reports version {running!r}, but {expected!r} was packed", "another vLLM is on Python's path")
    return {"version": expected}


def models(port: int) -> Measured:
    """Check that it serves exactly the one model, under its name."""
    status, answer = client.call(port, "GET", "/v1/models")
    names = [model.get("id") for model in answer.get("data", [])] if isinstance(answer, dict) else answer
    if status != 200 or names != [MODEL]:
        raise StackError(f"it answers {status} and serves {names}, not {MODEL}", "see its log")
    return {"model": MODEL}


def chat(port: int) -> Measured:
    """Check that a conversation is answered. The text does not matter, since the weights are random."""
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "Answer in one word."},
            {"role": "user", "content": "What is the capital of France?"},
        ],
        "max_tokens": 32,
        "temperature": 0,
    }
    status, answer = client.call(port, "POST", "/v1/chat/completions", body)
    if status != 200:
        raise StackError(f"it answers {status}: {str(answer)[:300]}", "see its log")
    usage, (choice,) = answer["usage"], answer["choices"]
    if (
        choice["finish_reason"] not in ("length", "stop", "tool_calls")
        or not 0 < usage["completion_tokens"] <= body["max_tokens"]
    ):
        raise StackError(f"it ends with {choice['finish_reason']} after {usage['completion_tokens']} tokens", "see its log")
    return {"tokens": usage["completion_tokens"], "finish": choice["finish_reason"]}


def echoes(port: int) -> Measured:
    """Send many requests at once and check that each gets its own prompt back, and as many tokens as it requested."""
    source = random.Random(12)  # noqa: S311 - the same prompts on every run
    requests = [(_prompt(source, source.randrange(1, 400)), source.randrange(1, 24)) for _ in range(_REQUESTS)]

    def wrong(request: tuple[list[int], int]) -> str | None:
        prompt, tokens = request
        answer = client.complete(port, MODEL, prompt, tokens)
        if list(answer.prompt) != prompt:
            return f"a prompt of {len(prompt)} tokens came back as another one of {len(answer.prompt)}"
        return None if answer.counted == tokens else f"{answer.counted} tokens came, {tokens} were requested"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        faults = [fault for fault in pool.map(wrong, requests) if fault]
    if faults:
        raise StackError(f"{len(faults)} of {_REQUESTS} answers are wrong: {faults[0]}", "answers are mixed up")
    return {"requests": _REQUESTS, "at once": _AT_ONCE}


def decode(port: int, context: int) -> Speed:
    """Measure the decoding speed of a single sequence after a context of `context` tokens."""
    return Speed(tuple(_runs(port, context, _DECODED, lambda answer: answer.decode_rate())))


def prefill(port: int, length: int) -> Speed:
    """Measure how fast a prompt of `length` tokens is processed, until its first token arrives."""
    return Speed(tuple(_runs(port, length, 1, lambda answer: length / answer.times[0])))


def profiled(port: int, folder: Path, context: int) -> Measured:
    """Profile the GPU's work for a token after a context of `context` tokens, by two answers of different lengths."""
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
    status, answer = client.call(port, "POST", path)
    if status != 200:
        raise StackError(f"{path} answers {status}: {str(answer)[:300]}", "see its log")


def _runs(port: int, length: int, tokens: int, rate: Rate) -> list[float]:
    """Run once to warm up, then the counted runs. Each has its own prompt, so that no cache contains it."""
    rates = []
    for run in range(RUNS + 1):
        prompt = _prompt(random.Random(f"{length} {tokens} {run}"), length)  # noqa: S311
        answer = client.complete(port, MODEL, prompt, tokens)
        if list(answer.prompt) != prompt or answer.counted != tokens:
            raise StackError(f"{answer.counted} tokens came, {tokens} were requested, or the prompt changed", "see the log")
        if run:
            rates.append(rate(answer))
    return rates


def _prompt(source: random.Random, length: int) -> list[int]:
    return [source.randrange(_TEXT) for _ in range(length)]
