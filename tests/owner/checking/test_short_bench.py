# SPDX-License-Identifier: Apache-2.0
"""A bench that ends in time: what it measures, what it leaves out, and what does not become a number."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stack.model.verdict import Case, Outcome
from stack.owner.checking import short_bench
from stack.owner.checking.short_bench import RUNS, SIZES, ShortBench
from stack.store import cache
from stack.validation.bench import benchy
from stack.validation.bench.benchy import Measured, Size, Target, UnmeasuredError

from ...validation.bench import server as bench_server

TARGET = Target("http://127.0.0.1:9/v1", "gpt-oss-120b", Path("tokenizer.json"))
BENCH = ShortBench(Path("python"), TARGET, 131_072, ("sm121",), 120.0)
Measure = Callable[..., Measured]


def fast(*, prefill: float = 5000.0, decode: float = 60.0, overhead: float = 5.0) -> tuple[Measure, Callable[[], float]]:
    """A measurement by known speeds, and the clock that it moves."""
    now = [1000.0]

    def measure(_python: Path, _target: Target, size: Size, _tell: object, _patience: float) -> Measured:
        now[0] += overhead + size.runs * (size.prompt / prefill + size.answer / decode)
        runs = (1.0,) * size.runs
        return Measured(size, runs, (prefill,) * size.runs, (decode,) * size.runs, runs, runs, runs, runs)

    return measure, lambda: now[0]


def ran(
    monkeypatch: pytest.MonkeyPatch, measured: tuple[Measure, Callable[[], float]], bench: ShortBench = BENCH
) -> list[Case]:
    measure, clock = measured
    monkeypatch.setattr(benchy, "measure", measure)
    monkeypatch.setattr(time, "monotonic", clock)
    return [*short_bench.run(bench, lambda *_: None)]


def test_a_spark_is_measured_whole_in_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(monkeypatch, fast())
    assert [case.outcome for case in found] == [Outcome.PASSED] * len(SIZES)
    assert sum(case.seconds for case in found) < 120
    assert found[0].measured["decode t/s"] == 60
    assert len(str(found[0].measured["decode runs"]).split()) == RUNS


def test_a_slow_server_is_measured_as_far_as_the_time_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(monkeypatch, fast(prefill=300, decode=5))
    outcomes = [case.outcome for case in found]
    assert outcomes[0] is Outcome.PASSED
    assert Outcome.NOT_RUN in outcomes
    assert sum(case.seconds for case in found) <= 120
    assert "no time is left of 2 minutes: give it more with --minutes" in {case.why for case in found}


def test_the_time_is_kept_with_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    for decode in (2, 7, 20, 45, 200):
        found = ran(monkeypatch, fast(prefill=decode * 60, decode=decode, overhead=9))
        assert sum(case.seconds for case in found[1:]) <= 120


def test_a_short_context(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(monkeypatch, fast(), replace(BENCH, length=4096))
    left_out = [case for case in found if case.outcome is Outcome.NOT_RUN]
    assert {case.name for case in left_out} == {"bench/pp8192-tg32", "bench/pp8192-tg128"}
    assert "takes 4096 tokens in a request" in left_out[0].why


def test_a_refused_measurement_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Measured:
        raise UnmeasuredError("request 1 failed: HTTP 500")

    found = ran(monkeypatch, (refused, lambda: 0.0))
    assert {case.outcome for case in found} == {Outcome.FAILED}
    assert all(not case.measured for case in found)


def test_a_request_that_outlives_the_time_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def hung(*_: object) -> Measured:
        now[0] += 500
        raise UnmeasuredError("no request ended for 120 s")

    found = ran(monkeypatch, (hung, lambda: now[0]))
    assert {case.outcome for case in found} == {Outcome.NOT_RUN}
    assert found[0].why.startswith("not in time: no request ended")


@pytest.mark.slow
@pytest.mark.images
def test_llama_benchy_for_real(tmp_path: Path) -> None:
    python = benchy.python(cache.root(), print)
    words = bench_server.tokenizer(tmp_path)
    sizes = (Size(256, 16, RUNS), Size(512, 16, RUNS))
    with bench_server.serving(bench_server.Behaviour(prefill=4000, decode=100)) as url:
        bench = ShortBench(python, Target(url, "little", words), None, ("cpu",), 120.0, sizes)
        found = [*short_bench.run(bench, lambda *_: None)]
    assert [case.outcome for case in found] == [Outcome.PASSED] * 2
    assert float(found[0].measured["decode t/s"]) == pytest.approx(100, rel=0.2)
