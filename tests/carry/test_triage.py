# SPDX-License-Identifier: Apache-2.0
"""Triage on a repository of its own: real git, real patch files, a history that takes, reworks and takes back."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stack.carry import triage
from stack.carry.outcome import Outcome
from stack.cli import cli
from stack.model.errors import StackError
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
        return list(triage.triage(self.folder, "base", "main", files, cache=cache, independent=True).rows)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    made = Upstream(tmp_path)
    made.commit("Begin", {"a.py": BODY, "b.py": BODY})
    git.run(["tag", "base"], cwd=made.folder)
    return made


def test_a_change_under_another_name_has_landed(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    brought = upstream.commit("Gather results in one place (#12)", {"a.py": ["import os", *BODY, *FUNCTION], "b.py": BODY[1:]})
    upstream.commit("Rework", {"a.py": ["import os", *BODY, *FUNCTION[:3], "        log(items)", *FUNCTION[4:]]})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.LANDED
    assert row.landed is not None
    assert (row.landed.commit, row.landed.subject) == (brought, "Gather results in one place (#12)")
    assert brought[:12] in row.carried.evidence


def test_what_was_taken_back_is_said(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Collect items", {"a.py": BODY + FUNCTION})
    upstream.commit("Revert it", {"a.py": BODY})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.LANDED
    assert "changed again since" in row.carried.evidence


def test_a_part_has_landed(upstream: Upstream, tmp_path: Path) -> None:
    patch = upstream.fork(
        "Collect items", {"a.py": BODY + FUNCTION, "b.py": [*BODY, "", *[f"print(value_{n}, end='')" for n in range(5)]]}
    )
    upstream.commit("Collect", {"a.py": BODY + FUNCTION})
    row = upstream.outcome(patch, cache=tmp_path / "cache")[0]
    assert row.carried.outcome is Outcome.PARTLY_LANDED
    assert row.landed is not None
    assert row.landed.missing == ("b.py",)
    assert 0.5 <= row.landed.score < 0.9


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
    assert (row.carried.outcome, row.landed) == (outcome, None)


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
    assert (row.carried.outcome, row.landed) == (Outcome.CLEAN, None)


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


def test_the_verb(upstream: Upstream, tmp_path: Path) -> None:
    landed = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    bare = tmp_path / "bare.diff"
    bare.write_text(landed.read_text()[landed.read_text().index("diff --git") :])
    upstream.commit("Collect", {"a.py": BODY + FUNCTION})
    ask = ["--cache", str(tmp_path / "cache"), "triage", "--repo", str(upstream.folder), "--base", "base", "--onto", "main"]
    done = CliRunner().invoke(cli, [*ask, "--independent", "--json", str(landed), str(bare)])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.output)
    assert [one["outcome"] for one in answer["patches"]] == ["landed", "landed"]
    assert answer["patches"][0]["landed"]["score"] == 1.0
    shown = CliRunner().invoke(cli, [*ask, "--independent", str(landed)])
    assert "landed" in shown.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repo": "."}, "is no git repository"),
        ({"base": "no-such"}, "has no commit 'no-such'"),
        ({"onto": "--all"}, "has no commit '--all'"),
        ({"file": b"hello\n"}, "holds no diff of git's"),
        ({"file": None}, "cannot be read"),
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
        triage.triage(repo, str(change.get("base", "base")), str(change.get("onto", "main")), [patch], cache=tmp_path / "cache")


def test_a_patch_that_does_not_fit_its_base_is_told_beside_the_others(upstream: Upstream, tmp_path: Path) -> None:
    good = upstream.fork("Collect items", {"a.py": BODY + FUNCTION})
    bad = tmp_path / "bad.patch"
    bad.write_text(good.read_text().replace("value_59", "value_95"))
    rows = upstream.outcome(bad, good, cache=tmp_path / "cache")
    assert [row.carried.outcome for row in rows] == [Outcome.CONFLICT, Outcome.CLEAN]
    assert rows[0].carried.evidence == "does not apply to the base"
    with pytest.raises(StackError, match=r"bad\.patch does not apply to the base \(a\.py:58.*--independent"):
        triage.triage(upstream.folder, "base", "main", [bad, good], cache=tmp_path / "cache")
