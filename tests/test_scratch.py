# SPDX-License-Identifier: Apache-2.0
"""Where the quick tests keep their temporary files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import scratch


def test_a_folder_needs_room_and_lets_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scratch.usable(tmp_path, room=1)
    assert not scratch.usable(tmp_path, room=2**60)
    assert not scratch.usable(tmp_path / "missing", room=1)
    assert list(tmp_path.iterdir()) == []

    def refused(*_args: object, **_options: object) -> None:
        raise PermissionError  # what a file system mounted with `noexec` answers

    monkeypatch.setattr(subprocess, "run", refused)
    assert not scratch.usable(tmp_path, room=1)


def test_a_folder_of_the_callers_own_stays(tmp_path: Path) -> None:
    command = [sys.executable, scratch.__file__]
    told = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert told.stdout == str(tmp_path)
