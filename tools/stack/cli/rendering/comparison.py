# SPDX-License-Identifier: Apache-2.0
"""Print which of two served recipes is faster, in words and as JSON."""

import statistics
from dataclasses import dataclass

import click

from stack.cli.common import print_table
from stack.cli.sentences import fact, say
from stack.serving import summary
from stack.serving.comparison import estimate
from stack.serving.comparison.flow import Result, Sample
from stack.validation.bench.statistics import CONFIDENCE


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison: the names of recipes A and B, the plan, what was measured, and why nothing was compared, if so."""

    names: tuple[str, str]
    rounds: int
    runs: int
    samples: tuple[Sample, ...]
    results: tuple[Result, ...]
    error: str | None = None


def show(shown: Comparison) -> None:
    """Print the kernels of both servers, their speeds, and which one is faster."""
    for label, name in zip(("A", "B"), shown.names, strict=True):
        up = next(sample.up for sample in shown.samples if sample.label == label)
        fact(f"{label} ({name}): {summary.kernels(up.reading)}")
        for mismatch in up.mismatches:
            fact(f"note: {label}, {summary.mismatch(mismatch)}")
    turns = " ".join(label for labels in estimate.order(shown.rounds) for label in labels)
    say(f"{shown.rounds} rounds in the order {turns}, {shown.runs} runs of each size in each.")
    click.echo()
    rows = [
        (
            result.title,
            _speed(statistics.median(result.first)),
            _speed(statistics.median(result.second)),
            f"{result.estimate.ratio:.3f}",
            f"{result.estimate.low:.3f} to {result.estimate.high:.3f}",
            _verdict(result),
        )
        for result in shown.results
    ]
    print_table(("tok/s", "A", "B", "B / A", f"{CONFIDENCE:.0%} interval", ""), rows)
    say("`decode 128 at 512`: the speed of an answer of 128 tokens behind a prompt of 512.")
    say(f"Interval: {estimate.METHOD}. It is about starts on this machine as it is now.")


def _speed(value: float) -> str:
    return f"{value:.1f}" if value < _WHOLE else f"{value:.0f}"


_WHOLE = 1000
"""Tokens per second from which a tenth says nothing."""


def _verdict(result: Result) -> str:
    faster = result.estimate.faster
    return "no difference shown" if faster is None else f"{faster} is faster"


def as_json(shown: Comparison) -> dict[str, object]:
    """Convert a comparison for `--json`."""
    servers = {sample.label: sample.up for sample in shown.samples}
    return {
        "a": shown.names[0],
        "b": shown.names[1],
        "rounds": shown.rounds,
        "runs": shown.runs,
        "confidence": CONFIDENCE,
        "method": estimate.METHOD,
        "error": shown.error,
        "order": [sample.label.lower() for sample in shown.samples],
        "servers": [
            {
                "label": label.lower(),
                "kernels": summary.kernels(up.reading),
                "mismatches": [summary.mismatch(mismatch) for mismatch in up.mismatches],
            }
            for label, up in sorted(servers.items())
        ],
        "results": [
            {
                "kind": result.kind,
                "prompt": result.prompt,
                "answer": result.answer,
                "a": list(result.first),
                "b": list(result.second),
                "ratio": result.estimate.ratio,
                "low": result.estimate.low,
                "high": result.estimate.high,
                "faster": None if result.estimate.faster is None else result.estimate.faster.lower(),
            }
            for result in shown.results
        ],
    }
