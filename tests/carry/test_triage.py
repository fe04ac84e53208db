# SPDX-License-Identifier: Apache-2.0
"""Triage on a repository of its own: real git, real patch files, a history that takes, reworks and takes back."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stack.base.errors import StackError
from stack.carry import triage
from stack.carry.outcome import Outcome
from stack.carry.triage import Range
from stack.cli import cli
from stack.store import git

BODY = [f"value_{number} = compute({number})" for number in range(60)]
ADDED = [f"        result.append(transform(item_{number}, scale={number}))" for number in range(8)]
FUNCTION = ["", "def collect(items, result):", *ADDED, "    return result"]


class Upstream:
    """A repository with a fork's patch files beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo"
        self.patches = folder / "patches"
        self.patches.mkdir()
        git.run(["init", "--quiet", "--initial-branch=main", str(self.folder)])
        for key, value in (("user.name", "Up"), ("user.email", "up@localhost")):
            git.run(["config", key, value], cwd=self.folder)

    def commit(self, subject: str, files: dict[str, list[str] | None]) -> str:
        for name, lines in files.items():
            file = self.folder / name
            if lines is None:
                file.unlink()
            else:
                file.write_text("\n".join(lines) + "\n")
        git.run(["add", "--all"], cwd=self.folder)
        git.run(["commit", "--quiet", "-m", subject], cwd=self.folder)
        return git.text(["rev-parse", "HEAD"], cwd=self.folder)

    def fork(self, name: str, files: dict[str, list[str] | None]) -> Path:
        """A patch file on the tag `base`, made aside from the history."""
        git.run(["checkout", "--quiet", "--detach", "base"], cwd=self.folder)
        commit = self.commit(name, files)
        file = self.patches / f"{name.replace(' ', '-')}.patch"
        file.write_bytes(git.run(["format-patch", "-1", "--stdout", commit], cwd=self.folder).stdout)
        git.run(["checkout", "--quiet", "main"], cwd=self.folder)
        return file

    def outcome(self, *files: Path, cache: Path) -> list[triage.Row]:
        return list(triage.triage(self.folder, Range("base", "main"), files, cache=cache, independent=True).rows)

    def tag(self, name: str) -> None:
        git.run(["tag", name], cwd=self.folder)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit("Begin", {"a.py": BODY, "b.py": BODY})
    git.run(["tag", "base"], cwd=made.folder)
    return made


def test_a_patch_without_an_end_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="/dev/zero is larger than 256 MiB"):
        upstream.outcome(Path("/dev/zero"), cache=tmp_path / "cache")


