# SPDX-License-Identifier: Apache-2.0
"""The plan of writes: nothing is written twice, and a part of a plan is always completed by the next one."""

import copy
import itertools
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.carry.outcome import Outcome
from stack.forge.repositories import PullState
from stack.forge.threads import Thread, ThreadState
from stack.watch import marks, plan
from stack.watch.night import CarriedRelease, Night
from stack.watch.plan import BranchTip
from stack.watch.writes import AddComment, EditIssue, EditPull, OpenIssue, OpenPull, PushBranch, RemoveLabel, Write

from ..carry.trees import PROPERTY
from .model import US, Model, carried, night, trusts

DAY = date(2026, 11, 27)
FINE, BAD, WORSE = night(Outcome.CLEAN), night(Outcome.CONFLICT), night(Outcome.CONFLICT, Outcome.DRIFTED)


def planned(model: Model, found: Night, today: date = DAY, page: str = "") -> tuple[Write, ...]:
    return plan.for_issue(found, plan.find_issue(model.issues, "gamma", trusts), model.ours, today, page=page)


def run(model: Model, found: Night, today: date = DAY, most: int = 99, page: str = "") -> list[Write]:
    """Carry plans out until one is empty; `most` writes, then the run is killed."""
    done: list[Write] = []
    while len(done) < most and (writes := planned(model, found, today, page)):
        for write in writes[: most - len(done)]:
            model.apply(write)
            done.append(write)
        assert len(done) < 9, done
    return done


def kinds(writes: list[Write]) -> list[type]:
    return [type(write) for write in writes]


def test_the_first_night_opens_an_issue_and_the_next_ones_write_nothing() -> None:
    model = Model()
    assert kinds(run(model, BAD)) == [OpenIssue]
    for night_number in range(1, 7):
        assert run(model, BAD, DAY + timedelta(night_number)) == []


def test_an_issue_without_a_need_is_closed_and_stays_closed() -> None:
    model = Model()
    assert kinds(run(model, FINE)) == [OpenIssue, EditIssue]
    assert model.issues[0].state is ThreadState.CLOSED
    assert run(model, FINE, DAY + timedelta(1)) == []


def test_it_is_reopened_when_it_comes_back_and_says_so_once() -> None:
    model = Model()
    run(model, BAD)
    assert kinds(run(model, FINE)) == [EditIssue, AddComment]
    assert model.issues[0].state is ThreadState.CLOSED
    assert kinds(run(model, BAD)) == [EditIssue, AddComment]
    assert model.issues[0].state is ThreadState.OPEN
    assert len(model.issues) == 1


def test_the_heartbeat_is_renewed_after_a_week_without_a_comment() -> None:
    model = Model()
    run(model, BAD)
    later = DAY + timedelta(plan.RENEWED)
    assert kinds(run(model, BAD, later)) == [EditIssue]
    assert f"Last written on {later.isoformat()}" in model.issues[0].body
    assert run(model, BAD, later) == []


@pytest.mark.parametrize(("page", "writes"), [("https://forge/me/stack/actions", 0), ("", 4)])
def test_thirty_nights_without_a_change(page: str, writes: int) -> None:
    """Where the forge shows when the workflow ran, nothing is written. Elsewhere the date is renewed every week."""
    model = Model()
    run(model, BAD, page=page)
    made = [write for day in range(1, 31) for write in run(model, BAD, DAY + timedelta(day), page=page)]
    assert kinds(made) == [EditIssue] * writes
    assert ("This date is renewed at least every week" in model.issues[0].body) is not bool(page)


def test_a_forge_that_shows_no_runs_any_more_gets_the_date_back() -> None:
    model = Model()
    run(model, BAD, page="https://forge/me/stack/actions")
    assert kinds(run(model, BAD)) == [EditIssue]
    assert run(model, BAD) == []


