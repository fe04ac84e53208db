# SPDX-License-Identifier: Apache-2.0
"""What is recorded of a validation: verdicts of the very stack at hand, and proofs on upstream's tree."""

from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model import digest, verdict
from stack.model import stack as stacks
from stack.model.ids import CommitId, Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Machine, Outcome, Pinned, Verdict
from stack.proof.series_proofs import ProofState, Result
from stack.upstreaming import evidence
from tests.model.factories import GATING, PINS, patch, write

from .linting import factories

MINE = factories.proposal(factories.patch())
PASSED, FAILED, NOT_RUN = (
    Result(ProofState.PASSES),
    Result(ProofState.FAILS, "test_a failed"),
    Result(ProofState.NOT_RUN, "no torch"),
)


@pytest.fixture
def carried(tmp_path: Path) -> Stack:
    files = {
        "gating/series.toml": GATING,
        "gating/vllm/gate-kernels.patch": patch().decode(),
        "stack.toml": 'series = ["gating"]\n',
    }
    write(tmp_path / "stacks", files)
    (tmp_path / "pins.toml").write_text(PINS)
    return stacks.load(tmp_path)


def keep(
    carried: Stack, *cases: Case, place: str = "validation/verdicts/a.json", of: Sha256 | None = None, recipe: str | None = None
) -> None:
    one = Verdict(
        of or digest.of(carried),
        {"vllm": Pinned("aaaaaaa", "v1.0.0")},
        "2026-11-21T21:40:00Z",
        Machine("Linux 6", "x86_64", "A CPU", 4, 10**9),
        {},
        cases,
        recipe=recipe,
    )
    file = carried.root / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(verdict.write(one))


def found(carried: Stack) -> evidence.Evidence:
    return evidence.evidence(MINE, evidence.verdicts(carried))


def test_nothing_is_recorded(carried: Stack) -> None:
    assert found(carried) == evidence.Evidence()
    assert not found(carried).proves


def test_of_its_series_every_case_and_of_others_sums(carried: Stack) -> None:
    cases = (
        Case("serve/series/moe/proved", Outcome.PASSED),
        Case("serve/series/other/proved", Outcome.PASSED),
        Case("serve/series/moe/effect", Outcome.NOT_RUN, "no GPU"),
    )
    keep(carried, *cases, recipe="cpu")
    rows = found(carried).rows
    assert [(row.command, row.outcome, row.own) for row in rows] == [
        ("stack validate serve --recipe cpu", "moe/proved: passed", True),
        ("stack validate serve --recipe cpu", "moe/effect: were not run (no GPU)", True),
        ("stack validate serve --recipe cpu", "serve, all of the stack: 2 passed, 1 not run", False),
    ]
    assert {row.where for row in rows} == {"A CPU, 2026-11-21; vllm v1.0.0"}
    assert found(carried).proves


def test_what_is_of_the_stack_as_a_whole_proves_no_single_change(carried: Stack) -> None:
    keep(carried, Case("kernels/a", Outcome.PASSED), Case("kernels/b", Outcome.FAILED, "worse"))
    assert [row.outcome for row in found(carried).rows] == ["kernels, all of the stack: 1 passed, 1 failed"]
    assert not found(carried).proves


def test_another_stacks_verdicts_do_not_count(carried: Stack) -> None:
    keep(carried, Case("serve/series/moe/proved", Outcome.PASSED), of=Sha256("0" * 64))
    assert found(carried) == evidence.Evidence()


def test_a_verdict_that_was_edited_is_refused(carried: Stack) -> None:
    keep(carried, Case("serve/series/moe/proved", Outcome.FAILED, "it failed"))
    file = carried.root / "validation/verdicts/a.json"
    file.write_text(file.read_text().replace("it failed", "it did not"))
    with pytest.raises(StackError, match="was altered"):
        found(carried)


def test_speeds_are_measurements(carried: Stack) -> None:
    ratio = Case("bench/padding/decode/512", Outcome.PASSED, measured={"ratio": 1.03, "tok/s": 275.0})
    failed = Case("bench/x/decode/512", Outcome.FAILED, "a request hung", measured={"tok/s": 1.0})
    keep(carried, ratio, failed, Case("kernels/a", Outcome.PASSED))
    assert [one.name for one in found(carried).measured] == ["bench/padding/decode/512"]
    assert {row.command for row in found(carried).rows} == {"stack validate pack"}


@pytest.mark.parametrize(("result", "proves"), [(PASSED, True), (FAILED, False), (NOT_RUN, False)])
def test_proofs_are_recorded_as_they_ended(carried: Stack, result: Result, proves: bool) -> None:
    evidence.record(carried, [replace(MINE, proof=result)])
    (row,) = found(carried).rows
    assert (row.own, row.passed, found(carried).proves) == (True, proves, proves)
    assert row.command == "stack export-pr moe --upstream vllm --onto v1.0"
    assert result.reason in row.outcome


def test_a_record_counts_for_the_same_change_on_the_same_base_only(carried: Stack) -> None:
    evidence.record(carried, [replace(MINE, proof=PASSED)])
    recorded = evidence.verdicts(carried)
    changed = factories.proposal(factories.patch(diff=factories.DIFF.replace("+b", "+c")))
    for other in (
        changed,
        replace(MINE, base=CommitId("2" * 40)),
        replace(MINE, needs=("vllm/x",)),
        replace(MINE, slug="other"),
    ):
        assert not evidence.evidence(other, recorded).rows
    assert evidence.evidence(MINE, recorded).proves


def test_what_was_recorded_of_others_stays(carried: Stack) -> None:
    other = replace(MINE, slug="other", proof=PASSED)
    evidence.record(carried, [replace(MINE, proof=FAILED), other])
    evidence.record(carried, [replace(MINE, proof=PASSED)])
    evidence.record(carried, [MINE])  # planned without tests
    recorded = evidence.verdicts(carried)
    assert evidence.evidence(MINE, recorded).proves
    assert evidence.evidence(other, recorded).proves


def test_a_record_that_cannot_be_written_is_a_line(carried: Stack) -> None:
    (carried.root / ".stack").write_text("no folder")
    with pytest.raises(StackError, match="cannot be written"):
        evidence.record(carried, [replace(MINE, proof=PASSED)])


def test_another_stacks_record_is_replaced(carried: Stack) -> None:
    keep(carried, Case("proof/vllm/moe-other", Outcome.PASSED), place=evidence.RECORD, of=Sha256("0" * 64))
    evidence.record(carried, [replace(MINE, proof=PASSED)])
    assert [case.name for case in verdict.load(carried.root / evidence.RECORD).cases] == ["proof/vllm/moe-guard"]


def test_a_lanes_record_is_its_own(carried: Stack) -> None:
    """Even if a lane carries the same: what was run for it is not said of another one."""
    old, twin = (replace(carried, lane=name) for name in ("old", "twin"))
    evidence.record(old, [replace(MINE, lane="old", proof=PASSED)])
    assert evidence.evidence(replace(MINE, lane="old"), evidence.verdicts(old)).proves
    assert not evidence.verdicts(carried)
    assert not evidence.verdicts(twin)
    evidence.record(carried, [replace(MINE, proof=PASSED)])
    assert not evidence.verdicts(twin)
    assert len(evidence.verdicts(old)) == len(evidence.verdicts(carried)) == 1
    assert not evidence.evidence(MINE, evidence.verdicts(old)).rows
