# SPDX-License-Identifier: Apache-2.0
"""`stack recipe import` against the pinned sources: what is gone there is named, and a recipe of ours comes back clean."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stack.deploy import recipes
from stack.serving.sparkrun import export

from .. import forked

ROOT = Path(__file__).parents[2]
FORKED = """\
recipe_version: "1"
name: gpt-oss as the early fork served it
model: openai/gpt-oss-120b
container: vllm-node-mxfp4
solo_only: true
build_args:
  - --exp-mxfp4
defaults:
  port: 8000
  host: 0.0.0.0
  gpu_memory_utilization: 0.70
env:
  VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8: "1"
  VLLM_LOGING_LEVEL: DEBUG
  NO_LIBRARY_READS_THIS: "1"
  NCCL_DEBUG: INFO
  TIKTOKEN_ENCODINGS_BASE: /tiktoken
  TIKTOKEN_RS_CACHE_DIR: /tiktoken
command: |
  vllm serve openai/gpt-oss-120b \\
      --tool-call-parser openapi \\
      --enable-auto-tool-choice \\
      --gpu-memory-utilization {gpu_memory_utilization} \\
      --mxfp4-backend CUTLASS \\
      --max-modle-len 131072 \\
      --kv-cache-dtype fp8 \\
      --host {host} --port {port}
"""


@pytest.fixture(name="root", scope="module")
def _root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stack with these pins and patches, and no recipes of its own."""
    root = tmp_path_factory.mktemp("root")
    shutil.copy(ROOT / "pins.toml", root)
    shutil.copytree(ROOT / "stacks", root / "stacks")
    return root


def imported(root: Path, text: str, *options: str) -> dict[str, Any]:
    file = root / "shared.yaml"
    file.write_text(text)
    done = forked.run(["--root", root, "recipe", "import", file, "--json", "--force", *options])
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if told["clean"] else 1), done.stderr
    return told


def test_each_setting_that_is_gone_is_named_with_its_line(root: Path) -> None:
    told = imported(root, FORKED)
    wrong = {one["line"] for one in told["remarks"] if one["needs_person"]}
    lines = FORKED.splitlines()
    assert {lines[line - 1].split()[0].rstrip(":") for line in wrong} == {
        "-",  # of build_args
        "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8",
        "VLLM_LOGING_LEVEL",
        "NO_LIBRARY_READS_THIS",
        "--tool-call-parser",
        "--mxfp4-backend",
        "--max-modle-len",
    }
    said = " ".join(one["what"] for one in told["remarks"])
    for near in ("VLLM_LOGGING_LEVEL", "--max-model-len"):
        assert f"the nearest is {near}" in said
    lines_told = [one["line"] for one in told["remarks"]]
    assert len(set(lines_told)) == len(lines_told), "each is told once, by the doctor or by the sources"
    head = (root / told["file"]).read_text().partition("title ")[0]
    assert head.count("\n# - ") == sum(one["needs_person"] for one in told["remarks"]), "the recipe's comment repeats each"


def test_one_of_ours_is_clean(root: Path) -> None:
    told = imported(root, export(recipes.load("gpt-oss-120b-2-sparks")), "--name", "mine")
    assert (told["clean"], told["remarks"]) == (True, [])
    assert (root / told["file"]).is_file()
