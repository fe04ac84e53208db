# SPDX-License-Identifier: Apache-2.0
"""Compare log-probabilities and greedy tokens with transformers on the same weights, and check that the bar notices faults."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stack.deploy.recipes import Bar
from stack.validation.serve import checks
from stack.validation.serve.checks import COMPLETIONS, Measured, ServerUnderTest
from stack.validation.serve.client import Exchange, Wrong

ENDS = (checks.RETURN, checks.CALLED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A comparison with a bar. `why` is empty if it passed and the bar notices every fault that it must notice."""

    why: str
    measured: Measured
    margins: Mapping[str, float]


def scores(server: ServerUnderTest, reference: Mapping[str, Any]) -> Judged:
    """Compare the log-probabilities of a long text's tokens, which reach every expert of every layer.

    Raises:
        Wrong: the answer has no log-probabilities, or they are not for these tokens.

    """
    text = list(server.tokens["scored"])
    idle = [(layer, expert) for layer, counts in enumerate(reference["routed"]) for expert, n in enumerate(counts) if not n]
    if idle:
        raise Wrong(
            f"the text does not reach expert {idle[0][1]} of layer {idle[0][0]}", expected="every expert of every layer"
        )
    got = server.talk.ask(COMPLETIONS, prompt=text, max_tokens=1, temperature=0, prompt_logprobs=0)
    return judge(_bar(server), _of(got, text), reference["score"], reference["wrong"])


def answers(server: ServerUnderTest, reference: Mapping[str, Any]) -> Judged:
    """Compare greedy answers: they must have the same tokens and log-probabilities."""
    likely: list[float] = []
    expected: list[float] = []
    for name, answer in reference["answers"].items():
        body = {"prompt": list(server.tokens[name]), "max_tokens": checks.LONG, "temperature": 0, "logprobs": 0}
        got = server.talk.ask(COMPLETIONS, **body, stop_token_ids=list(ENDS), return_token_ids=True)
        got.equal("the tokens of the answer", got.part("choices", 0, "token_ids"), answer["tokens"])
        likely += got.part("choices", 0, "logprobs", "token_logprobs")
        expected += answer["likely"]
    return judge(_bar(server), likely, expected, {})


def _bar(server: ServerUnderTest) -> Bar:
    assert server.recipe.bar is not None  # only a recipe for a user's own server has no bar, and numbers are not checked there
    return server.recipe.bar


def judge(bar: Bar, found: Sequence[float], right: Sequence[float], wrong: Mapping[str, Sequence[float]]) -> Judged:
    """Measure how far off log-probabilities are, and how far off they would be with each fault.

    Raises:
        Wrong: the number of log-probabilities differs from the expected one.

    """
    if len(found) != len(right) or not found:
        raise Wrong(f"{len(found)} log-probabilities come back", expected=f"{len(right)}")
    off = _distance(bar.measure, found, right)
    faults = {name: _distance(bar.measure, scores, right) for name, scores in wrong.items()}
    measured: Measured = {f"{bar.measure} difference": off, "tokens": float(len(found)), **faults}
    unknown = [name for name in bar.blind if faults and name not in faults]
    seen = {name: by for name, by in faults.items() if name not in bar.blind}
    unseen = [name for name, by in seen.items() if not by > bar.at]
    nearest = min(seen.values(), default=math.nan)
    margins = {"good": bar.at / off} if off else {}
    margins |= {"nearest fault": nearest / bar.at} if seen else {}
    if unknown:
        return Judged(f"the recipe lists a blind fault that does not exist: {unknown[0]}", measured, margins)
    if unseen:
        return Judged(f"the bar of {bar.at:g} would not notice: {unseen[0]} ({faults[unseen[0]]:.3g})", measured, margins)
    if not off <= bar.at:  # so that NaN fails
        return Judged(f"log-probabilities are off by {off:.3g} ({bar.measure}), more than {bar.at:g}", measured, margins)
    return Judged("", measured, margins)


def _of(got: Exchange, text: Sequence[int]) -> list[float]:
    """Return the log-probability of each token of a prompt except the first."""
    entries = got.part("choices", 0, "prompt_logprobs") or []
    if len(entries) != len(text):
        raise got.wrong(f"{len(entries)} tokens of the prompt come back", f"{len(text)}")
    try:
        return [float(entry[str(token)]["logprob"]) for entry, token in zip(entries[1:], text[1:], strict=True)]
    except (KeyError, TypeError) as missing:
        raise got.wrong(f"a token of the prompt has no log-probability ({missing})") from missing


def _distance(measure: str, one: Sequence[float], other: Sequence[float]) -> float:
    off = [abs(a - b) for a, b in zip(one, other, strict=True)]
    if any(map(math.isnan, off)):
        return math.nan  # max() may ignore a NaN

    return max(off) if measure == "largest" else math.sqrt(sum(by * by for by in off) / len(off))
