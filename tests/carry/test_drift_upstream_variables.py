# SPDX-License-Identifier: Apache-2.0
"""Environment variables of patches whose lines move or are reworded: upstream's own trees say what upstream knows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.carry import workspace
from stack.carry.outcome import Carried, Outcome
from stack.carry.rebase import Conclusion, Rebase, Request, conclude, rebase
from stack.model import digest, switch

from .importing.conftest import Project
from .test_worktree import user_git
from .world import numbered

READER = 'level = os.environ.get("VLLM_LEVEL", "1")'
MINE = 'mine = os.environ.get("VLLM_MINE")'
NEW = "release-3.0.0"


def body(changes: Mapping[int, str]) -> bytes:
    """A module that reads `VLLM_LEVEL` in line 30."""
    return b"import os\n" + numbered("x =", {30: READER} | dict(changes), count=60)


@dataclass
class Renamed:
    """An upstream whose next release renames `vllm/run.py`, and a stack with one patch of that file."""

    project: Project

    def patch(self, changes: Mapping[int, str]) -> None:
        self.project.clone.commit({"vllm/run.py": body(changes)}, "Mine")
        self.project.bring(self.project.clone.path, "mine")

    def release(self, changes: Mapping[int, str], path: str = "vllm/start.py") -> None:
        if path != "vllm/run.py":
            self.project.remote.git("mv", "vllm/run.py", path)
        self.project.remote.commit({path: body({50: "release = 3"} | dict(changes))}, "Release 3.0")
        self.project.remote.tag(NEW)

    def carried(self) -> tuple[Rebase, Carried]:
        with self.project.stores() as stores:
            done = rebase(stores, Request("web", NEW))
        (row,) = done.rows()
        return done, row


@pytest.fixture
def renamed(tmp_path: Path) -> Renamed:
    project = Project(tmp_path)
    table = b'import os\nenvironment = {\n    "VLLM_PORT": lambda: os.getenv("VLLM_PORT"),\n}\n'
    project.remote.commit({"vllm/__init__.py": b"", "vllm/envs.py": table, "vllm/run.py": body({})}, "Release 2.0")
    project.remote.tag("release-2.0.0")
    project.pin("release-2.0.0")
    project.clone.git("fetch", "--quiet", "--tags", "up")
    project.clone.git("checkout", "--quiet", "-B", "mine", "release-2.0.0")
    return Renamed(project)


def test_a_variable_of_the_patch_in_a_file_that_upstream_renames(renamed: Renamed) -> None:
    renamed.patch({10: MINE})
    renamed.release({})
    done, row = renamed.carried()
    assert row.drifts == ()
    assert b"vllm/start.py" in done.legs[0].carry.exported[row.patch.ref.path]


def test_a_reader_that_the_patch_edits_in_a_file_that_upstream_renames(renamed: Renamed) -> None:
    renamed.patch({30: READER.replace("1", "2")})
    renamed.release({})
    done, row = renamed.carried()
    assert row.drifts == ()
    assert b"vllm/start.py" in done.legs[0].carry.exported[row.patch.ref.path]


@pytest.mark.parametrize("line", [READER, 'again = os.getenv("VLLM_LEVEL")'], ids=["upstream's words", "own words"])
def test_a_variable_that_upstream_drops_in_a_file_that_it_renames(renamed: Renamed, line: str) -> None:
    renamed.patch({10: line})
    renamed.release({30: "x = 30"})
    done, row = renamed.carried()
    assert row.outcome is Outcome.DRIFTED
    assert [drift.path for drift in row.drifts] == ["vllm/start.py"]
    assert row.drifts[0].problem.startswith("the upstream no longer knows the environment variable VLLM_LEVEL: ")
    assert [each.subject for each in row.drifts[0].upstream] == ["Release 3.0"]
    assert conclude(done) is Conclusion.DRIFT


def test_a_variable_whose_line_was_reworded_in_a_resolution(renamed: Renamed, tmp_path: Path) -> None:
    renamed.patch({10: MINE})
    renamed.release({10: "theirs = 10"}, "vllm/run.py")
    project, folder = renamed.project, tmp_path / "work"
    done, row = renamed.carried()
    assert row.outcome is Outcome.CONFLICT
    allowed = {"allow_mismatch": False, "allow_drift": False}
    with project.stores() as stores:
        workspace.start(folder, stores, done, **allowed, digest=digest.exact(stores.stack))
    reworded = 'mine = os.environ.get("VLLM_MINE", "theirs")'
    (folder / "vllm/run.py").write_bytes(body({10: reworded, 50: "release = 3"}))
    user_git(folder, "add", "vllm/run.py")
    session = workspace.load(folder)
    with project.stores() as stores:
        mended, after = workspace.proceed(folder, stores, session, digest=digest.exact(stores.stack))
        assert after.not_recorded == ()
        assert conclude(mended) is Conclusion.SWITCHED
    switch.undo(project.root)
    again, row = renamed.carried()
    assert (row.outcome, row.drifts) == (Outcome.RESOLVED, ())
    assert conclude(again, dry_run=True) is Conclusion.DRY_RUN
