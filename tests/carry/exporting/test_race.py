# SPDX-License-Identifier: Apache-2.0
"""Two people push the same branch at a time: one push is the first, and the other one is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from ..test_worktree import user_git
from ..world import World
from .test_branch import remote_of

ROUNDS = 3


def begun(root: Path, cache: Path, to: str, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from stack.cli import main; main()", "--root", str(root), "--cache", str(cache)]
    asked = ["export", "gamma", "--branch", "mine", "--to", to, "--source", "git", "--json", *more]
    return subprocess.Popen([*command, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_pushes_at_a_time(world: World, tmp_path: Path) -> None:
    user_git(tmp_path, "clone", "-q", "--bare", remote_of(world), "fork.git")
    to = f"file://{tmp_path}/fork.git"
    other, cache = tmp_path / "other", tmp_path / "other-cache"
    shutil.copytree(world.root, other)
    for number in range(ROUNDS):
        lease: tuple[str, ...] = ()
        if number:
            before = user_git(tmp_path / "fork.git", "rev-parse", "mine")
            lease = ("--force-with-lease", before)
        for place, who in ((world.root, "Why it is"), (other, "Why else it is")):
            file = place / "stacks/one/gamma/hook-main.patch"
            text = file.read_text()
            marked = [line for line in text.splitlines() if line.startswith("Why ")]
            file.write_text(text.replace(marked[0], f"{who} {number}", 1))
        pushes = [begun(world.root, world.cache, to, *lease), begun(other, cache, to, *lease)]
        outputs = [(push.communicate(timeout=120), push.returncode) for push in pushes]
        found = [json.loads(out) for (out, _), _ in outputs]
        states = [one["state"] for one in found]
        assert sorted(states) == sorted(["updated" if number else "new", "refused"]), outputs
        winner = found[states.index("refused") ^ 1]
        assert user_git(tmp_path / "fork.git", "rev-parse", "mine") == winner["head"]
        assert sorted(code for _, code in outputs) == [0, 1]
        why = found[states.index("refused")]["reason"]
        assert any(part in why for part in ("changed it meanwhile", "has moved", "no export made it")), why
