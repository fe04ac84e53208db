# SPDX-License-Identifier: Apache-2.0
"""Evidence of a conflict names the commit that changed the patch's lines, on the way over several releases and without it."""

import pytest

from stack.carry import blame
from stack.carry.outcome import Outcome
from stack.carry.rebase import Request, rebase
from stack.carry.triage import Range, triage

from .importing.conftest import Project, project, web

__all__ = ["project"]


@pytest.fixture
def near(project: Project) -> dict[str, str]:
    """Upstream changes the line beside the patch's thrice and changes it back; a release later it changes the patch's line."""
    project.clone.commit(web({10: "mine"}), "Mine")
    project.bring(project.clone.path, "mine")
    release = {100: "release"}
    commits = {
        name: project.remote.commit(web(release | lines), name)
        for name, lines in (("Near", {11: "x"}), ("Nearer", {11: "y"}), ("Nearest", {11: "z"}), ("Back", {30: "far"}))
    }
    project.remote.tag("release-1.2.0")
    commits["Hit"] = project.remote.commit(web(release | {30: "far", 10: "theirs"}), "Hit")
    commits["After"] = project.remote.commit(web(release | {30: "far", 10: "theirs", 60: "after"}), "After")
    project.remote.tag("release-1.3.0")
    return commits


def test_a_conflict_names_the_commit_of_its_lines(project: Project, near: dict[str, str]) -> None:
    for through in ((), ("auto",)):
        with project.stores() as stores:
            (leg,) = rebase(stores, Request("web", "release-1.3.0", through=through)).legs
        (row,) = leg.carry.rows
        assert (row.outcome, len(leg.carry.rungs)) == (Outcome.CONFLICT, 1 + len(through))
        assert [(one.commit, one.subject) for one in row.conflicts[0].upstream] == [(near["Hit"], "Hit")], through


def test_triage_names_it_too(project: Project, near: dict[str, str]) -> None:
    [file] = (project.root / "stacks").rglob("*.patch")
    for rungs in ((), ("release-1.2.0",)):
        span = Range("release-1.1.0", "release-1.3.0", rungs)
        (row,) = triage(project.remote.path, span, [file], cache=project.place / "cache").rows
        assert [one.subject for one in row.carried.conflicts[0].upstream] == ["Hit"], rungs


@pytest.mark.parametrize(
    ("held", "place"),
    [
        ("", None),
        ("0", None),
        ("1", 0),
        ("01", 1),
        ("10", None),
        ("1101", 3),
        ("0110111", 4),
        ("1" * 300, 0),
        ("0" * 9 + "1" * 300, 9),
    ],
)
def test_where_it_begins(held: str, place: int | None) -> None:
    assert blame.begins(held, lambda one: one == "1") == place


def test_long_histories_are_bisected() -> None:
    asked = []

    def holds(one: int) -> bool:
        asked.append(one)
        return one >= 5000

    assert blame.begins(range(10_000), holds) == 5000
    assert len(asked) < 100
