# SPDX-License-Identifier: Apache-2.0
"""What brought a patch, on histories made for it: where its lines stand, how they were reworked, and what only looks like it."""

from pathlib import Path

import pytest

from stack.carry.outcome import Carried, Outcome
from stack.carry.triage import Range, Row, triage
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


def _carried(upstream: Upstream, patch: Path, *through: str) -> Carried:
    span = Range("base", "main", through)
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


BLOCK = [f"configure_{number}(board, level={number})" for number in range(20)]
CHECKS = ["    check_shape(a, b)", "    check_dtype(a, b)", "    check_device(a, b)", "    check_stride(a, b)"]


def _row(upstream: Upstream, patch: Path) -> Row:
    span = Range("base", "main")
    return triage(upstream.folder, span, [patch], cache=upstream.patches.parent / "cache", independent=True).rows[0]


def _changed(data: bytes | None) -> list[str]:
    """The lines that a patch adds and removes."""
    assert data is not None
    lines = data.decode().splitlines()
    return [line for line in lines if line[:1] in ("+", "-") and not line.startswith(("+++", "---")) and line != "-- "]


def _functions(checked: str, names: str = "abcde") -> list[str]:
    """A file of functions that are alike; some of them check their operands."""
    return [
        line
        for name in names
        for line in (
            f"def func_{name}(a, b):",
            *(CHECKS if name in checked else ()),
            *[f"    step_{name}_{n} = compute_{name}(a, b, {n})" for n in range(8)],
            "",
        )
    ]


@pytest.mark.parametrize("place", [0, 9, 20])
def test_an_own_line_beside_what_landed_is_carried(upstream: Upstream, place: int) -> None:
    """Upstream took 20 of 21 lines."""
    patch = upstream.fork("Configure", {"a.py": _with(60, _with(place, ["enable_my_board()"], BLOCK))})
    brought = upstream.commit("Configure", {"a.py": _with(60, BLOCK)})
    row = _row(upstream, patch)
    assert (row.carried.outcome, row.carried.needs_person) == (Outcome.PARTLY_LANDED, False)
    assert row.carried.landed is not None
    assert row.carried.landed.commit == brought
    assert _changed(row.exported) == ["+enable_my_board()"]


@pytest.mark.parametrize("whole_file", [False, True])
def test_an_own_value_in_what_landed_needs_a_person(upstream: Upstream, whole_file: bool) -> None:
    mine = [line.replace("level=7)", "level=121)") for line in BLOCK]
    sides = [{"new.py": mine}, {"new.py": BLOCK}] if whole_file else [{"a.py": _with(60, mine)}, {"a.py": _with(60, BLOCK)}]
    patch = upstream.fork("Configure", dict(sides[0]))
    upstream.commit("Configure", dict(sides[1]))
    row = _row(upstream, patch)
    assert (row.carried.outcome, row.carried.needs_person) == (Outcome.PARTLY_LANDED, True)
    assert row.carried.conflicts
    assert "+configure_7(board, level=121)" in _changed(row.carried.residue)
    assert row.exported is None


@pytest.mark.parametrize("number", ["", " (#12)"], ids=["", "its pull request"])
def test_a_share_of_the_lines_is_not_the_patch(upstream: Upstream, number: str) -> None:
    """Upstream has four fifths of the lines, under the patch's own number at that."""
    other = [line if n % 5 else line.replace("level", "depth") for n, line in enumerate(BLOCK)]
    patch = upstream.fork(f"Configure{number}", {"a.py": _with(60, BLOCK)})
    upstream.commit("Configure otherwise (#12)", {"a.py": _with(60, other)})
    assert _carried(upstream, patch).needs_person


def test_the_number_of_another_pull_request_hides_nothing(upstream: Upstream) -> None:
    patch = upstream.fork("Collect (#12)", {"a.py": _with(60, FUNCTION)})
    upstream.commit("Something else (#12)", {"b.py": LONG[1:]})
    brought = upstream.commit("Collect (#57)", {"a.py": _with(60, FUNCTION)})
    upstream.commit("Rework", {"a.py": _with(60, FUNCTION[:6])})
    carried = _carried(upstream, patch)
    assert carried.landed is not None
    assert (carried.outcome, carried.landed.commit) == (Outcome.LANDED, brought)


