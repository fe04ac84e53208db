# SPDX-License-Identifier: Apache-2.0
"""The tree under test without the series harmony, in a process of its own, so that both can be compared in one run.

The process is forked before anything of vLLM is imported. It imports vLLM from a folder of links to the tree, in which the files
that the patches change are copies with the patches taken out again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

SERIES = Path(__file__).parents[2] / "stacks/harmony"
TREE = Path(os.environ["STACK_PROOF_TREE"])
CODE = "vllm/"


def patches() -> list[Path]:
    """Return the series' patches in their order."""
    declared = tomllib.loads((SERIES / "series.toml").read_text(encoding="utf-8"))["patch"]
    return [SERIES / patch["file"] for patch in declared]


def without_series(folder: Path) -> Path:
    """Make the tree without the patches; a patch that the tree does not have is left out."""
    changed: set[str] = set()
    for patch in patches():
        named = re.findall(r"^diff --git a/(\S+) b/", patch.read_text(encoding="utf-8"), re.MULTILINE)
        changed.update(path for path in named if path.startswith(CODE) and (TREE / path).exists())
    _link(TREE, folder, Path(), {*changed, *(str(parent) for path in changed for parent in Path(path).parents)})
    for patch in reversed(patches()):
        command = ["git", "apply", "--reverse", f"--include={CODE}*", str(patch)]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return folder


def _link(tree: Path, folder: Path, place: Path, real: set[str]) -> None:
    (folder / place).mkdir(parents=True, exist_ok=True)
    for entry in sorted((tree / place).iterdir()):
        path = place / entry.name
        if str(path) not in real:
            (folder / path).symlink_to(entry)
        elif entry.is_dir():
            _link(tree, folder, path, real)
        else:
            shutil.copyfile(entry, folder / path)


class Process:
    """A process that answers questions with vLLM as it is without the series."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        """Fork it. `answer` imports what it needs from vLLM when it is called."""
        if any(name == "vllm" or name.startswith("vllm.") for name in sys.modules):
            raise RuntimeError("vLLM is imported already: fork before")
        self._folder = tempfile.TemporaryDirectory(prefix="without-harmony-", ignore_cleanup_errors=True)
        tree = without_series(Path(self._folder.name, "tree"))
        (questions, self._ask), (self._answers, answers) = os.pipe(), os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._ask)
            os.close(self._answers)
            _serve(tree, answer, questions, answers)
        os.close(questions)
        os.close(answers)
        self._reader = os.fdopen(self._answers, encoding="utf-8")

    def ask(self, question: Any) -> Any:
        """Return the answer to a question; both are JSON."""
        os.write(self._ask, json.dumps(question).encode() + b"\n")
        line = self._reader.readline()
        if not line:
            raise RuntimeError("the process without the series has ended")
        return json.loads(line)


def _serve(tree: Path, answer: Callable[[Any], Any], questions: int, answers: int) -> None:
    status = 1
    try:
        sys.path[:] = [str(tree), *(place for place in sys.path if place != str(TREE))]
        with os.fdopen(questions, encoding="utf-8") as asked, os.fdopen(answers, "w", encoding="utf-8") as said:
            for line in asked:
                said.write(json.dumps(answer(json.loads(line))) + "\n")
                said.flush()
        status = 0
    finally:
        os._exit(status)
