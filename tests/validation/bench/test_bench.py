# SPDX-License-Identifier: Apache-2.0
"""llama-benchy for real, against a server of known speed, and one that lies."""

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from stack.model.verdict import Outcome, Weights
from stack.store import cache
from stack.validation.bench import benchy, suite
from stack.validation.bench.baseline import Baseline, MeasuredSubject
from stack.validation.bench.benchy import Size, Target, UnmeasuredError
from stack.validation.bench.statistics import Ranking, compare
from stack.validation.suite import Job

from ..factories import CPU
from .server import Behaviour, serving, tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.images]

SIZE = Size(256, 16, 3)
SUBJECT = MeasuredSubject("little", Weights.TINY, CPU, {"vllm": "5df63a720"}, "llama-benchy 0.4.0")


@pytest.fixture(scope="module")
def python() -> Path:
    return benchy.python(cache.root(), print)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer(tmp_path_factory.mktemp("tokenizer"))


def measure(python: Path, words: Path, behaviour: Behaviour, size: Size = SIZE, patience: float = 60) -> benchy.Measured:
    with serving(behaviour) as url:
        return benchy.measure(python, Target(url, "little", words), size, lambda done: None, patience)


def test_known_speeds_are_measured(python: Path, words: Path) -> None:
    found = measure(python, words, Behaviour(prefill=2000, decode=100), replace(SIZE, runs=4))
    assert len(found.prefill) == len(found.decode) == 4
    assert statistics.median(found.decode) == pytest.approx(100, rel=0.1)
    assert statistics.median(found.prefill) == pytest.approx(2000, rel=0.2)
    assert statistics.median(found.ttfr) == pytest.approx(1000 * 256 / 2000, rel=0.25)
    assert benchy.version(python) == "0.4.0"


def test_counts_without_token_ids_are_believed_where_the_text_agrees(python: Path, words: Path) -> None:
    assert statistics.median(measure(python, words, Behaviour(lie="no ids")).decode) == pytest.approx(200, rel=0.2)