@pytest.mark.parametrize(
    ("theirs", "left"),
    [(_functions("abd"), 4), (["import checks", *_functions("abd")], 4), (_functions("ade"), 8), (_functions("d"), 12)],
)
def test_of_siblings_each_is_judged_at_its_place(upstream: Upstream, theirs: list[str], left: int) -> None:
    _base(upstream, {"a.py": _functions("")})
    patch = upstream.fork("Check a, b and c", {"a.py": _functions("abc")})
    upstream.commit("Check others", {"a.py": theirs})
    row = _row(upstream, patch)
    assert (row.carried.landed is None) == (left == 12)
    assert not row.carried.needs_person
    assert len(_changed(row.exported)) == left


def test_a_long_guard_of_a_sibling_has_not_landed(upstream: Upstream) -> None:
    patch = upstream.fork("Configure the second", {"a.py": _with(60, BLOCK)})
    upstream.commit("Configure the first", {"a.py": _with(20, BLOCK)})
    row = _row(upstream, patch)
    assert (row.carried.outcome, row.carried.landed) == (Outcome.MOVED, None)
    assert _changed(row.exported) == [f"+{line}" for line in BLOCK]


BLANKS = {
    "a return that ends a loop": (
        "a.py",
        ["def f(xs):", "    for x in xs:", "        log(x)", "        return x", "    raise KeyError"],
        {3: ("            return x", "    return x")},
    ),
    "a level of YAML": (
        "ci.yml",
        ["jobs:", "  build:", "    steps: 1", "    env: release", "  test:", "    steps: 2"],
        {3: ("      env: release", "  env: release")},
    ),
    "tabs of make": ("Makefile", ["all:", "        echo one", "rest:"], {1: ("    echo one", "\techo one")}),
    "blanks in a string": ("a.py", ["def f(a):", "    return ' '.join(names(a))"], {1: ("    return ''.join(names(a))",) * 2}),
    "blanks in a string of C++": ("a.cu", ["int f() {", '  log("a b");', "}"], {1: ('  log("ab");', '  log("a  b");')}),
    "the parameters of a macro": (
        "a.h",
        ["#define F(x) \\", "  g(x) + 1", "int y;"],
        {0: ("#define F (x) \\", "#define F(x)")},
    ),
}


@pytest.mark.parametrize("kind", BLANKS)
def test_blanks_count_where_they_mean_something(upstream: Upstream, kind: str) -> None:
    name, base, change = BLANKS[kind]
    ((place, (theirs, mine)),) = change.items()
    mine = mine.replace("''", "'  '")
    _base(upstream, {name: base})
    patch = upstream.fork("Mine", {name: [*base[:place], mine, *base[place + 1 :]]})
    upstream.commit("Theirs", {name: [*base[:place], theirs, *base[place + 1 :]]})
    assert _carried(upstream, patch).outcome is Outcome.CONFLICT


def test_a_formatter_of_cpp_changes_nothing(upstream: Upstream) -> None:
    base = [f"int value_{n} = compute({n});" for n in range(30)]
    mine = ["void launch(int a, int b) {", *[f'  step_{n}(a, b, "a  b", {n});' for n in range(8)], "}"]
    theirs = ["void launch(int a,", "            int b) {", *[f'\tstep_{n}( a, b, "a  b", {n} );' for n in range(8)], "}"]
    _base(upstream, {"a.cu": base})
    patch = upstream.fork("Launch", {"a.cu": _with(15, mine, base)})
    upstream.commit("Launch", {"a.cu": _with(15, theirs, base), "b.py": LONG[1:]})
    upstream.commit("Go on", {"b.py": LONG[2:]})
    assert _is_landed(_carried(upstream, patch))
    other = upstream.fork("Launch otherwise", {"a.cu": _with(15, [line.replace("a  b", "a b") for line in mine], base)})
    assert not _is_landed(_carried(upstream, other))


