# SPDX-License-Identifier: Apache-2.0
"""`make release`: equal commits give equal bytes, and the bill and the statement describe these bytes."""

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from stack.store import git

from .scripts import loaded

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return loaded("requirements/release.py")


def clone(place: Path) -> Path:
    """This checkout's commit, with a man page as `make docs` leaves it."""
    git.run(["clone", "-q", str(ROOT), str(place)])
    (place / "build/man").mkdir(parents=True)
    (place / "build/man/stack.1").write_text(".TH STACK 1\n")
    return place


def test_equal_commits_give_equal_bytes(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")  # the builder sets it, and restores nothing
    monkeypatch.setenv("HATCH_BUILD_HOOK_ENABLE_CUSTOM", "")
    first, second = (
        {file.name: file.read_bytes() for file in release.build(tmp_path / f"{name}-out", clone(tmp_path / name))}
        for name in ("one", "two")
    )
    assert first == second
    wheel, archive = (name for name in first if name.endswith((".whl", ".tar.gz")))
    assert [
        name for name in zipfile.ZipFile(tmp_path / "one-out" / wheel).namelist() if name.endswith("share/man/man1/stack.1")
    ]
    statement = json.loads(first[wheel.partition("-py3")[0] + ".intoto.json"])
    hashes = {name: hashlib.sha256(first[name]).hexdigest() for name in (wheel, archive)}
    assert {one["name"]: one["digest"]["sha256"] for one in statement["subject"]} == hashes
    bill = json.loads(first[wheel.partition("-py3")[0] + ".cdx.json"])
    assert {"click", "gitpython", "gitdb"} <= {one["name"] for one in bill["components"]}
    assert "pytest" not in {one["name"] for one in bill["components"]}


def test_what_is_not_committed_is_not_released(tmp_path: Path) -> None:
    place = clone(tmp_path / "clone")
    (place / "README.md").write_text("changed\n")
    ran = subprocess.run(
        [sys.executable, place / "requirements/release.py", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "README.md: commit it first" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_version_that_the_changelog_lacks_is_not_released(tmp_path: Path) -> None:
    place = clone(tmp_path / "clone")
    text = (place / "CHANGELOG.md").read_text()
    (place / "CHANGELOG.md").write_text(text.replace("## [Unreleased]\n", "## [Unreleased]\n\n### Added\n\n- New.\n", 1))
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    git.run([*identity, "commit", "-q", "--all", "-m", "docs: say what is new"], cwd=place)
    ran = subprocess.run(
        [sys.executable, place / "requirements/release.py", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "CHANGELOG.md: [Unreleased] has entries: put them under the version" in ran.stderr
    assert not (tmp_path / "out").exists()
