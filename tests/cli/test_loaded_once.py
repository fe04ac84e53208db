# SPDX-License-Identifier: Apache-2.0
"""The stack that a suite ran on is the one that its verdict names: a verb loads it once, and hands it on."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from click import Context

from stack import cli
from stack.cli import validating
from stack.cli.lazy import LazyGroup
from stack.model import digest
from stack.model import stack as stacks

from ..carry.world import World
from .conftest import Stack

VERBS = sorted(Path(validating.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("file", VERBS, ids=lambda file: file.stem)
def test_a_verb_loads_its_stack_once(file: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    loads = [node for node in calls if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "options.load"]
    assert len(loads) == (0 if file.stem == "served" else 1)


def test_what_is_shared_loads_none() -> None:
    assert ".load(" not in Path(validating.__file__).read_text()
    group = cli.cli.get_command(Context(cli.cli), "validate")
    assert isinstance(group, LazyGroup)
    assert {one.module.rpartition(".")[2] for one in group.lazy.values()} < {file.stem for file in VERBS}


def test_a_verdict_names_the_stack_that_was_loaded(world: World, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch right after the load: the suite and the verdict are of the old stack, and the verdict counts for nothing."""
    before, loaded, pins = digest.of(world.load()), [], world.root / "pins.toml"
    load = stacks.load

    def once(root: Path, lane: str | None = None) -> Any:
        loaded.append(load(root, lane))
        if len(loaded) == 1:
            commit = loaded[0].pins.get("gamma").commit
            pins.write_text(pins.read_text().replace(commit, commit[::-1]))
        return loaded[-1]

    monkeypatch.setattr(stacks, "load", once)
    said = stack("validate", "quality", "--weights", "tiny")
    assert said.code == 2
    assert "was changed while it was validated" in said.err
    assert len(loaded) == 2
    verdict = json.loads((world.root / ".stack/verdicts/quality.json").read_text())
    assert (verdict["stack"]["digest"], verdict["whole"]) == (before, False)