def test_what_landed_in_a_block_that_was_indented_before(upstream: Upstream) -> None:
    body = ["def f(items):", *[f"    step_{n}(items)" for n in range(12)]]
    deeper = ["def f(items):", "    with lock:", *[f"        step_{n}(items)" for n in range(12)]]
    added = [f"check_{n}(items)" for n in range(4)]
    _base(upstream, {"a.py": body})
    patch = upstream.fork("Check", {"a.py": _with(6, [f"    {line}" for line in added], body)})
    upstream.commit("Lock", {"a.py": deeper})
    upstream.commit("Check", {"a.py": _with(7, [f"        {line}" for line in added], deeper)})
    assert _is_landed(_carried(upstream, patch))


@pytest.mark.parametrize("apart", [True, False], ids=["a file", "a hunk"])
def test_what_was_taken_back_in_part_is_carried_on(upstream: Upstream, apart: bool) -> None:
    before, after, reverted = (
        {"a.py": _functions(checked[:1], "ab"), "b.py": _functions(checked[1:], "cd")}
        if apart
        else {"a.py": _functions(checked, "abcd")}
        for checked in ("", "ad", "a")
    )
    _base(upstream, dict(before))
    patch = upstream.fork("Check a and d", dict(after))
    brought = upstream.commit("Check a and d", dict(after))
    upstream.commit("Go on", {"c.py": LONG})
    by = upstream.commit("Do not check d", dict(reverted))
    row = _row(upstream, patch)
    assert row.carried.outcome is Outcome.PARTLY_LANDED
    assert row.carried.landed is not None
    assert row.carried.landed.commit == brought
    assert any(by[:12] in said and ("b.py" if apart else "a.py") in said for said in row.carried.evidence)
    assert _changed(row.exported) == [f"+{line}" for line in CHECKS]


def test_what_was_taken_back_in_part_and_has_no_place_needs_a_person(upstream: Upstream) -> None:
    _base(upstream, {"a.py": _functions("")})
    patch = upstream.fork("Check a and d", {"a.py": _functions("ad")})
    upstream.commit("Check a and d", {"a.py": _functions("ad")})
    by = upstream.commit("Do not check d", {"a.py": _functions("a")})
    lines = _functions("a")
    place = lines.index("def func_d(a, b):") + 1
    upstream.commit("Near it", {"a.py": _with(place, ["    near = 1"], lines)})
    carried = _carried(upstream, patch)
    assert (carried.outcome, carried.commit, carried.needs_person) == (Outcome.PARTLY_LANDED, None, True)
    assert carried.conflicts
    assert any(by[:12] in said for said in carried.evidence)


def test_what_moved_to_another_file_since_was_not_taken_back(upstream: Upstream) -> None:
    both = {"a.py": _with(60, FUNCTION), "b.py": _with(60, GUARD)}
    patch = upstream.fork("Both", dict(both))
    upstream.commit("Both", dict(both))
    by = upstream.commit("Move collect", {"a.py": LONG, "c.py": FUNCTION[1:]})
    carried = _carried(upstream, patch)
    assert carried.outcome is Outcome.LANDED
    assert by[:12] in carried.evidence[0]


def test_the_rest_of_what_landed_in_part_is_not_lost_to_a_later_conflict(upstream: Upstream) -> None:
    """One file of two landed; later upstream changed the other one where the patch changes it."""
    mine = [*LONG[:40], "value_40 = mine(40)", *LONG[41:]]
    patch = upstream.fork("Both", {"a.py": _with(60, BLOCK), "b.py": mine})
    upstream.commit("Configure", {"a.py": _with(60, BLOCK)})
    upstream.commit("Go on", {"b.py": [*LONG[:40], "value_40 = theirs(40)", *LONG[41:]]})
    carried = _carried(upstream, patch)
    assert (carried.outcome, carried.commit, carried.needs_person) == (Outcome.PARTLY_LANDED, None, True)
    assert [conflict.path for conflict in carried.conflicts] == ["b.py"]
    assert _changed(carried.residue) == ["-value_40 = compute(40)", "+value_40 = mine(40)"]


