# SPDX-License-Identifier: Apache-2.0
"""Scripts as the community has them, and what this repository serves with, held against the pinned sources by `stack doctor`."""

import json
from pathlib import Path
from typing import Any

import pytest

from stack.deploy import recipes
from stack.serving import command

from .. import forked

ROOT = Path(__file__).parents[2]
COMMUNITY = """\
#!/bin/bash
# gpt-oss on a Spark
rm -rf ~/.cache/flashinfer/*
export VLLM_MXFP4_BACKEND=CUTLASS
export VLLM_LOGING_LEVEL=DEBUG
export FLASHINFER_CUDA_ARCH_LIST=12.1
export VLLM_USE_FLASHINFER_SAMPLER=1
UTIL=${UTIL:-0.95}
IMAGE=vllm/vllm-openai:latest
docker run --rm -it --privileged --gpus all -p 8000:8000 \\
  -v ~/.cache/huggingface:/root/.cache/huggingface \\
  -e MAX_JOBS=32 \\
  --entrypoint bash $IMAGE -c "vllm serve openai/gpt-oss-120b \\
    --enforce-eager \\
    --mxfp4-backend CUTLASS --mxfp4-layers moe,qkv,o,lm_head \\
    --max-modle-len 131072 \\
    --reasoning-parser deepseek_r1 \\
    --gpu-memory-utilization $UTIL"
"""


def doctor(*args: object) -> dict[str, Any]:
    done = forked.run(["--root", ROOT, "doctor", "--json", *args])
    said: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if said["healthy"] else 1), done.stderr
    return said


def test_a_script_of_the_community(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(COMMUNITY)
    found = doctor("--script", file, "--recipe", "gpt-oss-120b-spark")["findings"]
    wrong = {(one["check"], one["line"]) for one in found if one["severity"] == "wrong"}
    assert wrong == {
        ("caches-deleted", 3),
        ("variables", 4),
        ("variables", 5),
        ("privileged", 10),
        ("exposed", 10),
        ("jobs", 12),
        ("eager", 14),
        ("flags", 15),
        ("flags", 16),
        ("reasoning-parser", 17),
        ("memory", 18),
    }
    assert ("architectures", "worth knowing", 6) in {(one["check"], one["severity"], one["line"]) for one in found}
    fixes = {(one["check"], one["line"]): one["fix"] for one in found}
    assert fixes["variables", 5] == "write VLLM_LOGGING_LEVEL, or take it out"
    assert fixes["flags", 16] == "write --max-model-len, or take it out"


@pytest.mark.parametrize("machine", ["spark", "h200"])
def test_what_a_recipe_stands_for_is_in_order(tmp_path: Path, machine: str) -> None:
    """All recipes of a machine at once: reading the pinned sources takes seconds, and `--recipe` names the machine only."""
    scripts = dict[str, Path]()
    for recipe in map(recipes.load, recipes.known()):
        if recipe.hardware is not None and recipe.hardware.name == machine:
            scripts[recipe.name] = tmp_path / f"{recipe.name}.sh"
            said = command.command(recipe, dict.fromkeys(recipe.variables, "0"))
            scripts[recipe.name].write_text(f"#!/bin/sh\n{said}\n")
    given = [word for file in scripts.values() for word in ("--script", file)]
    found = doctor(*given, "--recipe", next(iter(scripts)))["findings"]
    assert {one["where"] for one in found} == {*map(str, scripts.values())}
    assert [one for one in found if one["severity"] != "fine"] == []


def test_each_machine_of_a_recipe_is_asked_about() -> None:
    machines = {recipe.hardware.name for recipe in map(recipes.load, recipes.known()) if recipe.hardware is not None}
    assert machines == {"spark", "h200"}


@pytest.mark.parametrize(
    "file",
    [*sorted((ROOT / "docker").glob("*.yml")), ROOT / "docker/Dockerfile", ROOT / "docker/entrypoint.sh"],
    ids=lambda file: file.name,
)
def test_what_images_are_made_and_started_with_is_in_order(file: Path) -> None:
    found = doctor("--script", file, "--recipe", "gpt-oss-120b-spark")["findings"]
    assert [one for one in found if one["severity"] == "wrong"] == []
