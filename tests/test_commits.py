# SPDX-License-Identifier: Apache-2.0
"""The check of commit messages that .ci/run makes."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / ".ci/commits"


def commit(folder: Path, message: str) -> None:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", message], cwd=folder, check=True)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("carry: judge landing per hunk", ""),
        ("tests, docs: rename a page\n\nIt says what it holds now.", ""),
        ("carry: " + "x" * 65, ""),
        ("carry: " + "x" * 66, "73 characters"),
        ("Judge landing per hunk", "area: imperative"),
        ("carry: judge landing per hunk.", "area: imperative"),
        ("carry:", "area: imperative"),
    ],
)
def test_the_form_of_a_message(tmp_path: Path, message: str, problem: str) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    commit(tmp_path, "an older commit of any form.")
    commit(tmp_path, message)
    done = subprocess.run([sys.executable, CHECK, "HEAD~1"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, problem in done.stdout) == (1 if problem else 0, True)
    assert "1 checked" in done.stdout


def test_an_unknown_base_is_an_error(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    commit(tmp_path, "x: y")
    done = subprocess.run([sys.executable, CHECK, "nowhere"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "nowhere" in done.stderr