def _series(upstream: Upstream, *versions: list[str]) -> list[Path]:
    """Patches of `a.py` that stand on each other, the first one on the base."""
    git.run(["checkout", "--quiet", "--detach", "base"], cwd=upstream.folder)
    files: list[Path] = []
    for number, lines in enumerate(versions):
        commit = upstream.commit(f"Patch {number}", {"a.py": lines})
        files.append(upstream.patches / f"{number}.patch")
        files[-1].write_bytes(git.run(["format-patch", "-1", "--stdout", commit], cwd=upstream.folder).stdout)
    git.run(["checkout", "--quiet", "main"], cwd=upstream.folder)
    return files


@pytest.mark.parametrize("far", [False, True], ids=["", "with another patch between"])
def test_patches_that_upstream_squashed_have_landed_together(upstream: Upstream, far: bool) -> None:
    first, second = ([f"raise_{name}_{n}(a)" for n in range(5)] for name in ("value", "type"))
    end = ["end = 1"] if far else []
    versions = [_with(60, first), *([[*_with(60, first), *end]] if far else []), [*_with(60, second), *end]]
    patches = _series(upstream, *versions)
    brought = upstream.commit("Both", {"a.py": [*_with(60, second), *end]})
    upstream.commit("Go on", {"a.py": ["top = 1", *_with(60, second), *end]})
    rows = triage(upstream.folder, Range("base", "main"), patches, cache=upstream.patches.parent / "cache").rows
    assert [row.carried.outcome for row in rows] == [Outcome.LANDED] * len(patches)
    assert all(row.carried.landed is not None and row.carried.landed.commit == brought for row in (rows[0], rows[-1]))
    assert patches[-1].name in rows[0].carried.evidence[0]


def test_patches_of_which_upstream_has_a_part_are_not_squashed(upstream: Upstream) -> None:
    first, second = ([f"raise_{name}_{n}(a)" for n in range(5)] for name in ("value", "type"))
    patches = _series(upstream, _with(60, first), _with(60, [*second, "own_line(a)"]))
    upstream.commit("Both, otherwise", {"a.py": _with(60, [*second[:4], "raise_other(a)"])})
    rows = triage(upstream.folder, Range("base", "main"), patches, cache=upstream.patches.parent / "cache").rows
    assert any(row.carried.needs_person for row in rows)
    assert not any(_is_landed(row.carried) for row in rows)


def test_patches_that_undo_each_other_have_not_landed(upstream: Upstream) -> None:
    patches = _series(upstream, [*LONG[:40], "value_40 = mine(40)", *LONG[41:]], LONG)
    upstream.commit("Theirs", {"a.py": [*LONG[:40], "value_40 = theirs(40)", *LONG[41:]]})
    rows = triage(upstream.folder, Range("base", "main"), patches, cache=upstream.patches.parent / "cache").rows
    assert rows[0].carried.outcome is Outcome.CONFLICT


@pytest.mark.parametrize("same", [True, False], ids=["in the definition", "in another one"])
def test_a_call_that_upstream_added_elsewhere_in_the_definition_is_told(upstream: Upstream, same: bool) -> None:
    def body(one: int | None, other: int | None) -> list[str]:
        return [
            line
            for name, at in (("one", one), ("other", other))
            for line in (f"def {name}(a):", *(_with(at, ["    wait()"], steps) if at is not None else steps))
        ]

    steps = [f"    step_{n}(a)" for n in range(12)]
    _base(upstream, {"a.py": body(None, None)})
    patch = upstream.fork("Wait before step 9", {"a.py": body(9, None)})
    by = upstream.commit("Hoist the wait", {"a.py": body(2, None) if same else body(None, 2)})
    row = _row(upstream, patch)
    assert not row.carried.needs_person
    assert any(by[:12] in said and "a.py:4" in said for said in row.carried.evidence) is same


