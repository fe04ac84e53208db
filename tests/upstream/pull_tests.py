# SPDX-License-Identifier: Apache-2.0
"""The tests that patches bring along for upstream's own test files, so that a proof runs what a pull request would.

The tree under test may be without the patch. Its test files are then completed with the patch's changes to them. If the tests
cannot even be imported there, because the code that they import is missing, each of them fails with that reason.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import subprocess
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import support

ROOT = Path(__file__).parents[2]
TREE = Path(os.environ["STACK_PROOF_TREE"])
NOT_RUN = ("tests/entrypoints/openai/responses/test_serving_responses.py",)
"""Upstream's test files that import what the proofs' environment leaves out: web servers and clients of other projects."""
_CONTEXT = 1
"""Lines around a change that have to be as in the patch: another patch may have changed those beyond."""

# Nothing is imported here: the line makes the patches part of a result's key.
with contextlib.suppress(ImportError):
    importlib.import_module("stacks.harmony.vllm")


def tests_of(patch: Path) -> dict[str, Any]:
    """Return the test functions that a patch adds, with the fixtures of their modules, by name."""
    text = patch.read_text(encoding="utf-8")
    found: dict[str, Any] = {}
    for path, change in _changes(text):
        names = re.findall(r"^\+(?:async )?def (test_\w+)", change, re.MULTILINE)
        if names:
            found |= _of_module(path, change, names)
    return found


def _changes(text: str) -> Iterator[tuple[str, str]]:
    """Yield each test file of a patch with its part of the text."""
    for part in re.split(r"^(?=diff --git )", text, flags=re.MULTILINE)[1:]:
        path = part.split("\n", 1)[0].rpartition(" b/")[2]
        if re.fullmatch(r"tests/.*/test_\w+\.py", path) and path not in NOT_RUN:
            yield path, part


def _of_module(path: str, change: str, names: list[str]) -> dict[str, Any]:
    module = types.ModuleType(path.removesuffix(".py").replace("/", "."))
    module.__file__ = str(TREE / path)
    try:
        with support.quiet():
            exec(compile(_with_change(path, change, names), module.__file__, "exec"), vars(module))
    except (ImportError, AttributeError, subprocess.CalledProcessError) as missing:
        return {name: _failing(name, missing) for name in names}
    fixtures = {name: value for name, value in vars(module).items() if type(value).__name__ == "FixtureFunctionDefinition"}
    return fixtures | {name: getattr(module, name) for name in names}


def _with_change(path: str, change: str, names: list[str]) -> str:
    """Return a test file of the tree, with a patch's change to it unless the tree has its tests."""
    present = (TREE / path).read_text(encoding="utf-8") if (TREE / path).exists() else ""
    if all(f"def {name}(" in present for name in names):
        return present
    with tempfile.TemporaryDirectory(prefix="pull-tests-") as folder:
        copy = Path(folder, path)
        copy.parent.mkdir(parents=True)
        if present:
            copy.write_text(present, encoding="utf-8")
        command = ["git", "apply", f"-C{_CONTEXT}"]
        subprocess.run(command, cwd=folder, input=change.encode(), capture_output=True, check=True)
        return copy.read_text(encoding="utf-8")


def _failing(name: str, reason: Exception) -> Callable[[], None]:
    def test() -> None:
        raise AssertionError(f"{name} cannot be imported: {reason}")

    test.__name__ = name
    return test