LIES = {
    "refuses": "failed: HTTP 500",
    "breaks off": "brought 5 tokens, requested were 16",
    "hangs": "no request ended for 6 s",
    "no tokens": "brought no text; the server claims 16 tokens",
    "many in one": "the server claims 16 tokens, its text has 2",
    "stops early": "brought 5 tokens, requested were 16",
    "usage only": "the server claims 16 tokens, its text has 4",
    "thrice the ids": "brought 48 tokens, requested were 16",
    "long prompts": "the server claims to have read 512 tokens, about 256 were sent",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_does_not_become_a_number(python: Path, words: Path, lie: str) -> None:
    with pytest.raises(UnmeasuredError) as caught:
        measure(python, words, Behaviour(lie=lie), replace(SIZE, runs=1), patience=6 if lie == "hangs" else 60)
    assert LIES[lie] in str(caught.value)


def test_a_server_that_is_not_there_is_no_number(python: Path, words: Path) -> None:
    with pytest.raises(UnmeasuredError, match="llama-benchy ended with 1"):
        benchy.measure(python, Target("http://127.0.0.1:9/v1", "little", words), SIZE, lambda done: None)


def test_a_tokenizer_that_does_not_load_is_not_replaced_by_another(python: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with serving(Behaviour()) as url, pytest.raises(UnmeasuredError, match="llama-benchy ended with"):
        benchy.measure(python, Target(url, "little", tmp_path / "tokenizer.json"), SIZE, lambda done: None)


def test_cases_of_a_run(python: Path, words: Path) -> None:
    baselines = [
        Baseline("goal", "somebody", "2026-01", "x", "little", Weights.TINY, (), CPU.cpu, CPU.cores, None, {"256": (10.0,)}),
        Baseline(
            *("fast", "somebody", "2026-01", "x", "little", Weights.TINY, (), CPU.cpu, CPU.cores),
            decode={"16": {"any": (1000.0, 1001.0, 1002.0)}, "64": {"any": (1.0,)}},
        ),
        Baseline("far", "somebody", "2026-01", "x", "little", Weights.REAL, ("NVIDIA GB10",), prefill={"256": (1.0,)}),
    ]
    with serving(Behaviour()) as url:
        bench = suite.Bench(python, Target(url, "little", words), SUBJECT, [SIZE, Size(4000, 32, 3)], baselines, length=4096)
        told: list[int] = []
        cases = list(bench(Job(tell=lambda step, done, total: told.append(done))))
    ended = {case.name: case.outcome for case in cases}
    by_name = {case.name: case for case in cases}
    one = suite.measured(by_name["bench/pp256-tg16"])
    assert one is not None
    # How far runs of so little lie apart depends on what else the machine does, and with it what can be said of them.
    goal = compare(one.prefill, (10.0,)).way
    assert goal is not Ranking.WORSE
    assert ended == {
        "bench/pp256-tg16": Outcome.PASSED,
        "bench/pp4000-tg32": Outcome.NOT_RUN,
        "bench/against/goal/pp256": Outcome.NOT_RUN if goal is Ranking.NOT_COMPARABLE else Outcome.PASSED,
        "bench/against/fast/pp256-tg16": Outcome.FAILED,
        "bench/against/far": Outcome.NOT_RUN,
    }
    assert by_name["bench/pp4000-tg32"].why == "the server takes 4096 tokens in a request, this size needs 4160"
    assert by_name["bench/against/goal/pp256"].measured.get("outcome", goal.value) == goal.value
    assert by_name["bench/against/far"].why == "not comparable: another model: little, real weights"
    assert "worse than somebody (2026-01): " in by_name["bench/against/fast/pp256-tg16"].why
    assert {case.needs for case in cases} == {("cpu",)}
    assert told[-1] == 3
    # The numbers in the case are those that were measured, and can be had back from it.
    assert one.size == SIZE
    assert statistics.fmean(one.decode) == pytest.approx(float(by_name["bench/pp256-tg16"].measured["decode t/s"]), rel=1e-4)
    head, line, prefill, decode = suite.table("little", [one]).splitlines()
    assert head == "| model | test | t/s | peak t/s | ttfr (ms) | est_ppt (ms) | e2e_ttft (ms) |"
    assert prefill.startswith("| little | pp256 | ")
    assert f"| {statistics.fmean(one.decode):.2f} ± {statistics.pstdev(one.decode):.2f} |" in decode
    assert head.count("|") == line.count("|") == prefill.count("|") == decode.count("|")
    # A second run of a known case measures nothing and compares all the same: the server is gone by now.
    known = {"bench/pp256-tg16": by_name["bench/pp256-tg16"]}
    again = {case.name: case.outcome for case in bench(Job(only=("*256*", "*far"), known=known))}
    assert again == {name: outcome for name, outcome in ended.items() if "against" in name}


def test_a_prompt_that_is_read_at_once_has_no_speed(python: Path, words: Path) -> None:
    """Its time is the server's latency, which every request has."""
    with serving(Behaviour(prefill=1e9, lie="slow lists")) as url:
        [case] = suite.Bench(python, Target(url, "little", words), SUBJECT, [SIZE], [])(Job())
    assert case.outcome is Outcome.NOT_RUN
    assert case.why == "256 tokens take less time than the list of the server's models: measure more"


def test_a_run_that_stands_apart_is_shown(python: Path, words: Path) -> None:
    # The first generation warms up, so the third is the second run. At 50 tokens a second a busy machine, which
    # delays a token by a few milliseconds, changes a run's speed by far less than the slow run's.
    with serving(Behaviour(decode=50, slow_request=2)) as url:
        [case] = suite.Bench(python, Target(url, "little", words), SUBJECT, [replace(SIZE, runs=5)], [])(Job())
    apart = str(case.measured["decode apart"]).split(", ")
    assert any(one.startswith("run 2: ") for one in apart), "others may stand apart too where the machine has more to do"
    assert len(str(case.measured["decode runs"]).split()) == 5