@pytest.mark.parametrize("far", [2, 6], ids=["as git sees it, the lines around it moved", "it moved"])
def test_what_moved_inside_of_its_file_since_was_not_taken_back(upstream: Upstream, far: int) -> None:
    """Git merges the patch once more, without a conflict, and its lines stand there twice."""
    patch = upstream.fork("Guard", {"a.py": _with(60, GUARD)})
    upstream.commit("Guard", {"a.py": _with(60, GUARD)})
    upstream.commit("Move", {"a.py": _with(60 + far, GUARD)})
    assert _is_landed(_carried(upstream, patch))


SIGNATURE = [*LONG[:60], "def run(", "    query,", *[f"    plan_{n}," for n in range(8)], "):", *LONG[60:]]


def _signature(above: list[str], below: list[str]) -> list[str]:
    return _with(70, below, _with(62, above, SIGNATURE))


@pytest.mark.parametrize(
    ("above", "below", "landed"),
    [
        ([], ["    *,", "    scale: Optional[Tensor] = None,", "    zero: Optional[Tensor] = None,"], True),
        ([], ["    *,", "    scale: Optional[Tensor] = None,"], False),
        ([], ["    # no scale: Optional[Tensor], no zero: Optional[Tensor]"], False),
        ([], ['    error="scale: Optional[Tensor], zero: Optional[Tensor]",'], False),
        ([], [], False),
    ],
    ids=["elsewhere in other words", "a part of it", "a comment on it", "a text about it", "taken back"],
)
def test_what_was_written_anew_elsewhere_in_its_file(
    upstream: Upstream, above: list[str], below: list[str], landed: bool
) -> None:
    mine = ["    scale: Optional[Tensor],", "    zero: Optional[Tensor],"]
    _base(upstream, {"a.py": SIGNATURE})
    patch = upstream.fork("Scale", {"a.py": _signature(mine, []), "b.py": _with(60, GUARD)})
    upstream.commit("Scale", {"a.py": _signature(mine, []), "b.py": _with(60, GUARD)})
    by = upstream.commit("Order", {"a.py": _signature(above, below)})
    carried = _carried(upstream, patch)
    assert carried.outcome is (Outcome.LANDED if landed else Outcome.PARTLY_LANDED)
    assert any(by[:12] in said for said in carried.evidence)


def test_common_words_are_not_what_was_written_anew(upstream: Upstream) -> None:
    """None of the words is the patch's own: the other new line of the file only looks like it."""
    _base(upstream, {"a.py": [*LONG, "clear(cache)"]})
    patch = upstream.fork("Clear", {"a.py": [*_with(60, ["clear(cache)"]), "clear(cache)"], "b.py": _with(60, GUARD)})
    upstream.commit("Clear", {"a.py": [*_with(60, ["clear(cache)"]), "clear(cache)"], "b.py": _with(60, GUARD)})
    upstream.commit("Clear at the top", {"a.py": ["cache = clear(cache)", *LONG, "clear(cache)"]})
    carried = _carried(upstream, patch)
    assert carried.outcome is Outcome.PARTLY_LANDED
    assert _changed(carried.residue) == ["+clear(cache)"]


def test_a_part_taken_back_is_not_settled_by_the_rework_of_its_like(upstream: Upstream) -> None:
    """The commit that takes one guard back did not change the other, which an earlier one did."""
    both = {"a.py": _with(20, GUARD, _with(60, GUARD))}
    reworked = _with(60, [*GUARD[:2], "    log(1)", *GUARD[2:]])
    patch = upstream.fork("Guard twice", dict(both))
    upstream.commit("Guard twice", dict(both))
    upstream.commit("Rework the second", {"a.py": _with(20, GUARD, reworked)})
    by = upstream.commit("Do not guard the first", {"a.py": reworked})
    carried = _carried(upstream, patch)
    assert carried.outcome is Outcome.PARTLY_LANDED
    assert any(by[:12] in said for said in carried.evidence)
    assert _changed(carried.residue) == [f"+{line}" for line in GUARD]


ANNEX = [f"annex_{n} = compute({n})" for n in range(40)]


