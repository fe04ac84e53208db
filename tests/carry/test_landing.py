# SPDX-License-Identifier: Apache-2.0
"""What brought a patch, on histories made for it: where its lines stand, how they were reworked, and what only looks like it."""

from pathlib import Path

import pytest

from stack.carry.outcome import Carried, Outcome
from stack.carry.triage import Range, triage
from stack.store import git
from tests.carry.test_triage import Upstream

LONG = [f"value_{number} = compute({number})" for number in range(80)]
GUARD = ["if capability >= 90:", "    trigger_completion()", "else:", "    fence_everything()"]
FUNCTION = ["", "def collect(items, result):", *[f"    result.append(transform(item_{n}, scale={n}))" for n in range(9)]]


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit("Begin", {"a.py": LONG, "b.py": LONG})
    made.tag("base")
    return made


def _base(upstream: Upstream, files: dict[str, list[str] | None]) -> None:
    """Go on with another base."""
    upstream.commit("Base", files)
    git.run(["tag", "--force", "base"], cwd=upstream.folder)


def _carried(upstream: Upstream, patch: Path) -> Carried:
    span = Range("base", "main")
    found = triage(upstream.folder, span, [patch], cache=upstream.patches.parent / "cache", independent=True)
    return found.rows[0].carried


def _with(place: int, lines: list[str], body: list[str] = LONG) -> list[str]:
    return [*body[:place], *lines, *body[place:]]


def _is_landed(carried: Carried) -> bool:
    return carried.outcome is Outcome.LANDED


@pytest.mark.parametrize("near", [[], ["near = 1"]], ids=["clean", "in conflict"])
def test_the_same_guard_elsewhere_in_a_file_is_a_sibling(upstream: Upstream, near: list[str]) -> None:
    patch = upstream.fork("Guard the second", {"a.py": _with(60, GUARD)})
    upstream.commit("Guard the first", {"a.py": _with(20, GUARD)})
    upstream.commit("Go on", {"a.py": _with(20, GUARD, _with(60, near)), "b.py": LONG[1:]})
    carried = _carried(upstream, patch)
    assert carried.outcome in (Outcome.MOVED, Outcome.CONFLICT)
    assert carried.landed is None


def test_behind_a_sibling_the_commit_that_brought_it_is_found(upstream: Upstream) -> None:
    patch = upstream.fork("Guard the second", {"a.py": _with(60, GUARD)})
    upstream.commit("Guard the first", {"a.py": _with(20, GUARD)})
    brought = upstream.commit("Guard the second", {"a.py": _with(20, GUARD, _with(60, GUARD))})
    upstream.commit("Rework", {"a.py": _with(20, GUARD, _with(60, [*GUARD[:2], "    log(1)", *GUARD[2:]]))})
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert (carried.outcome, carried.landed.commit) == (Outcome.LANDED, brought)


@pytest.mark.parametrize("theirs", [LONG, _with(60, ["near = 1"])], ids=["clean", "in conflict"])
def test_the_same_lines_in_another_file_are_a_sibling(upstream: Upstream, theirs: list[str]) -> None:
    patch = upstream.fork("Collect in b", {"b.py": _with(60, FUNCTION)})
    upstream.commit("Collect in a", {"a.py": _with(60, FUNCTION), "b.py": theirs})
    assert _carried(upstream, patch).landed is None


def test_a_file_that_is_a_copy_of_another_has_not_landed(upstream: Upstream) -> None:
    patch = upstream.fork("Mine", {"mine.py": FUNCTION[1:]})
    upstream.commit("Theirs", {"theirs.py": FUNCTION[1:]})
    carried = _carried(upstream, patch)
    assert (carried.outcome, carried.landed) == (Outcome.CLEAN, None)


def test_a_new_file_in_another_folder_is_not_in_its_place(upstream: Upstream) -> None:
    patch = upstream.fork("Mine", {"mine.py": FUNCTION[1:], "a.py": _with(60, GUARD)})
    (upstream.folder / "pack").mkdir()
    upstream.commit("Theirs", {"pack/mine.py": FUNCTION[1:], "a.py": _with(60, GUARD)})
    upstream.commit("Rework", {"a.py": _with(60, ["log(2)", *GUARD])})
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert carried.outcome is Outcome.PARTLY_LANDED
    assert b"b/mine.py" in carried.residue
    assert b"b/a.py" not in carried.residue


