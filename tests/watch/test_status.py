# SPDX-License-Identifier: Apache-2.0
"""`stack watch status`: when the nightly run last ran, and which states need a person."""

import json
import os
from datetime import UTC, datetime, timedelta

import pytest

from stack.forge.threads import Thread, ThreadState, WorkflowRun
from stack.watch import marks, status
from stack.watch.marks import IssueMark
from tests import forked
from tests.cli.conftest import Ran

from .world import OWN, Maintainer

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def ran(hours: int, how: str = "success") -> WorkflowRun:
    return WorkflowRun((NOW - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ"), how, "schedule")


def issue(days: int) -> Thread:
    day = (NOW - timedelta(days)).date().isoformat()
    return Thread(4, "t", marks.of_issue("up", IssueMark("a", "a", "a", day)), ThreadState.CLOSED)


def standing(runs: list[WorkflowRun] | None, found: Thread, upstreams: list[str]) -> status.Standing:
    return status.standing(runs, lambda name: found if name == "up" else None, upstreams, NOW)


@pytest.mark.parametrize(
    ("runs", "hours", "failures", "overdue"),
    [
        ([ran(5), ran(29)], 5, 0, False),
        ([ran(1, ""), ran(25), ran(49, "failure")], 1, 0, False),
        ([ran(5, "failure"), ran(29, "timed_out"), ran(53), ran(77, "failure")], 5, 2, False),
        ([ran(51)], 51, 0, True),
        ([WorkflowRun("soon", "success", "schedule")], None, 0, True),
        ([], None, 0, True),
    ],
)
def test_runs(runs: list[WorkflowRun], hours: int | None, failures: int, overdue: bool) -> None:
    found = standing(runs, issue(0), ["up"])
    assert found.runs is not None
    assert (found.runs.hours, found.runs.failures, found.runs.overdue) == (hours, failures, overdue)
    assert found.needs_person is (overdue or failures > 0)


@pytest.mark.parametrize(("days", "late"), [(0, False), (8, False), (9, True)])
@pytest.mark.parametrize("runs", [None, [], [ran(51)]], ids=["no workflow", "no run", "overdue"])
def test_the_date_in_the_issue_counts_where_the_forge_shows_no_run(
    runs: list[WorkflowRun] | None, days: int, late: bool
) -> None:
    found = standing(runs, issue(days), ["up"])
    assert (found.issues[0].days, found.issues[0].late, found.needs_person) == (days, late, True)


def test_an_old_date_is_fine_while_the_workflow_runs() -> None:
    found = standing([ran(5)], issue(200), ["up"])
    assert (found.issues[0].days, found.issues[0].late, found.needs_person) == (200, False, False)


def test_an_upstream_without_an_issue_is_late() -> None:
    found = standing([ran(5)], issue(0), ["up", "other"])
    assert [each.late for each in found.issues] == [False, True]


def test_the_verb(me: Maintainer) -> None:
    def verb(*args: str) -> Ran:
        done = forked.run([*me.args, "watch", *args], env=dict(os.environ))
        return Ran(done.returncode, done.stdout, done.stderr)

    assert verb("status").code == 1
    assert json.loads(verb("status", "--json").out)["runs"] is None
    verb("run")
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    me.hub.repositories[OWN].runs["stack-watch.yml"] = [(began, "success")]
    told = verb("status", "--json")
    assert told.code == 0
    found = json.loads(told.out)
    assert (found["runs"]["hours"], found["upstreams"][0]["issue"], found["needs_person"]) == (0, 1, False)
    assert "up" in verb("status").out