@pytest.mark.parametrize("rungs", [False, True], ids=["at once", "through the release that had it"])
@pytest.mark.parametrize(
    ("annex", "outcome", "left"),
    [
        (ANNEX, Outcome.DROPPED_UPSTREAM, None),
        (_with(20, ["    log(1)"], ANNEX), Outcome.DROPPED_UPSTREAM, None),
        (_with(20, FUNCTION, ANNEX), Outcome.PARTLY_LANDED, ["+    log(1)"]),
        (_with(20, [*FUNCTION, "    log(1)"], ANNEX), Outcome.LANDED, None),
    ],
    ids=["nothing moved", "a line that another file got", "one part moved, the other dropped", "both moved"],
)
def test_a_part_that_was_dropped_where_another_moved(
    upstream: Upstream, annex: list[str], outcome: Outcome, left: list[str] | None, rungs: bool
) -> None:
    """A step that moves one part to another file may drop the other; one line in another file is not a move."""
    _base(upstream, {"annex.py": ANNEX})
    both = {"a.py": _with(20, ["    log(1)"], _with(60, FUNCTION))}
    patch = upstream.fork("Both", dict(both))
    had = upstream.commit("Both", dict(both))
    by = upstream.commit("Move or drop", {"a.py": LONG, "annex.py": annex})
    carried = _carried(upstream, patch, *([had] if rungs else []))
    assert carried.outcome is outcome
    assert any(by[:12] in said for said in carried.evidence)
    assert left is None or _changed(carried.residue) == left


def test_an_indentation_that_was_taken_back_is_carried_on(upstream: Upstream) -> None:
    """Both versions have the same lines but for their blanks: the lines have not moved."""
    base, mine = (
        ["def act(a):", "    if a:", "        start(a)", *[f"{blanks}stop_{n}(a)" for n in range(3)]]
        for blanks in (" " * 8, " " * 4)
    )
    _base(upstream, {"a.py": [*LONG, *base]})
    both = {"a.py": [*_with(20, GUARD), *mine]}
    patch = upstream.fork("Stop always", dict(both))
    upstream.commit("Stop always", dict(both))
    upstream.commit("Stop sometimes", {"a.py": [*_with(20, GUARD), *base]})
    carried = _carried(upstream, patch)
    assert carried.outcome is Outcome.PARTLY_LANDED
    assert _changed(carried.residue) == [*[f"-        stop_{n}(a)" for n in range(3)], *[f"+    stop_{n}(a)" for n in range(3)]]


def test_a_removal_of_lines_that_only_partly_landed_is_named(upstream: Upstream) -> None:
    """Upstream had most lines of one group, in other words, and took them out again: that commit is named."""
    mine = [f"value_40 = mine({n})" for n in range(5)]
    theirs = [*mine[:4], "value_40 = theirs(4)"]
    rest = _with(60, FUNCTION)
    patch = upstream.fork("Both", {"a.py": [*LONG[:40], *mine, *LONG[41:]], "b.py": rest})
    upstream.commit("Both", {"a.py": [*LONG[:40], *theirs, *LONG[41:]], "b.py": rest})
    by = upstream.commit("Compute again", {"a.py": LONG})
    carried = _carried(upstream, patch)
    assert carried.outcome is Outcome.PARTLY_LANDED
    assert any(by[:12] in said for said in carried.evidence)
    assert _changed(carried.residue) == ["-value_40 = compute(40)", *[f"+{line}" for line in mine]]


def test_a_line_more_in_place_of_others_needs_a_person(upstream: Upstream) -> None:
    """Both replace a line; which of the new lines go together, a person knows."""
    mine = [f"value_40 = mine({n})" for n in range(5)]
    patch = upstream.fork("Mine", {"a.py": [*LONG[:40], *mine, *LONG[41:]], "b.py": _with(60, GUARD)})
    upstream.commit("Most of it", {"a.py": [*LONG[:40], *mine[:4], *LONG[41:]], "b.py": _with(60, GUARD)})
    carried = _carried(upstream, patch)
    assert (carried.outcome, carried.needs_person) == (Outcome.PARTLY_LANDED, True)
    assert f"+{mine[4]}" in _changed(carried.residue)


