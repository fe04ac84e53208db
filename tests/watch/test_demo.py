# SPDX-License-Identifier: Apache-2.0
"""`make demo-watch`: two nights on a forge of this machine."""

import subprocess
import sys
from pathlib import Path

from ..forge.contract import Contract

ROOT = Path(__file__).parents[2]


def test_the_second_night_writes_nothing(github_contract: Contract) -> None:
    done = subprocess.run([sys.executable, "examples/watch_demo.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        "== Issue #2: up: 1 patch needs a person",
        "- `one/up/hook`: **conflict** at `v1.2` (release)",
        "== Draft pull request #1: Carry the stack to up v1.1",
        "## Dropped, since upstream has it",
        "== The first night made 3 writes, the second one 0.",
        "1 issue, 1 pull request",
    ):
        assert part in done.stdout
