# SPDX-License-Identifier: Apache-2.0
"""A verdict's file is the old one or the new one, wherever its writer is killed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_writers_killed_at_every_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.owner.killed_writers", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert min(found.values()) >= 5
