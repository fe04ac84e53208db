# SPDX-License-Identifier: Apache-2.0
"""README's "Begin your own", run as it is written: a stack of one's own commits on a release from the registry."""

import os
import re
import subprocess
import sys
from pathlib import Path

from stack.model.stack import load

README = Path(__file__).parents[2] / "README.md"


def written() -> tuple[str, str]:
    """The commands that begin a stack, and those that bring commits into it."""
    section = README.read_text(encoding="utf-8").partition("\n## Begin your own\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    begin, bring = (re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks[:2])
    return begin, bring


def test_as_it_is_written(tmp_path: Path) -> None:
    begin, bring = written()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        environment |= {f"{name}_NAME": "Ada", f"{name}_EMAIL": "ada@example.org"}

    def run(script: str, folder: Path) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"

    run(begin, tmp_path)
    fork = tmp_path / "fork"
    commit = 'echo "print(1)" > mine.py; git add mine.py; git commit -qm "Add mine"\n'
    there, trailer = bring.split("git rebase", 1)
    run(f"{there}{commit}git rebase{trailer}", fork)
    (mine,) = load(fork).series
    (patch,) = mine.patches
    assert (mine.name, patch.upstream, patch.file) == ("mine", "flashinfer", "flashinfer/add-mine.patch")