def test_a_change_under_another_name_has_landed(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    brought = upstream.commit("Gather results in one place (#12)", {"a.py": ["import os", *BODY, *FUNCTION], "b.py": BODY[1:]})
    upstream.commit("Rework", {"a.py": ["import os", *BODY, *FUNCTION[:3], "        log(items)", *FUNCTION[4:]]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.LANDED
    landed = row.carried.landed
    assert landed is not None
    assert (landed.commit, landed.subject, landed.rung) == (brought, "Gather results in one place (#12)", "main")
    assert brought[:12] in row.carried.evidence[0]


def test_what_was_taken_back_stays_and_needs_a_person(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    brought = upstream.commit("Collect items", {"a.py": BODY + FUNCTION})
    reverted = upstream.commit("Revert it", {"a.py": BODY})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert (row.carried.outcome, row.carried.needs_person) == (Outcome.DROPPED_UPSTREAM, True)
    assert row.carried.landed is not None
    assert row.carried.landed.commit == brought
    assert row.exported == patch.read_bytes()
    said = f"upstream had it ({brought[:12]} Collect items) and dropped it again with {reverted[:12]} Revert it"
    assert row.carried.evidence == (said,)


def test_what_was_rewritten_since_has_landed(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit(
        "Rewrite it", {"a.py": [*BODY, "", "def collect(items, result):", "    return [*result, *map(own, items)]"]}
    )
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.LANDED
    assert "changed again since" in row.carried.evidence[0]


def test_a_change_that_landed_in_two_parts(upstream: Upstream, tmp_path: Path) -> None:
    other = ["", "def second(items):", *[f"    yield handle_{n}(items, {n})" for n in range(8)]]
    patch = upstream.fork("Both", {"a.py": BODY + FUNCTION, "b.py": BODY + other})
    upstream.commit("First half", {"a.py": BODY + FUNCTION})
    upstream.commit("Second half", {"b.py": BODY + other})
    upstream.commit("Go on", {"a.py": BODY[3:] + FUNCTION[:-1], "b.py": BODY[:-1] + other[:-1]})
    carried = upstream.outcome(patch, cache=tmp_path / "cache")[0].carried
    assert carried.outcome is Outcome.LANDED
    assert "First half" in carried.evidence[0]
    assert "Second half" in carried.evidence[0]


def test_a_part_has_landed_and_the_rest_is_carried(upstream: Upstream, tmp_path: Path) -> None:
    lines = ["", *[f"print(value_{n}, end='')" for n in range(5)]]
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION, "b.py": [*BODY, *lines]})
    upstream.commit("Collect", {"a.py": BODY + FUNCTION})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    landed = row.carried.landed
    assert (row.carried.outcome, row.carried.needs_person) == (Outcome.PARTLY_LANDED, False)
    assert landed is not None
    assert 0.5 <= landed.score < 0.9
    assert b"a/b.py" in row.carried.residue
    assert b"a/a.py" not in row.carried.residue
    assert row.exported is not None
    assert b"a/a.py" not in row.exported


def test_the_residue_of_a_conflict_is_what_upstream_lacks(upstream: Upstream, tmp_path: Path) -> None:
    lines = ["", *[f"print(value_{n}, end='')" for n in range(5)]]
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION, "b.py": [*BODY, *lines]})
    upstream.commit("Collect", {"a.py": BODY + FUNCTION})
    upstream.commit("Rework", {"a.py": [*BODY, "", "def collect(items, result):", "    return items"]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.PARTLY_LANDED
    assert row.carried.commit is not None
    added = [line for line in row.carried.residue.decode().splitlines() if line.startswith("+") and line[1:2] != "+"]
    assert added == [f"+{line}" for line in lines]
    assert "missing in b.py" in row.carried.evidence


def test_a_pull_request_that_was_reworked_needs_a_person(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items (#77)", {"a.py": BODY + FUNCTION})
    half = [*FUNCTION[:6], *[f"        result.append(other_{n}(items))" for n in range(4)], FUNCTION[-1]]
    upstream.commit("Collect items, reworked (#77)", {"a.py": BODY + half})
    carried = upstream.outcome(patch, cache=tmp_path / "cache")[0].carried
    assert (carried.outcome, carried.needs_person) == (Outcome.PARTLY_LANDED, True)
    assert "#77" in carried.evidence[0]
    assert carried.conflicts


def test_a_ladder_meets_things_where_they_happened(upstream: Upstream, tmp_path: Path) -> None:
    collect = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    change = upstream.fork("Change five", {"b.py": [*BODY[:5], "value_5 = mine(5)", *BODY[6:]]})
    upstream.tag("v1.0")
    upstream.commit("Something", {"c.py": ["c = 1"]})
    upstream.tag("v1.1")
    brought = upstream.commit("Gather", {"a.py": ["import os", *BODY, *FUNCTION]})
    upstream.commit("Near", {"b.py": [*BODY, "near = 1"]})
    upstream.tag("v1.2")
    broke = upstream.commit("Other five", {"b.py": [*BODY[:5], "value_5 = other(5)", *BODY[6:], "near = 1"]})
    upstream.tag("v1.10rc1")
    upstream.commit("Rewrite", {"a.py": BODY[:50]})
    upstream.tag("v1.10")
    span = Range("v1.0", "v1.10", ("auto",))
    found = triage.triage(upstream.folder, span, [collect, change], cache=tmp_path / "cache", independent=True)
    assert [rung.name for rung in found.rungs] == ["v1.1", "v1.2", "v1.10"]
    landed, conflict = (row.carried for row in found.rows)
    assert landed.landed is not None
    assert (landed.landed.commit, landed.landed.rung) == (brought, "v1.2")
    assert (conflict.outcome, conflict.rung) == (Outcome.CONFLICT, "v1.10")
    assert [one.commit for one in conflict.conflicts[0].upstream] == [broke]
    given = triage.triage(upstream.folder, Range("v1.0", "v1.10", ("v1.10rc1",)), [change], cache=tmp_path / "cache")
    assert [(row.carried.outcome, row.carried.rung) for row in given.rows] == [(Outcome.CONFLICT, "v1.10rc1")]


def test_a_conflict_names_who_touched_the_lines(upstream: Upstream, tmp_path: Path) -> None:
    edit = upstream.fork("Change five", {"a.py": [*BODY[:5], "value_5 = mine(5)", *BODY[6:]]})
    gone = upstream.fork("Change b", {"b.py": [*BODY[:5], "value_5 = mine(5)", *BODY[6:]]})
    upstream.commit("Far away", {"a.py": [*BODY, "far = 1"]})
    first = upstream.commit("Other five (#3)", {"a.py": [*BODY[:5], "value_5 = other(5)", *BODY[6:], "far = 1"]})
    again = upstream.commit("Yet another five", {"a.py": [*BODY[:5], "value_5 = third(5)", *BODY[6:], "far = 1"]})
    upstream.commit("Far again", {"a.py": [*BODY[:5], "value_5 = third(5)", *BODY[6:], "far = 2"]})
    removed = upstream.commit("Remove b", {"b.py": None})
    rows = upstream.outcome(edit, gone, cache=tmp_path / "cache")
    named = [(one.commit, one.subject) for one in rows[0].carried.conflicts[0].upstream]
    assert named == [(first, "Other five (#3)"), (again, "Yet another five")]
    assert [one.commit for one in rows[1].carried.conflicts[0].upstream] == [removed]


def test_both_sides_adding_to_one_set_is_resolved(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit("Names", {"names.py": ["NAMES = {", '    "one",', '    "two",', "}"]})
    git.run(["tag", "--force", "base"], cwd=upstream.folder)
    patch = upstream.fork("Mine", {"names.py": ["NAMES = {", '    "one",', '    "two",', '    "mine",', "}"]})
    upstream.commit("Theirs", {"names.py": ["NAMES = {", '    "one",', '    "two",', '    "theirs",', "}"]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.RESOLVED
    assert row.exported is not None
    assert b'+    "mine",' in row.exported


def test_a_function_that_moved_to_another_file_is_followed(upstream: Upstream, tmp_path: Path) -> None:
    function = [
        "def gather(items, limit):",
        *[f"    step_{n} = transform(items, {n}, limit)" for n in range(9)],
        "    return step_8",
    ]
    changed = [line.replace("transform(items, 4, limit)", "transform(items, 4, limit + 1)") for line in function]
    upstream.commit("Function", {"a.py": [*BODY, *function]})
    git.run(["tag", "--force", "base"], cwd=upstream.folder)
    patch = upstream.fork("Limit", {"a.py": [*BODY, *changed]})
    upstream.commit("Split", {"a.py": BODY, "gather.py": ["import os", "", *function]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.RELOCATED
    assert not row.carried.needs_person
    assert any("gather.py" in said for said in row.carried.evidence)
    assert row.exported is not None
    assert b"+++ b/gather.py" in row.exported


def test_what_was_wrong_before_is_told_too(upstream: Upstream, tmp_path: Path) -> None:
    """A module that is gone is gone, whether the old base had it or not."""
    (upstream.folder / "pack").mkdir()
    upstream.commit("Pack", {"pack/__init__.py": ["x = 1"], "pack/use.py": BODY})
    git.run(["tag", "--force", "base"], cwd=upstream.folder)
    patch = upstream.fork("Use it", {"pack/use.py": ["from pack.quant_utils import quantize", *BODY]})
    upstream.commit("Nothing to do with it", {"b.py": BODY[1:]})
    carried = upstream.outcome(patch, cache=tmp_path / "cache")[0].carried
    assert carried.outcome is Outcome.DRIFTED
    assert carried.drifts[0].problem.endswith("(on the old base, too)")
    assert carried.drifts[0].upstream == ()


def test_what_applies_and_is_wrong_has_drifted(upstream: Upstream, tmp_path: Path) -> None:
    files = {"pack/__init__.py": ["x = 1"], "pack/quant_utils.py": ["def quantize(x):", "    return x"], "pack/use.py": BODY}
    (upstream.folder / "pack").mkdir()
    upstream.commit("Pack", dict(files))
    git.run(["tag", "--force", "base"], cwd=upstream.folder)
    patch = upstream.fork("Use it", {"pack/use.py": ["from pack.quant_utils import quantize", *BODY, "y = quantize(1)"]})
    alone = upstream.fork("Other", {"a.py": ["import os", *BODY]})
    upstream.commit("Nothing to do with it", {"b.py": BODY[1:]})
    removed = upstream.commit("Drop the module (#9)", {"pack/quant_utils.py": None})
    upstream.commit("Go on", {"b.py": BODY[2:]})
    rows = upstream.outcome(patch, alone, cache=tmp_path / "cache")
    assert [row.carried.outcome for row in rows] == [Outcome.DRIFTED, Outcome.CLEAN]
    (drift,) = rows[0].carried.drifts
    assert (drift.path, drift.line) == ("pack/use.py", 1)
    assert "pack.quant_utils" in drift.problem
    assert [one.commit for one in drift.upstream] == [removed]
    series = triage.triage(upstream.folder, Range("base", "main"), [alone, patch], cache=tmp_path / "cache")
    assert [row.carried.outcome for row in series.rows] == [Outcome.CLEAN, Outcome.DRIFTED]


def test_without_history_the_release_is_named(upstream: Upstream, tmp_path: Path) -> None:
    patches = [
        upstream.fork("Collect items", {"a.py": BODY + FUNCTION}),
        upstream.fork("Change five", {"b.py": [*BODY[:5], "value_5 = mine(5)", *BODY[6:]]}),
    ]
    upstream.tag("v1.0")
    for name, files in (
        ("v1.1", {"a.py": BODY[1:] + FUNCTION}),
        ("v1.2", {"a.py": BODY[2:] + FUNCTION, "b.py": [*BODY[:5], "value_5 = other(5)", *BODY[6:]]}),
    ):
        git.run(["checkout", "--quiet", "--orphan", f"release-{name}"], cwd=upstream.folder)
        upstream.commit(name, dict(files))
        upstream.tag(name)
    span = Range("v1.0", "v1.2", ("auto",))
    rows = triage.triage(upstream.folder, span, patches, cache=tmp_path / "cache", independent=True).rows
    landed, conflict = (row.carried for row in rows)
    assert landed.landed is not None
    assert (landed.outcome, landed.landed.rung, landed.landed.subject) == (Outcome.LANDED, "v1.1", "v1.1")
    assert [one.subject for one in conflict.conflicts[0].upstream] == ["v1.2"]


@pytest.mark.parametrize(
    ("theirs", "outcome"),
    [
        (["import os", *BODY], Outcome.MOVED),
        ([*BODY[:-1], "value_59 = compute(60)"], Outcome.CONFLICT),
        (BODY, Outcome.CLEAN),
    ],
)
def test_what_nobody_brought_has_not_landed(upstream: Upstream, tmp_path: Path, theirs: list[str], outcome: Outcome) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Other things", {"a.py": theirs, "b.py": BODY[2:]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert (row.carried.outcome, row.carried.landed) == (outcome, None)


def test_a_short_change_lands_only_when_it_is_the_same(upstream: Upstream, tmp_path: Path) -> None:
    one = upstream.fork("Import os", {"a.py": ["import os", *BODY]})
    other = upstream.fork("Import os there", {"b.py": ["import os", *BODY]})
    upstream.commit("Need os", {"a.py": ["import os", *BODY]})
    rows = upstream.outcome(one, other, cache=tmp_path / "cache")
    assert [row.carried.outcome for row in rows] == [Outcome.LANDED, Outcome.CLEAN]


def test_common_lines_tell_nothing(upstream: Upstream, tmp_path: Path) -> None:
    for number in range(8):
        upstream.commit(
            f"More {number}",
            {f"n{number}.py": ["# Licence: yes", "import common_module", "LOGGER = make_logger()", f"x_{number} = 1"]},
        )
    patch = upstream.fork("Mine", {"mine.py": ["# Licence: yes", "import common_module", "LOGGER = make_logger()", "own = 1"]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert (row.carried.outcome, row.carried.landed) == (Outcome.CLEAN, None)


def test_the_index_is_built_once_and_the_repository_only_read(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Other", {"b.py": BODY[1:]})
    before = sorted((upstream.folder / ".git").rglob("*"))
    upstream.outcome(patch, cache=tmp_path / "cache")
    built = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache/landing").glob("*.sqlite")}
    assert len(built) == 1
    upstream.outcome(patch, cache=tmp_path / "cache")
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "cache/landing").glob("*.sqlite")} == built
    assert sorted((upstream.folder / ".git").rglob("*")) == before


def test_a_shallow_clone_does_not_change_what_a_full_one_shows(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Gather results", {"a.py": [*BODY, *FUNCTION]})
    upstream.commit("Other", {"b.py": BODY[1:]})
    shallow = tmp_path / "shallow"
    git.run(["init", "--quiet", str(shallow)])
    refs = ["refs/tags/base:refs/tags/base", "refs/heads/main:refs/heads/main"]
    git.run(["fetch", "--quiet", "--depth=1", f"file://{upstream.folder}", *refs], cwd=shallow)
    (of_shallow,) = triage.triage(shallow, Range("base", "main"), [patch], cache=tmp_path / "cache", independent=True).rows
    assert of_shallow.carried.landed is not None
    assert of_shallow.carried.landed.subject == "main"
    (whole,) = upstream.outcome(patch, cache=tmp_path / "cache")
    assert whole.carried.landed is not None
    assert whole.carried.landed.subject == "Gather results"


def test_the_verb(upstream: Upstream, tmp_path: Path) -> None:
    landed = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    bare = tmp_path / "bare.diff"
    bare.write_text(landed.read_text()[landed.read_text().index("diff --git") :])
    upstream.commit("Collect", {"a.py": BODY + FUNCTION})
    ask = ["--cache", str(tmp_path / "cache"), "triage", "--repo", str(upstream.folder), "--base", "base", "--onto", "main"]
    done = CliRunner().invoke(cli, [*ask, "--independent", "--json", str(landed), str(bare)])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert [one["outcome"] for one in answer["patches"]] == ["landed", "landed"]
    assert answer["patches"][0]["landed"]["score"] == 1.0
    shown = CliRunner().invoke(cli, [*ask, "--independent", str(landed)])
    assert "landed" in shown.output


def test_it_starts_without_what_only_editing_and_releases_need() -> None:
    rare = {"tomlkit", "packaging", "platformdirs", "email.utils", "stack.carry.resolutions", "stack.carry.structure"}
    code = f"import sys, stack.cli, stack.cli.triage; print(*{rare} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repo": "."}, "is not a git repository"),
        ({"base": "no-such"}, "has no commit 'no-such'"),
        ({"onto": "--all"}, "has no commit '--all'"),
        ({"file": b"hello\n"}, "has no git diff"),
        ({"file": None}, "is missing: check the path"),
    ],
)
def test_bad_input_is_refused(upstream: Upstream, tmp_path: Path, change: dict[str, object], said: str) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    if "file" in change:
        patch = tmp_path / "other.patch"
        if isinstance(change["file"], bytes):
            patch.write_bytes(change["file"])
    repo = tmp_path if "repo" in change else upstream.folder
    with pytest.raises(StackError, match=said):
        span = Range(str(change.get("base", "base")), str(change.get("onto", "main")))
        triage.triage(repo, span, [patch], cache=tmp_path / "cache")


def test_a_patch_that_does_not_fit_its_base_is_told_beside_the_others(upstream: Upstream, tmp_path: Path) -> None:
    good = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    bad = tmp_path / "bad.patch"
    bad.write_text(good.read_text().replace("value_59", "value_95"))
    rows = upstream.outcome(bad, good, cache=tmp_path / "cache")
    assert [row.carried.outcome for row in rows] == [Outcome.CONFLICT, Outcome.CLEAN]
    assert rows[0].carried.evidence == ("does not apply to the base",)
    with pytest.raises(StackError, match=r"bad\.patch does not apply to the base \(a\.py:58.*--independent"):
        triage.triage(upstream.folder, Range("base", "main"), [bad, good], cache=tmp_path / "cache")


OTHER = ["", "def second(items):", *[f"    yield handle_{n}(items, {n})" for n in range(3)]]


def test_what_upstream_lacks_is_never_dropped_with_the_rest(upstream: Upstream, tmp_path: Path) -> None:
    """Most of a patch has landed; a small part, in another file or beside it, has not."""
    large = [f"def large_{n}(items):\n    return transform_{n}(items)" for n in range(30)]
    small = ["value_0 = compute_otherwise(0)", *BODY[1:]]
    patch = upstream.fork("Both", {"a.py": [*BODY, *large], "b.py": small})
    upstream.commit("Large", {"a.py": [*BODY, *large]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.PARTLY_LANDED
    assert row.exported is not None
    assert b"+value_0 = compute_otherwise(0)" in row.exported
    assert b"large_" not in row.exported


def test_a_common_line_that_is_missing_stays(upstream: Upstream, tmp_path: Path) -> None:
    for number in range(9):
        upstream.commit(f"More {number}", {f"n{number}.py": ["return_value_of_all()", f"x_{number} = 1"]})
    patch = upstream.fork("Both", {"a.py": BODY + FUNCTION, "b.py": ["return_value_of_all()", *BODY]})
    upstream.commit("Collect", {"a.py": BODY + FUNCTION})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.PARTLY_LANDED
    assert row.exported is not None
    assert b"+return_value_of_all()" in row.exported


def test_a_residue_keeps_together_what_stands_together(upstream: Upstream, tmp_path: Path) -> None:
    """Of a block of which upstream has some lines, nothing is cut out: half of it would be code that nobody wrote."""
    block = [
        *FUNCTION,
        "    for item in items:",
        "        check(item, result)",
        "    for item in items:",
        "        send(item, result)",
    ]
    patch = upstream.fork("Both", {"a.py": BODY + block, "b.py": BODY + OTHER})
    upstream.commit("Some", {"a.py": BODY + FUNCTION + ["    for item in items:", "        check(item, result)"]})
    upstream.commit("Rework", {"a.py": [*BODY, "", "def collect(items, result):", "    return items"]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    text = row.carried.residue.decode()
    assert ("+    for item in items:" in text) == ("+        send(item, result)" in text)
    assert text.count("+    for item in items:") in (0, 2)


def test_a_release_on_the_side_decides_nothing(upstream: Upstream, tmp_path: Path) -> None:
    """A release branch takes a change that the main line never has; another one is in its way there only."""
    taken = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    blocked = upstream.fork("Change five", {"b.py": [*BODY[:5], "value_5 = mine(5)", *BODY[6:]]})
    upstream.tag("v1.0")
    git.run(["checkout", "--quiet", "-b", "release"], cwd=upstream.folder)
    files = {"a.py": BODY + FUNCTION, "b.py": [*BODY[:5], "value_5 = released(5)", *BODY[6:]]}
    upstream.commit("Only here", dict(files))
    upstream.tag("v1.1")
    git.run(["checkout", "--quiet", "main"], cwd=upstream.folder)
    upstream.commit("Go on", {"c.py": ["c = 1"]})
    upstream.tag("v1.2")
    for through in ((), ("auto",), ("v1.1",)):
        span = Range("v1.0", "v1.2", through)
        found = triage.triage(upstream.folder, span, [taken, blocked], cache=tmp_path / "cache", independent=True)
        assert [row.carried.outcome for row in found.rows] == [Outcome.CLEAN] * 2, through
        assert [row.exported for row in found.rows] == [taken.read_bytes(), blocked.read_bytes()]


def test_a_ladder_ends_where_a_jump_does(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.tag("v1.0")
    upstream.commit("Collect items", {"a.py": BODY + FUNCTION})
    upstream.tag("v1.1")
    upstream.commit("Revert it", {"a.py": BODY})
    upstream.tag("v1.2")
    for through in ((), ("auto",)):
        row = triage.triage(upstream.folder, Range("v1.0", "v1.2", through), [patch], cache=tmp_path / "cache").rows[0]
        assert row.carried.outcome is Outcome.DROPPED_UPSTREAM
        assert row.exported == patch.read_bytes()
        assert "dropped it again" in "; ".join(row.carried.evidence)


def test_a_common_line_that_a_rung_had_was_dropped_again(upstream: Upstream, tmp_path: Path) -> None:
    """No commit can be found by such a line: that a rung had it is enough."""
    patch = upstream.fork("A bracket", {"a.py": [*BODY[:20], "}", *BODY[20:]]})
    upstream.tag("v1.0")
    upstream.commit("A bracket", {"a.py": [*BODY[:20], "}", *BODY[20:]]})
    upstream.tag("v1.1")
    upstream.commit("None", {"a.py": BODY})
    upstream.tag("v1.2")
    row = triage.triage(upstream.folder, Range("v1.0", "v1.2", ("auto",)), [patch], cache=tmp_path / "cache").rows[0]
    assert (row.carried.outcome, row.carried.needs_person) == (Outcome.DROPPED_UPSTREAM, True)
    assert row.exported == patch.read_bytes()


@pytest.mark.parametrize(
    ("through", "said"),
    [
        (("v1.3",), "v1.3 comes after v1.2"),
        (("v1.1", "v1.0.5"), "v1.0.5 comes before v1.1"),
        (("v1.1", "v1.1"), "v1.1 is given twice"),
        (("none",), "has no commit 'none'"),
        (("auto", "v1.1"), "has no commit 'auto'"),
    ],
)
def test_rungs_that_are_no_ladder_are_refused(upstream: Upstream, tmp_path: Path, through: tuple[str, ...], said: str) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    for number, tag in enumerate(("v1.0", "v1.0.5", "v1.1", "v1.2", "v1.3")):
        upstream.commit(tag, {"c.py": [f"c = {number}"]})
        upstream.tag(tag)
    with pytest.raises(StackError, match=said):
        triage.triage(upstream.folder, Range("v1.0", "v1.2", through), [patch], cache=tmp_path / "cache")


def test_in_a_series_a_conflict_names_who_broke_that_patch(upstream: Upstream, tmp_path: Path) -> None:
    """The first patch of a series changes the file, too: that upstream does not have it breaks nothing."""
    git.run(["checkout", "--quiet", "--detach", "base"], cwd=upstream.folder)
    commits = []
    for name, lines in (
        ("One", [*BODY[:20], "value_20 = mine(20)", *BODY[21:]]),
        ("Two", [*BODY[:20], "value_20 = mine(20)", *BODY[21:50], "value_50 = mine(50)", *BODY[51:]]),
    ):
        commits.append(upstream.commit(name, {"a.py": lines}))
    files = []
    for commit in commits:
        file = upstream.patches / f"{commit}.patch"
        file.write_bytes(git.run(["format-patch", "-1", "--stdout", commit], cwd=upstream.folder).stdout)
        files.append(file)
    git.run(["checkout", "--quiet", "main"], cwd=upstream.folder)
    upstream.commit("Unrelated", {"a.py": [*BODY, "end = 1"]})
    broke = upstream.commit("Breaks fifty", {"a.py": [*BODY[:50], "value_50 = theirs(50)", *BODY[51:], "end = 1"]})
    upstream.commit("After it", {"a.py": [*BODY[:50], "value_50 = theirs(50)", *BODY[51:], "end = 2"]})
    rows = triage.triage(upstream.folder, Range("base", "main"), files, cache=tmp_path / "cache").rows
    assert [row.carried.outcome for row in rows] == [Outcome.CLEAN, Outcome.CONFLICT]
    assert [one.commit for one in rows[1].carried.conflicts[0].upstream] == [broke]


def test_an_empty_commit_upstream(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    git.run(["commit", "--quiet", "--allow-empty", "-m", "Nothing"], cwd=upstream.folder)
    upstream.commit("Other", {"b.py": BODY[1:]})
    assert upstream.outcome(patch, cache=tmp_path / "cache")[0].carried.outcome is Outcome.CLEAN


def test_a_topic_branch_that_was_merged(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    git.run(["checkout", "--quiet", "-b", "topic"], cwd=upstream.folder)
    upstream.commit("Gather", {"a.py": BODY + FUNCTION})
    git.run(["checkout", "--quiet", "main"], cwd=upstream.folder)
    upstream.commit("Beside it", {"b.py": BODY[1:]})
    git.run(["merge", "--quiet", "--no-ff", "-m", "Merge pull request #5 from topic", "topic"], cwd=upstream.folder)
    upstream.commit("Rework", {"a.py": [*BODY, *FUNCTION[:3], "        log(items)", *FUNCTION[4:]]})
    carried = upstream.outcome(patch, cache=tmp_path / "cache")[0].carried
    assert carried.outcome is Outcome.LANDED
    assert carried.landed is not None
    assert carried.landed.subject == "Merge pull request #5 from topic"


@pytest.mark.parametrize("kind", ["folder that cannot be made", "file that cannot be written", "file that cannot be renamed"])
def test_a_cache_that_cannot_take_the_index_costs_only_time(upstream: Upstream, tmp_path: Path, kind: str) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Gather results in one place (#12)", {"a.py": ["import os", *BODY, *FUNCTION], "b.py": BODY[1:]})
    expected = upstream.outcome(patch, cache=tmp_path / "good")[0]
    (built,) = (tmp_path / "good/landing").glob("*.sqlite")
    cache = tmp_path / "bad"
    if kind == "folder that cannot be made":
        cache.mkdir()
        (cache / "landing").write_text("")
    else:
        place = cache / "landing" / (built.with_suffix(".part").name if kind == "file that cannot be written" else built.name)
        place.mkdir(parents=True)
        (place / "in the way").touch()
    found = upstream.outcome(patch, cache=cache)[0]
    assert found == expected
    assert expected.carried.outcome is Outcome.LANDED
    assert not [file for file in cache.rglob("*.sqlite") if file.is_file()]


@pytest.mark.parametrize("kind", ["flipped", "cut", "other tables", "huge", "pipe", "link", "seal"])
def test_a_damaged_index_is_built_again(upstream: Upstream, tmp_path: Path, kind: str) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Gather results in one place (#12)", {"a.py": ["import os", *BODY, *FUNCTION], "b.py": BODY[1:]})
    expected = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    (built,) = (tmp_path / "cache/landing").glob("*.sqlite")
    data = built.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(data[:-1])
    if kind == "seal":
        built.with_suffix(".sha256").write_bytes(b"\xff" * 1000)
    else:
        built.unlink()
    if kind == "flipped":
        built.write_bytes(bytes(byte ^ 0xFF if place % 512 == 300 else byte for place, byte in enumerate(data)))
    elif kind == "cut":
        built.write_bytes(data[: len(data) // 2])
    elif kind == "other tables":
        with contextlib.closing(sqlite3.connect(built)) as database:
            database.executescript(
                "".join(f"create table {name} (x);" for name in ("steps", "units", "lines", "common", "files"))
            )
    elif kind == "huge":
        built.write_bytes(data)
        os.truncate(built, 1 << 40)
    elif kind == "pipe":
        os.mkfifo(built)
    elif kind == "link":
        built.symlink_to(other)
    assert upstream.outcome(patch, cache=tmp_path / "cache")[0] == expected
    assert not built.is_symlink()
    assert built.read_bytes() == data
    assert other.read_bytes() == data[:-1]


def functions(*names: str) -> list[str]:
    """Functions of eight lines each, none like another."""
    return [
        line
        for name in names
        for line in (f"def func_{name}(a, b):", *(f"    step_{name}_{n} = compute_{name}(a, b, {n})" for n in range(8)), "", "")
    ]


def tuned(lines: list[str], *calls: str) -> list[str]:
    return [
        line.replace("b, 3)", "b, 33)") if any(f"compute_{name}(a, b, 3)" in line for name in calls) else line for line in lines
    ]


@pytest.mark.parametrize("calls", ["g", "bg", "b", "gh"])
def test_a_file_that_is_split_in_two_and_gone_is_followed(upstream: Upstream, tmp_path: Path, calls: str) -> None:
    """Git takes the larger half for the file's new name, and finds the other half's hunks in conflict there."""
    whole = functions(*"abcdefgh")
    upstream.commit("Whole", {"m.py": whole})
    git.run(["tag", "--force", "base"], cwd=upstream.folder)
    patch = upstream.fork("Tune", {"m.py": tuned(whole, *calls)})
    upstream.commit("Split", {"m.py": None, "m1.py": functions(*"abcde"), "m2.py": functions(*"fgh")})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert not row.carried.needs_person
    assert row.exported is not None
    applied = git.run(["apply", "--index", "-"], cwd=upstream.folder, stdin=row.exported)
    assert applied.returncode == 0
    for name, parts in (("m1.py", "abcde"), ("m2.py", "fgh")):
        assert (upstream.folder / name).read_text().splitlines() == tuned(functions(*parts), *calls)
    assert not (upstream.folder / "m.py").exists()
    assert (row.carried.outcome is Outcome.RELOCATED) == bool(set(calls) & set("fgh"))


def test_halves_that_cannot_be_told_stay_a_conflict(upstream: Upstream, tmp_path: Path) -> None:
    """Both halves have the function: nobody can say which one the patch means."""
    whole = functions(*"abcdefgh")
    upstream.commit("Whole", {"m.py": whole})
    git.run(["tag", "--force", "base"], cwd=upstream.folder)
    patch = upstream.fork("Tune", {"m.py": tuned(whole, "g")})
    upstream.commit("Split", {"m.py": None, "m1.py": functions(*"abcde"), "m2.py": functions(*"fg"), "m3.py": functions(*"gh")})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.CONFLICT
