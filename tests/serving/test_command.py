# SPDX-License-Identifier: Apache-2.0
"""The command that a recipe stands for, with what its user has to say."""

import subprocess
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints, recipes
from stack.serving.command import Command, command, pairs

NODES = {
    "NODE_RANK": "0",
    "NODE_ADDRESS": "10.0.0.1",
    "HEAD_ADDRESS": "10.0.0.1",
    "INTERFACE": "enp1s0f0np0",
    "HCA": "rocep1s0f0",
}


def test_a_published_checkpoint_is_served_at_its_revision() -> None:
    recipe = recipes.load("gpt-oss-120b-spark")
    made = command(recipe, {})
    revision = checkpoints.load("gpt-oss-120b").revision
    assert revision is not None
    assert made.arguments[:5] == ("vllm", "serve", "openai/gpt-oss-120b", "--revision", revision)
    assert made.arguments[5:-4] == recipe.arguments
    assert made.arguments[-4:] == ("--host", "127.0.0.1", "--port", "8000")
    assert made.environment == recipe.environment


def test_a_checkpoint_without_a_pinned_revision_is_served_as_it_is() -> None:
    recipe = recipes.load("nemotron-3-super-nvfp4-spark")
    made = command(recipe, {}).arguments
    assert made[:3] == ("vllm", "serve", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4")
    assert made[3:-4] == recipe.arguments


def test_a_folder_takes_the_place_of_what_is_published() -> None:
    made = command(recipes.load("gpt-oss-120b-spark"), {}, model_path=Path("/models/one"), port=9000, extra=["--seed", "1"])
    assert made.arguments[:5] == ("vllm", "serve", "/models/one", "--served-model-name", "openai/gpt-oss-120b")
    assert "--revision" not in made.arguments
    assert made.arguments[-4:] == ("--port", "9000", "--seed", "1")


@pytest.mark.parametrize(
    ("name", "said"),
    [("cpu-fp32", "written by the validation"), ("gpt-oss", "the one that you serve: name its folder with --model")],
)
def test_models_that_nobody_publishes_need_a_folder(name: str, said: str) -> None:
    with pytest.raises(StackError, match=said):
        command(recipes.load(name), {})
    assert command(recipes.load(name), {}, model_path=Path("tiny")).arguments[2] == "tiny"


def test_variables_are_filled_in() -> None:
    recipe = recipes.load("gpt-oss-120b-2-sparks")
    made = command(recipe, NODES)
    assert made.arguments[made.arguments.index("--node-rank") :][:2] == ("--node-rank", "0")
    assert made.environment["VLLM_HOST_IP"] == "10.0.0.1"
    assert made.environment["NCCL_SOCKET_IFNAME"] == made.environment["GLOO_SOCKET_IFNAME"] == "enp1s0f0np0"
    assert "$" not in str(made)


def test_only_the_first_node_listens() -> None:
    recipe = recipes.load("gpt-oss-120b-2-sparks")
    first, second = (command(recipe, NODES | {"NODE_RANK": rank}).arguments for rank in "01")
    assert ("--headless" in first, "--port" in first) == (False, True)
    assert ("--headless" in second, "--port" in second) == (True, False)


@pytest.mark.parametrize("name", NODES)
def test_what_is_missing_is_named_with_its_meaning(name: str) -> None:
    recipe = recipes.load("gpt-oss-120b-2-sparks")
    with pytest.raises(StackError) as refused:
        command(recipe, {one: value for one, value in NODES.items() if one != name})
    assert f"needs {name}, {recipe.variables[name]}: --set {name}=…" in str(refused.value)


def test_what_is_odd_is_refused() -> None:
    with pytest.raises(StackError, match=r"no variable RANK.*it has none"):
        command(recipes.load("gpt-oss-120b-spark"), {"RANK": "0"})
    with pytest.raises(StackError, match=r"NODE_RANK is '2'.*nodes 0 to 1"):
        command(recipes.load("gpt-oss-120b-2-sparks"), NODES | {"NODE_RANK": "2"})


def test_a_line_for_a_shell() -> None:
    line = str(command(recipes.load("gpt-oss-120b-spark"), {}))
    assert line.startswith("FLASHINFER_CUDA_ARCH_LIST=12.1a MAX_JOBS=2 vllm serve openai/gpt-oss-120b ")
    assert """'{"linear":"mxfp4","lm_head":"mxfp4"}'""" in line


def test_variables_as_they_are_written() -> None:
    assert pairs(["HCA=a=b", "NODE_RANK=1"]) == {"HCA": "a=b", "NODE_RANK": "1"}
    for wrong in (["HCA"], ["=a"], ["hca=a"], ["HCA="]):
        with pytest.raises(StackError, match="sets no variable"):
            pairs(wrong)
    with pytest.raises(StackError, match="HCA is set twice"):
        pairs(["HCA=a", "HCA=b"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("${HCA}", '"$HCA"'),
        ("tcp://${HEAD}:29501", '"tcp://${HEAD}:29501"'),
        ('a`$b"\\${HEAD}${HCA}', '"a\\`\\$b\\"\\\\${HEAD}${HCA}"'),
        ("$HEAD {}", "'$HEAD {}'"),
    ],
)
def test_what_is_still_to_be_said_is_the_shells_to_fill_in(text: str, line: str) -> None:
    made = Command(("echo", text), {})
    assert str(made) == f"echo {line}"
    said = subprocess.run(
        ["bash", "-c", str(made)], env={"HEAD": "one", "HCA": "two"}, capture_output=True, text=True, check=True
    )
    assert said.stdout == text.replace("${HEAD}", "one").replace("${HCA}", "two") + "\n"


def test_a_name_is_quoted() -> None:
    """A name that a shell does not take for a variable's must not run as a command."""
    assert str(Command(("vllm",), {"A=1; touch X; B": "1"})) == "'A=1; touch X; B'=1 vllm"