def test_a_new_commit_of_main_changes_the_text_without_a_comment() -> None:
    model = Model()
    run(model, BAD)
    assert kinds(run(model, night(Outcome.CONFLICT, main="def"))) == [EditIssue]
    assert "`def`" in model.issues[0].body


def test_who_closes_it_has_their_way_until_the_outcome_changes() -> None:
    model = Model()
    run(model, BAD)
    model.person("close")
    assert run(model, BAD) == []
    assert kinds(run(model, night(Outcome.CONFLICT, main="def"))) == [EditIssue]
    assert model.issues[0].state is ThreadState.CLOSED
    run(model, WORSE)
    assert model.issues[0].state is ThreadState.OPEN


def test_hold_and_retry() -> None:
    model = Model()
    run(model, BAD)
    model.person("close")
    model.person("retry")
    model.person("hold")
    assert run(model, WORSE) == []
    model.person("release")
    assert kinds(run(model, BAD)) == [EditIssue, RemoveLabel]
    assert (model.issues[0].state, model.issues[0].labels) == (ThreadState.OPEN, ())


def test_a_stranger_cannot_offer_an_issue_or_an_outcome() -> None:
    theirs = Thread(1, "t", run(Model(), BAD)[0].body, ThreadState.OPEN, author="stranger")  # type: ignore[union-attr]
    model = Model([theirs])
    assert kinds(run(model, BAD)) == [OpenIssue]
    model.person("comment")
    assert run(model, BAD) == []
    assert model.issues[0] == theirs


@pytest.mark.parametrize("depth", [900, 100_000])
def test_a_stranger_cannot_stop_the_night_with_a_nested_mark(depth: int) -> None:
    state = '{"day": ' + "[" * depth + "]" * depth + "}"
    theirs = Thread(1, "t", f"<!-- stack-watch issue gamma {state} -->", ThreadState.OPEN, author="stranger")
    assert kinds(run(Model([theirs]), BAD)) == [OpenIssue]
    assert marks.pull(f"<!-- stack-watch pull gamma {state} -->", "gamma") is not None


@pytest.mark.parametrize("state", ["{}", '{"day": "soon", "opened": 3}', "{[}", '{"day": "9999-99-99"}'])
def test_a_damaged_mark_is_written_anew(state: str) -> None:
    model = Model([Thread(1, "t", f"<!-- stack-watch issue gamma {state} -->\ntext", ThreadState.OPEN, author=US)])
    assert EditIssue in kinds(run(model, BAD))
    assert run(model, BAD) == []
    assert len(model.issues) == 1


NIGHTS = st.lists(st.sampled_from(Outcome), min_size=1, max_size=3).map(lambda outcomes: night(*outcomes))
ACTS = st.sampled_from(["close", "reopen", "hold", "release", "retry", "comment", "nothing"])


@PROPERTY
@given(st.lists(st.tuples(NIGHTS, ACTS, st.integers(0, 3)), max_size=8), NIGHTS)
def test_nights_that_are_killed_leave_one_issue_and_lose_nothing(nights: list[tuple[Night, str, int]], last: Night) -> None:
    model = Model()
    for number, (found, act, writes) in enumerate(nights):
        today = DAY + timedelta(number)
        whole = copy.deepcopy(model)
        run(whole, found, today)
        run(model, found, today, writes)
        run(model, found, today)
        assert (model.issues, model.comments) == (whole.issues, whole.comments)
        assert run(model, found, today) == []
        assert len(model.issues) == 1
        run(model, found, today, writes)
        model.person(act)
    model.person("release")
    run(model, last, DAY + timedelta(99))
    [issue] = model.issues
    told = [outcome for each in model.ours if (outcome := marks.comment(each.body))]
    assert all(before != after for before, after in itertools.pairwise(told))
    mark = marks.issue(issue.body, "gamma")
    assert mark is not None
    assert (told or [mark.opened])[-1] == last.outcome == mark.outcome