@pytest.mark.parametrize("line", ["value_40 = compute(41)", "value_40 = other(40, mine)"])
def test_a_line_that_landed_among_others_and_was_changed_since(upstream: Upstream, line: str) -> None:
    patch = upstream.fork("One line", {"a.py": [*LONG[:40], line, *LONG[41:]]})
    brought = upstream.commit("Much at once", {"a.py": [*LONG[:40], line, *LONG[41:], *FUNCTION], "b.py": LONG[1:]})
    upstream.commit("Go on", {"a.py": [*LONG[:40], "value_40 = third(40)", *LONG[41:], *FUNCTION]})
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert (carried.outcome, carried.landed.commit) == (Outcome.LANDED, brought)


def test_a_line_that_another_place_got_is_not_believed(upstream: Upstream) -> None:
    patch = upstream.fork("One line", {"a.py": _with(60, ["reset_the_cache(now)"])})
    upstream.commit("Much at once", {"a.py": _with(20, ["reset_the_cache(now)", "more = 2"])})
    upstream.commit("Near it", {"a.py": _with(20, ["reset_the_cache(now)", "more = 2"], _with(60, ["near = 1"]))})
    assert _carried(upstream, patch).landed is None


def test_a_renamed_file_is_followed(upstream: Upstream) -> None:
    patch = upstream.fork("Collect", {"a.py": _with(60, FUNCTION)})
    upstream.commit("Rename", {"a.py": None, "other.py": [*LONG[5:], "x = 1"]})
    brought = upstream.commit("Collect", {"other.py": [*_with(60, FUNCTION)[5:], "x = 1"]})
    upstream.commit("Rework", {"other.py": [*_with(60, FUNCTION[:6])[5:], "x = 1"]})
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert (carried.outcome, carried.landed.commit) == (Outcome.LANDED, brought)


def test_a_rename_brings_nothing_new(upstream: Upstream) -> None:
    lines = ["alpha is not None,", "use_it(alpha)", "check(alpha, beta)"]
    _base(upstream, {"a.py": [*LONG, *lines]})
    patch = upstream.fork("The same lines again", {"a.py": [*_with(20, lines), *lines]})
    upstream.commit("Rename", {"a.py": None, "other.py": [*LONG[:50], *lines]})
    assert _carried(upstream, patch).landed is None


def test_what_landed_and_then_moved_with_its_file_is_there(upstream: Upstream) -> None:
    patch = upstream.fork("Mine", {"mine.py": FUNCTION[1:]})
    upstream.commit("Mine", {"mine.py": FUNCTION[1:]})
    (upstream.folder / "pack").mkdir()
    upstream.commit("Move", {"mine.py": None, "pack/mine.py": FUNCTION[1:]})
    assert _is_landed(_carried(upstream, patch))


def test_other_line_breaks_and_quotes(upstream: Upstream) -> None:
    mine = [f"result_{n} = transform(item_{n}, 'a long option', scale={n})" for n in range(6)]
    theirs = [
        line for n in range(6) for line in (f"result_{n} = transform(", f'    item_{n}, "a long option", scale={n},', ")")
    ]
    # Half of them stay as they are, or there would be nothing to find them by.
    patch = upstream.fork("Transform", {"a.py": [*LONG, *FUNCTION, *mine]})
    brought = upstream.commit("Transform, formatted", {"a.py": [*LONG, *FUNCTION, *theirs]})
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert (carried.landed.commit, carried.landed.score) == (brought, 1)
    assert carried.outcome is Outcome.LANDED


def test_a_function_that_became_a_method_is_another_one(upstream: Upstream) -> None:
    patch = upstream.fork("Collect", {"a.py": [*LONG, *FUNCTION]})
    upstream.commit("Collect", {"a.py": [*LONG, "class Items:", *[f"    {line}" for line in FUNCTION]]})
    carried = _carried(upstream, patch)
    assert not _is_landed(carried)
    assert carried.landed is None


