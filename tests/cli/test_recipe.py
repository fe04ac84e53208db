# SPDX-License-Identifier: Apache-2.0
"""`stack recipe`."""

from pathlib import Path

import pytest

from stack.cli.rendering import terminal
from stack.deploy import recipes

from .conftest import Stack
from .test_verbs import keys, parsed


def test_list(stack: Stack) -> None:
    ran = stack("recipe", "list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[2:]] == list(recipes.known())
    listed = parsed(stack("recipe", "list", "--json"))["recipes"]
    assert [one["name"] for one in listed] == list(recipes.known())
    assert {keys(one) for one in listed} == {"name title model base hardware speeds proven"}


def test_a_path_below_its_row_has_a_label(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recipes.load("gpt-oss-120b-h200").proven
    monkeypatch.setenv(terminal.WIDTH, "80")
    assert f"    proven by: {path}" in stack("recipe", "list").out.splitlines()
    monkeypatch.setenv(terminal.WIDTH, "200")
    assert "proven by:" not in stack("recipe", "list").out


def test_show(stack: Stack) -> None:
    ran = stack("recipe", "show", "gpt-oss-120b-h200")
    assert ran.code == 0
    *said, empty, command = ran.out.splitlines()
    assert empty == ""
    assert command.startswith("FLASHINFER_CUDA_ARCH_LIST=9.0a vllm serve openai/gpt-oss-120b --revision ")
    shown = {line.split("  ")[0].strip(): line for line in said}
    assert "MoE TRITON, attention FLASH_ATTN, CUDA graphs on" in shown["has to run"]
    assert "NVIDIA H200, dummy weights, stack " in shown["proven by"]
    assert "241.9 tok/s after 2048 tokens (validation/verdicts/archive/h200-kernels.json" in shown["speed"]
    json = parsed(stack("recipe", "show", "--json", "gpt-oss-120b-h200", "--model", "/models/one"))
    assert keys(json) == "name title model base hardware backends speeds proven variables commands before"
    assert json["commands"][0]["arguments"][:3] == ["vllm", "serve", "/models/one"]


def test_show_of_several_nodes(stack: Stack) -> None:
    lines = stack("recipe", "show", "gpt-oss-120b-2-sparks").out.splitlines()
    first, second = (lines[lines.index(f"on node {rank}:") + 1] for rank in (0, 1))
    assert 'VLLM_HOST_IP="$NODE_ADDRESS"' in first
    assert '--node-rank 0 --master-addr "$HEAD_ADDRESS"' in first
    assert "--headless" not in first
    assert second.endswith(" --headless")
    one = stack("recipe", "show", "gpt-oss-120b-2-sparks", "--set", "NODE_RANK=1", "--set", "HCA=rocep1s0f0")
    assert "NCCL_IB_HCA=rocep1s0f0 vllm serve" in one.out
    assert "on node" not in one.out


def test_compose(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    assert stack("recipe", "compose", "gpt-oss-20b-spark", "--output", file).out == f"wrote {file}\n"
    text = file.read_text()
    assert text == stack("recipe", "compose", "gpt-oss-20b-spark").out
    assert parsed(stack("recipe", "compose", "--json", "gpt-oss-20b-spark")) == {"file": None, "text": text}
    opened = stack("recipe", "compose", "gpt-oss-20b-spark", "--open").out
    assert ("STACK_HOST:?" in opened, "STACK_HOST:?" in text) == (True, False)
    assert "/src/vllm:ro" in stack("recipe", "compose", "gpt-oss-20b-spark", "--development").out
    both = stack("recipe", "compose", "gpt-oss-20b-spark", "--development", "--open").refused()
    assert "--development is for this machine alone: leave --open out" in both


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "gpt-oss-120b"], "unknown recipe 'gpt-oss-120b'"),
        (["show", "gpt-oss-120b-2-sparks", "--set", "RANK=1"], "has no variable RANK"),
        (["show", "gpt-oss-120b-2-sparks", "--set", "NODE_RANK=2"], "NODE_RANK is '2'"),
        (["show", "gpt-oss-120b-spark", "--set", "rank"], "'rank' sets no variable"),
        (["compose", "cpu-fp32"], "recipe cpu-fp32 has no published model"),
        (["compose", "gpt-oss-20b-spark", "--output", "/no/such/folder/compose.yml"], "/no/such/folder/compose.yml"),
        (["check", "nothing"], "unknown recipe 'nothing'"),
        (["check"], "vllm"),  # this stack pins other upstreams
    ],
)
def test_what_is_wrong_is_a_line(stack: Stack, arguments: list[str], said: str) -> None:
    assert said in stack("recipe", *arguments).refused()


def test_a_stack_without_vllm_says_so(stack: Stack, tmp_path: Path) -> None:
    said = stack("recipe", "check", "gpt-oss-120b-spark").refused()
    assert said == "this stack does not pin vllm: recipes are checked where vllm and flashinfer are pinned"
    log = tmp_path / "server.log"
    log.write_text("INFO 11-21 21:40:00 [api_server.py:1] vLLM API server version 0.32.0\n")
    assert "pin" not in stack("doctor", "--log", log).err


def test_what_to_do_before_a_start_stands_with_its_source(stack: Stack) -> None:
    shown = " ".join(stack("recipe", "show", "gpt-oss-120b-spark").out.split())
    assert "before 16 GB of swap or more (swapon --show)" in shown
    before = parsed(stack("recipe", "show", "gpt-oss-120b-spark", "--json"))["before"]
    assert any("drop_caches" in each["do"] for each in before)
    assert all(each["why"] and each["source"] for each in before)
    assert parsed(stack("recipe", "show", "gpt-oss-120b-h200", "--json"))["before"] == []
