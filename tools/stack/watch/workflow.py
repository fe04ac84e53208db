# SPDX-License-Identifier: Apache-2.0
"""Write the workflow that runs `stack watch run` every night on GitHub."""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from stack import __version__
from stack.base import files
from stack.base.errors import StackError
from stack.store import git

NAME = "stack-watch.yml"
"""The workflow's file."""
PLACE = ".github/workflows"
PLAIN = "ubuntu-24.04"
"""The runner by default, one of GitHub's own."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHECKOUT = "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0"
_CACHE = "actions/cache@0057852bfaa89a56745cba8c7296529d2fc39830 # v4.3.0"
_FOLDER = re.compile(r"(?:[A-Za-z0-9._-]+/)*")

_TEXT = """\
# Written by `stack watch init --github`: carries the stack to new releases every night. See docs/watch.md of git-carry.
# It runs by its schedule and by hand only. A pull request never starts it, so no stranger's code runs on your runner or gets the token.
name: stack-watch
on:
  schedule:
    - cron: "{minute} {hour} * * *"
  workflow_dispatch:
permissions: {{}}
concurrency:
  group: stack-watch
  cancel-in-progress: false
jobs:
  watch:
    runs-on: {runner}
    timeout-minutes: 300
    permissions:
      contents: write # pushes branches below stack-watch/
      issues: write # keeps one issue for each upstream
      pull-requests: write # opens draft pull requests
    steps:
      - uses: {checkout}
        with:
          persist-credentials: false # git asks for the token only where it pushes
      - uses: {cache}
        with:
          path: ~/.cache/stack
          key: stack-watch-${{{{ runner.os }}}}-${{{{ hashFiles('{folder}pins.toml') }}}}-${{{{ github.run_id }}}}
          restore-keys: |
            stack-watch-${{{{ runner.os }}}}-${{{{ hashFiles('{folder}pins.toml') }}}}-
            stack-watch-${{{{ runner.os }}}}-
      - name: Install stack
        run: |
          python3 -m venv "$RUNNER_TEMP/stack"
          "$RUNNER_TEMP/stack/bin/python" -m pip install --quiet 'git-carry=={version}'
      - name: Carry the stack to new releases
        env:
          GH_TOKEN: ${{{{ github.token }}}}
          GIT_CONFIG_COUNT: "1"
          # For this forge only: an upstream's host that asks for a password must not get the token.
          GIT_CONFIG_KEY_0: credential.${{{{ github.server_url }}}}.helper
          GIT_CONFIG_VALUE_0: '!f() {{ test "$1" = get && echo username=x-access-token && echo "password=$GH_TOKEN"; }}; f'
        run: |
          "$RUNNER_TEMP/stack/bin/stack" --root './{folder}' watch run{prove} || test $? -eq 1 # 1: the issue says what needs a person
"""


@dataclass(frozen=True, slots=True)
class Written:
    """The workflow's file, and whether it is new or differs from what was there."""

    path: Path
    changed: bool


def text(folder: str, runner: tuple[str, ...], seed: str, *, prove: bool = False) -> str:
    """Return the workflow.

    Args:
        folder: the stack's folder in its repository, with a slash at its end; empty for the repository itself.
        runner: the labels of the runner.
        prove: let it run the proofs.
        seed: decides the minute of the night, so that not everybody's workflow starts at once.

    Raises:
        StackError: a label or the folder's name cannot stand in a workflow.

    """
    for label in runner:
        if not _LABEL.fullmatch(label):
            raise StackError(
                f"--runner {label!r} is not a label of a runner", "write labels as letters, digits, dots and dashes"
            )
    if not _FOLDER.fullmatch(folder):
        raise StackError(f"the stack's folder {folder!r} has characters that a workflow cannot hold", "move it to a plain name")
    moment = int(hashlib.sha256(seed.encode("utf-8", "surrogateescape")).hexdigest(), 16) % 180
    return _TEXT.format(
        minute=moment % 60,
        hour=2 + moment // 60,
        runner=runner[0] if len(runner) == 1 else json.dumps(list(runner)),
        checkout=_CHECKOUT,
        cache=_CACHE,
        folder=folder,
        version=__version__,
        prove=" --prove" if prove else "",
    )


def write(root: Path, runner: tuple[str, ...], *, prove: bool, force: bool) -> Written:
    """Write the workflow into the repository of a stack.

    Raises:
        StackError: the stack is not in a git repository, or the file is there and differs and `force` is not set.

    """
    shown = git.run(["rev-parse", "--show-toplevel", "--show-prefix"], cwd=root, accept=(0, 128))
    if shown.returncode:
        raise StackError(f"{root} is not in a git repository", "run `git init` there, or clone your repository")
    top, _, folder = os.fsdecode(shown.stdout).removesuffix("\n").partition("\n")
    made = text(folder, runner, Path(top).name, prove=prove).encode()
    path = Path(top, PLACE, NAME)
    with files.opened(Path(top)) as opened, opened.below(*PLACE.split("/"), create=True) as place:
        before = place.read(NAME)
        if before is not None and before != made and not force:
            raise StackError(f"{path} is there and differs", "look at it, then run it with --force to replace it")
        if before != made:
            place.write(f".{NAME}.part", made)
            place.move(f".{NAME}.part", place, NAME)
    return Written(path, before != made)