def test_what_merges_past_its_twin_is_told_by_the_lines_beside_it(upstream: Upstream) -> None:
    _base(upstream, {"a.py": [*LONG[:40], "the_one_anchor = 1", *LONG[40:]]})
    patch = upstream.fork("Guard", {"a.py": [*LONG[:40], *GUARD, "the_one_anchor = 1", *LONG[40:]]})
    upstream.commit("Move the anchor", {"a.py": [*LONG, "the_one_anchor = 1"]})
    upstream.commit("Guard", {"a.py": [*LONG, *GUARD, "the_one_anchor = 1"]})
    landed = _carried(upstream, patch).landed
    assert landed is not None
    assert landed.subject == "Guard"


@pytest.mark.parametrize("again", [False, True], ids=["reverted", "landed again"])
def test_what_was_reverted_and_stands_in_conflict(upstream: Upstream, again: bool) -> None:
    patch = upstream.fork("Collect", {"a.py": _with(60, FUNCTION)})
    upstream.commit("Collect", {"a.py": _with(60, FUNCTION)})
    upstream.commit("Revert", {"a.py": LONG})
    if again:
        upstream.commit("Collect again", {"a.py": _with(60, FUNCTION)})
        upstream.commit("Rewrite", {"a.py": _with(60, ["", "def collect(items, result):", "    rewritten()"])})
    else:
        upstream.commit("Near it", {"a.py": _with(60, ["near = 1"])})
    carried = _carried(upstream, patch)
    assert carried.outcome is (Outcome.LANDED if again else Outcome.DROPPED_UPSTREAM)
    assert carried.needs_person is not again


def test_one_line_that_was_removed_again_is_gone(upstream: Upstream) -> None:
    patch = upstream.fork("One line", {"a.py": _with(60, ["reset_the_cache(now)"])})
    upstream.commit("Much at once", {"a.py": _with(60, ["reset_the_cache(now)"]), "b.py": LONG[1:]})
    upstream.commit("Away with it", {"a.py": _with(60, ["near = 1"])})
    assert not _is_landed(_carried(upstream, patch))


def test_a_patch_of_common_lines_only_is_told_by_being_the_same(upstream: Upstream) -> None:
    for number in range(8):
        upstream.commit(f"More {number}", {f"n{number}.py": ["import common_module", f"x_{number} = 1"]})
    same = upstream.fork("Import", {"a.py": ["import common_module", *LONG]})
    other = upstream.fork("Import there", {"b.py": ["import common_module", *LONG]})
    upstream.commit("Import", {"a.py": ["import common_module", *LONG]})
    upstream.commit("Rework", {"a.py": ["import common_module as common", *LONG], "b.py": ["near = 1", *LONG]})
    assert _carried(upstream, same).landed is not None
    assert _carried(upstream, other).landed is None


def test_a_merge_request_is_known_by_its_number(upstream: Upstream) -> None:
    patch = upstream.fork("Collect (#7)", {"a.py": [*LONG, *FUNCTION]})
    git.run(["checkout", "--quiet", "-b", "topic"], cwd=upstream.folder)
    upstream.commit("Work", {"a.py": [*LONG, *FUNCTION[:7]]})
    git.run(["checkout", "--quiet", "main"], cwd=upstream.folder)
    git.run(["merge", "--quiet", "--no-ff", "-m", "Merge pull request #7 from me/topic", "topic"], cwd=upstream.folder)
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert carried.landed.subject == "Merge pull request #7 from me/topic"
    assert any("its pull request #7" in said for said in carried.evidence)


def test_with_releases_alone_a_sibling_has_not_landed(upstream: Upstream) -> None:
    patches = [
        upstream.fork("Guard the second", {"a.py": _with(60, GUARD)}),
        upstream.fork("Collect in b", {"b.py": _with(60, FUNCTION)}),
        upstream.fork("Collect in a", {"a.py": _with(40, FUNCTION)}),
    ]
    git.run(["checkout", "--quiet", "--orphan", "release"], cwd=upstream.folder)
    a = _with(20, GUARD, _with(40, [*FUNCTION, "    more()"], _with(60, ["near = 1"])))
    upstream.commit("v2", {"a.py": a, "b.py": _with(60, ["near = 1"])})
    span = Range("base", "release")
    rows = triage(upstream.folder, span, patches, cache=upstream.patches.parent / "cache", independent=True).rows
    assert [row.carried.landed is not None for row in rows] == [False, False, True]
