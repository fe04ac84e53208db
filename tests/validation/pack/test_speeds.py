# SPDX-License-Identifier: Apache-2.0
"""What is kept of servers' speeds for the run that resumes another."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model.errors import StackError
from validation.pack.checks import Speed
from validation.pack.speeds import kept

OURS, THEIRS = "bench/decode/decode/512", "bench/upstream/decode/512"
RUNS = st.lists(st.floats(0.001, 1e6), min_size=1, max_size=5).map(tuple)


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    file = tmp_path / "boot_id"
    file.write_text("5f1d\n")
    return file


@settings(deadline=None)  # files
@given(st.dictionaries(st.text(max_size=20), RUNS, max_size=4))
def test_what_was_measured_is_there_again(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, tuple[float, ...]]) -> None:
    file = tmp_path_factory.mktemp("kept") / "speeds.json"
    first = kept(file, ())
    for case, one in runs.items():
        first.add(case, Speed(one))
    assert kept(file, runs).measured == {case: Speed(one) for case, one in runs.items()}


def test_a_case_that_is_not_resumed_is_measured_again(tmp_path: Path, boot: Path) -> None:
    kept(tmp_path / "speeds.json", (), boot).add(OURS, Speed((338.5,)))
    later = kept(tmp_path / "speeds.json", {THEIRS}, boot)
    assert later.measured == {}
    later.add(THEIRS, Speed((226.3,)))
    assert set(kept(tmp_path / "speeds.json", {OURS, THEIRS}, boot).measured) == {THEIRS}


def test_speeds_from_before_the_machine_was_started_are_of_another(tmp_path: Path, boot: Path) -> None:
    file = tmp_path / "speeds.json"
    kept(file, (), boot).add(THEIRS, Speed((226.3,)))
    assert kept(file, {THEIRS}, boot).measured == {THEIRS: Speed((226.3,))}
    boot.write_text("77aa\n")
    later = kept(file, {THEIRS}, boot)
    assert later.measured == {}
    later.add(OURS, Speed((338.5,)))
    assert kept(file, {OURS, THEIRS}, boot).measured == {OURS: Speed((338.5,))}


@pytest.mark.parametrize(
    "said",
    [
        "",
        "{",
        "[" * 10**5,
        "[]",
        '{"boot": "5f1d"}',
        '{"boot": 7, "runs": {}}',
        '{"boot": "5f1d", "runs": {"bench/decode/decode/512": []}}',
        '{"boot": "5f1d", "runs": {"bench/decode/decode/512": [0.0]}}',
        '{"boot": "5f1d", "runs": {"bench/decode/decode/512": [NaN]}}',
        '{"boot": "5f1d", "runs": {"bench/decode/decode/512": ["fast"]}}',
    ],
)
def test_no_record_of_speeds_is_refused(tmp_path: Path, boot: Path, said: str) -> None:
    file = tmp_path / "speeds.json"
    file.write_text(said)
    with pytest.raises(StackError, match=r"speeds\.json"):
        kept(file, {OURS}, boot)
