# SPDX-License-Identifier: Apache-2.0
"""README's "Begin your own", run as it is written but for its addresses; the same on a release from the registry; and the example."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stack.cli import cli
from stack.model.stack import load

from ..store.factories import Remote

ROOT = Path(__file__).parents[2]
FROM_REGISTRY = """\
stack init flashinfer --git https://127.0.0.1:1/none --tag v0.7.0.post1 --package flashinfer-python
"""
SERIES = """\
mkdir stacks/mine
printf 'series = ["mine"]\\n' > stacks/stack.toml
printf 'title = "Mine"\\nwhy = "It is needed."\\nstate = "draft"\\n' > stacks/mine/series.toml
"""
BRING = """\
stack checkout UPSTREAM ../tree
cd ../tree
COMMITS
git rebase -x 'git commit --amend -s --no-edit --trailer "Stack-Series: mine"' stack-base
cd ../fork
stack refresh UPSTREAM ../tree
"""


def written() -> list[str]:
    """The three commands of the README."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Begin your own\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [line.strip() for line in blocks[0].splitlines()]


def run(script: str, folder: Path) -> str:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        environment |= {f"{name}_NAME": "Ada", f"{name}_EMAIL": "ada@example.org"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def bring(upstream: str, commits: str) -> str:
    """The commands that bring commits into a stack, one after the other."""
    return SERIES + BRING.replace("UPSTREAM", upstream).replace("COMMITS", commits)


def test_as_it_is_written(tmp_path: Path) -> None:
    init, fetch, rebase = written()
    nginx = Remote(tmp_path / "nginx")
    lines = {f"src/{name}.c": f"int {name};\n".encode() for name in "abc"}
    nginx.commit(lines)
    nginx.tag("release-1.27.1")
    run(f"git clone -q {nginx.path} my-nginx && git -C my-nginx checkout -qb my-branch", tmp_path)
    run("echo 'int d;' > src/d.c && git add . && git commit -qsm 'Add d'", tmp_path / "my-nginx")
    nginx.commit({"src/a.c": b"long a;\n"})
    nginx.tag("release-1.31.4")
    (tmp_path / "fork").mkdir()
    monkey = f"export STACK_CACHE={tmp_path}/cache\n"
    run(monkey + init.replace("https://github.com/nginx/nginx", str(nginx.path)), tmp_path / "fork")
    ours = "git fetch -q ../my-nginx my-branch; git cherry-pick FETCH_HEAD"
    run(monkey + (fetch if "import" in cli.list_commands(None) else bring("nginx", ours)), tmp_path / "fork")  # type: ignore[arg-type]
    shown = run(monkey + rebase, tmp_path / "fork")
    assert "nginx release-1.27.1 -> release-1.31.4" in shown
    assert re.search(r"add-d +clean", shown)
    assert load(tmp_path / "fork").pins.get("nginx").tag == "release-1.27.1"


@pytest.mark.images  # it imports a whole archive
def test_on_a_release_from_the_registry(tmp_path: Path) -> None:
    """The archive names its commit, so that the git remote is not needed."""
    (tmp_path / "fork").mkdir()
    run(FROM_REGISTRY, tmp_path / "fork")
    mine = 'echo "print(1)" > mine.py; git add mine.py; git commit -qm "Add mine"'
    run(bring("flashinfer", mine), tmp_path / "fork")
    fork = load(tmp_path / "fork")
    (series,) = fork.series
    (patch,) = series.patches
    assert (series.name, patch.upstream, patch.file) == ("mine", "flashinfer", "flashinfer/add-mine.patch")
    pin = fork.pins.get("flashinfer")
    assert pin.archive is not None
    assert (pin.archive.version, pin.archive.sha256 is not None, pin.tree is not None) == ("0.7.0.post1", True, True)


def test_the_example_of_any_fork(tmp_path: Path) -> None:
    shown = run(str(ROOT / "examples/any-fork.sh"), tmp_path)
    assert "serve release-1.27.1 -> release-1.31.4" in shown
    assert re.search(r"raise-the-tenth-limit +moved ", shown)
    assert re.search(r"raise-the-fortieth-limit +landed +\w{12} serve: a higher limit .*\(in release-1\.28\.0\)", shown)
    assert list(tmp_path.iterdir()) == []
