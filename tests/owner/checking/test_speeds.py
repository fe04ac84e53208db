# SPDX-License-Identifier: Apache-2.0
"""Measured speeds beside published ones and the limit."""

import pytest

from stack.deploy import hardware, recipes
from stack.deploy.data import DATA
from stack.model.verdict import Case, Gpu, Machine, Outcome, Weights
from stack.owner.checking import speeds
from stack.validation.bench import baseline
from stack.validation.bench.baseline import MeasuredSubject
from stack.validation.bench.benchy import Measured, Size
from stack.validation.bench.suite import case_name, numbers

SPARK = Machine(
    "Linux 6.17.0", "aarch64", "Cortex-X925", 20, 128 * 10**9, gpus=(Gpu("NVIDIA GB10", "12.1", None, "580.95.05"),)
)
SUBJECT = MeasuredSubject("openai/gpt-oss-120b", Weights.REAL, SPARK)
BASELINES = baseline.load(DATA / "baselines")


def case(prompt: int, answer: int, decode: float) -> Case:
    runs = (1.0, 1.0, 1.0)
    size = Size(prompt, answer, 3)
    measured = Measured(size, runs, (5000.0,) * 3, (decode - 1, decode, decode + 1), runs, runs, runs, runs)
    return Case(case_name(size), Outcome.PASSED, measured=numbers(measured))


def test_the_best_published_speed_of_this_hardware() -> None:
    limits = speeds.limits(recipes.load("gpt-oss-120b-spark"), hardware.load("spark"), (512, 2048))
    found = [*speeds.of([case(2048, 32, 61.6), case(512, 32, 60.0)], SUBJECT, BASELINES, limits)]
    assert [each.test for each in found] == ["pp512", "pp2048", "tg32 after 512", "tg32 after 2048"]
    first = found[2]
    assert first.published is not None
    assert first.published.speed == 62.44
    assert "community" in first.published.source
    assert first.limit == pytest.approx(82, rel=0.05)
    assert first.of_limit == pytest.approx(60 / first.limit)
    assert first.of_published == pytest.approx(60 / 62.44)
    assert found[0].limit is None
    assert found[0].mean == 5000


@pytest.mark.parametrize(
    "subject",
    [
        MeasuredSubject("openai/gpt-oss-20b", Weights.REAL, SPARK),
        MeasuredSubject("openai/gpt-oss-120b", Weights.TINY, SPARK),
        MeasuredSubject("openai/gpt-oss-120b", Weights.REAL, None),
        MeasuredSubject("openai/gpt-oss-120b", Weights.REAL, Machine("Linux", "x86_64", "EPYC", 2, 10**9)),
    ],
)
def test_nothing_is_published_for_anything_else(subject: MeasuredSubject) -> None:
    found = [*speeds.of([case(512, 32, 60.0)], subject, BASELINES, {})]
    assert {(each.published, each.limit) for each in found} == {(None, None)}


def test_a_limit_that_is_not_modelled() -> None:
    assert speeds.limits(None, hardware.load("spark"), (512,)) == {}
    assert speeds.limits(recipes.load("gpt-oss-120b-spark"), None, (512,)) == {}
    assert speeds.limits(recipes.load("gpt-oss"), hardware.load("spark"), (512,)) == {}
