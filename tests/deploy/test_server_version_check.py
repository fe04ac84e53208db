# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.deploy import server_version_check
from stack.model.verdict import Outcome
from tests.validation.factories import STACK


@pytest.mark.parametrize(
    ("version", "outcome"),
    [
        (None, Outcome.NOT_RUN),
        ("0.32.0", Outcome.NOT_RUN),
        ("0.32.0+cu130", Outcome.NOT_RUN),
        ("0.32.0+gcc", Outcome.NOT_RUN),
        ("0.32.1.dev3+g5df63a720", Outcome.NOT_RUN),  # as upstream's own builds say their commit: nine digits
        ("0.32.0+sm121.gaaaaaaaa", Outcome.PASSED),
        ("0.32.0+sm121.gaaaaaaaa.cpu", Outcome.PASSED),
        ("0.32.0+sm121.gaaaaaaaa.src", Outcome.PASSED),
        ("0.32.0+sm121.gaaaaaaaa.cpu.src", Outcome.PASSED),
        ("0.32.0+sm121.gaaaaaaab", Outcome.FAILED),
        ("0.32.0+sm121.gaaaaaaab.src", Outcome.FAILED),
    ],
)
def test_a_version_says_of_which_stack_a_server_is(version: str | None, outcome: Outcome) -> None:
    case = server_version_check.case("bench/stack", version, STACK)
    assert case.outcome is outcome
    assert bool(case.why) == (outcome is not Outcome.PASSED)
    assert case.measured == ({} if version is None else {"version": version})