def test_a_binary_that_landed_and_was_made_anew_was_not_taken_back(upstream: Upstream) -> None:
    (upstream.folder / "data.bin").write_bytes(b"\0 base")
    _base(upstream, {"c.py": LONG})
    (upstream.folder / "data.bin").write_bytes(b"\0 mine")
    patch = upstream.fork("Mine", {"a.py": _with(60, GUARD)})
    (upstream.folder / "data.bin").write_bytes(b"\0 mine")
    upstream.commit("Mine", {"a.py": _with(60, GUARD)})
    (upstream.folder / "data.bin").write_bytes(b"\0 third")
    upstream.commit("Data anew", {"b.py": LONG[1:]})
    assert _is_landed(_carried(upstream, patch))


def test_what_goes_with_the_rework_of_another_part_was_not_taken_back(upstream: Upstream) -> None:
    """A parameter became one by name, so the calls that gave it by position lost it in the same commit."""
    mine = ["    scale: Optional[Tensor],", "    zero: Optional[Tensor],"]
    calls = ["    the_scale(None),", "    the_zero(None),"]
    _base(upstream, {"a.py": SIGNATURE})
    patch = upstream.fork("Scale", {"a.py": _signature(mine, []), "b.py": _with(60, calls)})
    upstream.commit("Scale", {"a.py": _signature(mine, []), "b.py": _with(60, calls)})
    by_name = ["    *,", *[line.replace(",", " = None,") for line in mine]]
    by = upstream.commit("By name", {"a.py": _signature([], by_name), "b.py": LONG})
    carried = _carried(upstream, patch)
    assert _is_landed(carried)
    assert by[:12] in carried.evidence[0]


def test_lines_of_which_few_stay_were_taken_back(upstream: Upstream) -> None:
    both = {"a.py": _with(60, GUARD), "b.py": _with(60, FUNCTION)}
    patch = upstream.fork("Guard", dict(both))
    upstream.commit("Guard", dict(both))
    upstream.commit("Trigger early", {"a.py": _with(20, GUARD[1:2])})
    carried = _carried(upstream, patch)
    assert carried.outcome is Outcome.PARTLY_LANDED
    assert _changed(carried.residue) == [f"+{line}" for line in GUARD]


def test_a_call_that_the_definition_had_before_is_not_told(upstream: Upstream) -> None:
    """The patch calls it once more on purpose; upstream added the call to another definition."""
    steps = [f"    step_{n}(a)" for n in range(12)]
    waits = _with(2, ["    wait()"], steps)
    one, other = ["def one(a):", *waits], ["def other(a):", *steps]
    _base(upstream, {"a.py": [*one, *other]})
    patch = upstream.fork("Wait twice", {"a.py": [*_with(11, ["    wait()"], one), *other]})
    upstream.commit("Wait in the other", {"a.py": [*one, "def other(a):", *waits]})
    row = _row(upstream, patch)
    assert row.carried.commit is not None
    assert not any("has a line that it adds" in said for said in row.carried.evidence)


def test_a_call_outside_of_any_definition_is_not_told(upstream: Upstream) -> None:
    head = ["def one(a):", "    step(a)", ""]
    _base(upstream, {"a.py": [*head, *LONG]})
    patch = upstream.fork("Wait late", {"a.py": [*head, *_with(60, ["wait()"])]})
    upstream.commit("Wait early", {"a.py": [*head, *_with(20, ["wait()"])]})
    assert not any("has a line that it adds" in said for said in _carried(upstream, patch).evidence)


def test_a_mode_that_upstream_lacks_is_carried_on(upstream: Upstream) -> None:
    (upstream.folder / "a.py").chmod(0o755)
    patch = upstream.fork("Guard, and run it", {"a.py": _with(60, GUARD)})
    upstream.commit("Guard", {"a.py": _with(60, GUARD)})
    row = _row(upstream, patch)
    assert row.carried.outcome is Outcome.PARTLY_LANDED
    assert row.exported is not None
    assert b"new mode 100755" in row.exported
    assert not _changed(row.exported)
