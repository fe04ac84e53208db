# SPDX-License-Identifier: Apache-2.0
"""The workflow that GitHub runs: by GitHub's schema, with pinned actions, without rights that it does not need."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def loaded(workflow: Path) -> dict[str, Any]:
    text = workflow.read_text(encoding="utf-8")
    return dict(yaml.safe_load(re.sub(r"^on:", '"on":', text, flags=re.MULTILINE)))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in loaded(workflow)["jobs"].values() for step in job["steps"]]


def schema(workflow: Path) -> int:
    command = [
        str(Path(sys.executable).with_name("check-jsonschema")),
        "--builtin-schema",
        "vendor.github-workflows",
        str(workflow),
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_it_follows_the_schema(workflow: Path) -> None:
    assert schema(workflow) == 0


def test_the_schema_refuses_a_misspelt_key(tmp_path: Path) -> None:
    broken = tmp_path / "ci.yml"
    broken.write_text(WORKFLOWS[0].read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")
    assert schema(broken) == 1


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_rights_are_least(workflow: Path) -> None:
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]) for step in steps(workflow) if "uses" in step)
    assert loaded(workflow)["permissions"] in ({}, {"contents": "read"})
    assert "pull_request_target" not in loaded(workflow)["on"]


def test_it_runs_what_a_change_has_to_pass() -> None:
    assert ".ci/run" in [step.get("run") for step in steps(ROOT / ".github/workflows/ci.yml")]
