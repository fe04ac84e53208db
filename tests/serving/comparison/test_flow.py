# SPDX-License-Identifier: Apache-2.0
"""The order of starts, and that every server ends, with servers of their own processes and made numbers."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.deploy import recipes
from stack.serving import demands
from stack.serving.command import command
from stack.serving.comparison import flow, measuring
from stack.serving.comparison.flow import Contestant, Measure, Plan, Sample, UnfitError
from stack.serving.start import Start, Up
from stack.validation.bench.benchy import Measured, Size, UnmeasuredError
from stack.validation.python_env import Interpreter
from stack.validation.serve.server import NotServing

from .conftest import Standing

SIZE = Size(512, 128, 2)


def contestant(standing: Standing, label: str, name: str, *extra: str) -> Contestant:
    recipe = recipes.load(name)
    made = command(recipe, {}, port=standing.port, model_path=standing.model, extra=extra)
    process = Interpreter(Path(sys.executable)).server(made.arguments[1:], {**os.environ, **made.environment}, standing.folder)
    url = demands.address("127.0.0.1", standing.port)
    start = Start(recipe, process, standing.folder, url, None, 60)
    return Contestant(label, start, lambda: demands.demand_port("127.0.0.1", standing.port))


def plan(standing: Standing, measure: Measure, *extra: str, rounds: int = 1, fallback: bool = False) -> Plan:
    both = (contestant(standing, "A", "cpu-fp32", *extra), contestant(standing, "B", "cpu-mxfp4", *extra))
    return Plan(both, rounds, measure, fallback)


def made(decode: float, prefill: float = 1000, size: Size = SIZE) -> Measured:
    return Measured(size, *((float(value),) * size.runs for value in (128, prefill, decode, decode, 1, 1, 1)))


def fixed(up: Up, tell: Callable[[int], None]) -> Sequence[Measured]:
    tell(1)
    return (made(150 if up.reading.cache.kind == "bfloat16" else 100),)


def test_servers_in_turn_and_each_ended(standing: Standing) -> None:
    told: list[str] = []
    samples = flow.run(plan(standing, fixed, rounds=2), lambda _: None, lambda step, *_: told.append(step))
    assert standing.starts() == ["float32", "bfloat16", "bfloat16", "float32"]
    assert [(sample.round, sample.label) for sample in samples] == [(1, "A"), (1, "B"), (2, "B"), (2, "A")]
    assert standing.gone()
    assert "round 1 of 2, A (cpu-fp32): measuring" in told
    assert "round 2 of 2, B (cpu-mxfp4): waiting for the first answer" in told


def test_a_failed_measurement_ends_the_server(standing: Standing) -> None:
    def fails(_up: Up, _tell: Callable[[int], None]) -> Sequence[Measured]:
        raise UnmeasuredError("no tokens")

    with pytest.raises(UnmeasuredError):
        flow.run(plan(standing, fails), lambda _: None, silent)
    assert standing.gone()


def test_an_interrupt_ends_the_server(standing: Standing) -> None:
    def stopped(_up: Up, _tell: Callable[[int], None]) -> Sequence[Measured]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flow.run(plan(standing, stopped), lambda _: None, silent)
    assert standing.gone()


def test_other_kernels_are_not_compared(standing: Standing) -> None:
    with pytest.raises(UnfitError) as unfit:
        flow.run(plan(standing, fixed, "--says", "made-spark-compose"), lambda _: None, silent)
    assert unfit.value.label == "A"
    assert ("MoE", "CPU", "MARLIN") in [(one.part, one.expected, one.found) for one in unfit.value.up.mismatches]
    assert standing.gone()


def test_a_server_that_does_not_start_and_a_port_that_is_taken(standing: Standing) -> None:
    finished: list[Sample] = []
    with pytest.raises(NotServing, match="the server ended with 1"):
        flow.run(plan(standing, fixed, "--how", "dies"), lambda _: None, silent, finished.append)
    assert [sample.label for sample in finished] == ["A"]
    assert standing.gone()
    with socket.create_server(("127.0.0.1", standing.port)), pytest.raises(StackError, match=f"port {standing.port} of 127"):
        flow.run(plan(standing, fixed), lambda _: None, silent)


def sample(number: int, label: str, *measured: Measured) -> Sample:
    return Sample(number, label, None, measured)  # type: ignore[arg-type]


def test_results_by_size() -> None:
    other = Size(2048, 128, 2)
    samples = [
        sample(number, label, made(speed, 10 * speed), made(speed / 2, 20 * speed, other))
        for number, first, second in ((1, 100, 150), (2, 102, 150), (3, 98, 150))
        for label, speed in (("A", first), ("B", second))
    ]
    found = {result.title: result for result in flow.results(samples)}
    assert list(found) == ["decode 128 at 512", "decode 128 at 2048", "prefill 512", "prefill 2048"]
    first = found["decode 128 at 512"]
    assert (first.first, first.second) == ((100, 102, 98), (150, 150, 150))
    assert first.estimate.faster == "B"
    assert first.estimate.ratio == pytest.approx(1.5, rel=0.01)
    assert found["prefill 2048"].first == (2000, 2040, 1960)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (
            ("gpt-oss-120b-spark", "gpt-oss-20b-spark"),
            "gpt-oss-120b-spark serves gpt-oss-120b, and gpt-oss-20b-spark gpt-oss-20b",
        ),
        (("gpt-oss-120b-spark", "cpu-fp32"), "compare recipes of one model"),
        (("gpt-oss-120b-2-sparks", "gpt-oss-120b-spark"), "is for 2 nodes: compare recipes of one node"),
        (("gpt-oss-120b-spark", "gpt-oss-120b-h200"), "name the checkpoint's folder with --model"),
    ],
)
def test_recipes_that_cannot_be_compared(names: tuple[str, str], said: str, tmp_path: Path) -> None:
    first, second = map(recipes.load, names)
    with pytest.raises(StackError) as refused:
        measuring.demand_comparable(first, second, None)
    assert said in str(refused.value)
    if "--model" in said:
        with pytest.raises(StackError, match=r"has no tokenizer\.json"):
            measuring.demand_comparable(first, second, tmp_path)
        (tmp_path / "tokenizer.json").write_text("{}")
        measuring.demand_comparable(first, second, tmp_path)
