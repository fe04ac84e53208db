# SPDX-License-Identifier: Apache-2.0
"""`make demo-watch`: two nights on a forge of this machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from ..forge.contract import Contract

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_second_night_writes_nothing(kind: str, github_contract: Contract) -> None:
    done = subprocess.run(
        [sys.executable, "examples/watch_demo.py", "--forge", kind], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in (
        f"== Issue #{1 if kind == 'gitlab' else 2}: up: 1 patch needs a person",
        "- `one/up/hook`: **conflict** at `v1.2` (release)",
        f"== Draft {'merge' if kind == 'gitlab' else 'pull'} request #1: Carry the stack to up v1.1",
        "## Dropped, since upstream has it",
        "== The first night made 3 writes, the second one 0.",
        f"1 issue, 1 {'merge' if kind == 'gitlab' else 'pull'} request",
    ):
        assert part in done.stdout
