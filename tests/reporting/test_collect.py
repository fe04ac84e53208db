# SPDX-License-Identifier: Apache-2.0
"""Reports of real carries: each patch's outcome at each release, and why."""

from dataclasses import replace

import pytest

from stack.carry.outcome import Outcome, Step
from stack.carry.triage import Triage
from stack.reporting import collect
from stack.reporting.looks import LOOKS
from stack.reporting.report import Report, summary

from .factories import MADE, carried


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Triage:
    return carried(tmp_path_factory.mktemp("ladder"))


@pytest.fixture(scope="module")
def report(result: Triage) -> Report:
    return collect.of_triage(result, base="v1", made=MADE)


def test_each_release_has_its_outcome(report: Report) -> None:
    [ladder] = report.ladders
    cells = {
        row.subject: "".join(
            "." if cell is None else LOOKS[cell.outcome].letter + ("!" if cell.open else "") for cell in row.cells
        )
        for row in ladder.rows
    }
    assert (ladder.old, ladder.new, ladder.releases) == ("v1", "v4", ("v2", "v3", "v4"))
    assert cells == {
        "change same.py": "ccc",
        "change shifted.py": "ccm",
        "change taken.py": "LLL",
        "change half.py": "cPc",
        "change back.py": "LcU!",
        "change names.py": "crc",
        "change old.py": "cnc",
        "change relies.py": "ccD!",
        "change against.py": "cX!X!",
    }


def test_the_last_cell_is_what_the_legend_counts(result: Triage) -> None:
    """A patch that upstream took out again may also conflict with what stands there now."""
    [back] = [row for row in result.rows if row.carried.outcome is Outcome.DROPPED_UPSTREAM]
    steps = (*back.carried.steps[:-1], Step("v4", Outcome.CONFLICT, open=True))
    found = replace(result, rows=(replace(back, carried=replace(back.carried, steps=steps)),))
    [ladder] = collect.of_triage(found, base="v1", made=MADE).ladders
    [row] = ladder.rows
    assert row.cells[-1] is not None
    assert (row.cells[-1].outcome, row.cells[-1].open) == (Outcome.DROPPED_UPSTREAM, True)
    assert ladder.counts == {Outcome.DROPPED_UPSTREAM: 1}


def test_rows_say_where_it_was_decided_and_why(report: Report) -> None:
    rows = {row.subject.removeprefix("change "): row for row in report.ladders[0].rows}
    assert {name for name, row in rows.items() if row.open} == {"back.py", "relies.py", "against.py"}
    assert (rows["against.py"].decided, rows["taken.py"].decided, rows["same.py"].decided) == ("v3", "v2", "")
    first, cause = rows["against.py"].evidence[-2:]
    assert first == "conflict in against.py:10: content"
    assert cause.startswith("  since ") and cause.endswith(" release v3")
    assert any(line.startswith("relies.py:10: ") for line in rows["relies.py"].evidence)
    assert summary(report.ladders[0]) == (
        "9 patches onto v4: 1 clean, 1 moved, 1 landed, 1 partly-landed, 1 dropped-upstream, 1 resolved, 1 relocated, "
        "1 drifted, 1 conflict"
    )
    # A report of a rebase has the others, and those that a person left out with --skip.
    assert set(report.ladders[0].counts) == set(Outcome) - {Outcome.LEFT_OUT}


def test_what_landed_names_commit_and_release(report: Report) -> None:
    [landing] = report.landings
    assert (landing.name, landing.release, landing.subject, landing.carried) == ("taken.py.patch", "v2", "release v2", True)
    assert landing.commit is not None and len(landing.commit) == 12
    assert [patch.added for patch in report.patches] == [1, 1, 6, 6, 6, 1, 1, 1, 1]
    assert all(patch.written is not None for patch in report.patches)