def run_pull(model: Model, found: CarriedRelease | None, most: int = 99) -> list[Write]:
    done: list[Write] = []
    while len(done) < most and (writes := plan.for_pull("gamma", found, model.tip, model.pulls)):
        for write in writes[: most - len(done)]:
            model.apply(write)
            done.append(write)
        assert len(done) < 9, done
    return done


def test_a_release_gets_one_draft() -> None:
    model = Model()
    assert kinds(run_pull(model, carried())) == [PushBranch, OpenPull]
    assert run_pull(model, carried()) == []
    assert kinds(run_pull(model, carried(commit="c2"))) == [PushBranch]
    assert kinds(run_pull(model, carried("v2.2", "c3"))) == [PushBranch, EditPull]
    assert [pull.title for pull in model.pulls] == ["Carry the stack to gamma v2.2"]


def test_commits_of_a_person_are_never_overwritten() -> None:
    model = Model()
    run_pull(model, carried())
    model.person("commit")
    before = copy.deepcopy(model)
    assert run_pull(model, carried("v2.2", "c3")) == []
    assert run_pull(model, None) == []
    model.person("retry")
    assert run_pull(model, carried("v2.2", "c3")) == []
    assert model.tip == before.tip
    assert "commits of a person" in plan.pull_note("gamma", carried(), model.tip, model.pulls)


def test_a_pull_request_that_was_closed_stays_closed_until_the_next_release_or_retry() -> None:
    model = Model()
    run_pull(model, carried())
    model.person("close")
    assert run_pull(model, carried(commit="c2")) == []
    model.person("retry")
    assert kinds(run_pull(model, carried(commit="c2"))) == [PushBranch, OpenPull, RemoveLabel]
    model.person("close")
    assert kinds(run_pull(model, carried("v2.2", "c3"))) == [PushBranch, OpenPull]


def test_a_pull_request_that_is_out_of_date_is_closed() -> None:
    model = Model()
    run_pull(model, carried())
    assert kinds(run_pull(model, None)) == [EditPull]
    assert model.pulls[0].state is PullState.CLOSED
    assert run_pull(model, None) == []


def test_a_lane_has_a_pull_request_of_its_own() -> None:
    """That of `main` is not taken for it, and the other way round."""
    lane = carried(lane="old", branch="stack-watch-lanes/gamma/old")
    model = Model()
    run_pull(model, carried())
    [push, opened] = plan.for_pull("gamma/old", lane, None, model.pulls)
    assert isinstance(push, PushBranch)
    assert push.branch == "stack-watch-lanes/gamma/old"
    assert isinstance(opened, OpenPull)
    assert opened.title == "Carry lane old to gamma v2.1"
    assert marks.pull(opened.body, "gamma/old") is not None
    assert marks.pull(opened.body, "gamma") is None


def test_a_branch_that_somebody_else_made_is_left_alone() -> None:
    model = Model(tip=BranchTip("theirs", False))
    assert run_pull(model, carried()) == []


PULL_ACTS = st.sampled_from(["close", "hold", "release", "retry", "commit", "nothing"])
RELEASES = st.sampled_from([carried(release, commit) for release, commit in (("v2.1", "a"), ("v2.1", "b"), ("v2.2", "c"))])


@PROPERTY
@given(st.lists(st.tuples(st.none() | RELEASES, PULL_ACTS, st.integers(0, 3)), max_size=10))
def test_killed_nights_leave_at_most_one_open_pull_request(nights: list[tuple[CarriedRelease | None, str, int]]) -> None:
    model = Model()
    theirs = None
    for found, act, writes in nights:
        whole = copy.deepcopy(model)
        run_pull(whole, found)
        run_pull(model, found, writes)
        run_pull(model, found)
        assert (model.pulls, model.tip) == (whole.pulls, whole.tip)
        assert run_pull(model, found) == []
        assert sum(pull.state.lives for pull in model.pulls) <= 1
        assert theirs in (None, model.tip)
        model.person(act)
        theirs = model.tip if model.tip is not None and not model.tip.ours else None
