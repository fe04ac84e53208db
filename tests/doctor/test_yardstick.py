# SPDX-License-Identifier: Apache-2.0
"""A command is measured by a machine and a checkpoint; every recipe's own command passes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stack.deploy import checkpoints, hardware, model_memory, recipes
from stack.doctor import script, scripts, yardstick
from stack.doctor.finding import Severity
from stack.doctor.rules import Target
from stack.doctor.yardstick import Measure
from stack.projects import Unfit

from ..deploy.shapes.configs import LLAMA

SPARK = Target("a DGX Spark", "12.1", 128 * 10**9, unified=True)
LARGE = checkpoints.load("gpt-oss-120b")
NEEDS = model_memory.of_checkpoint(LARGE, SPARK.capability)
MODEL = LARGE.repository


def measured(flags: str, unfit: tuple[Unfit, ...] = (), target: Target = SPARK) -> list[tuple[Severity, str]]:
    (serve,) = script.parse("serve.sh", f"vllm serve {MODEL} {flags}\n").serves
    return [(found.severity, found.what) for found in yardstick.look(serve, Measure(target, NEEDS, unfit))]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ("--gpu-memory-utilization 0.45", "the weights of gpt-oss-120b take 65.2 GB on each GPU"),
        ("--gpu-memory-utilization 0.52", "a request of 131072 tokens takes 4.8 GB of KV cache, and 1.4 GB are left"),
        ("--gpu-memory-utilization 0.52 --max-model-len 65536 --kv-cache-dtype auto", "a request of 65536 tokens takes 2.4 GB"),
        ("-tp 2", "it wants 2 GPUs, and a DGX Spark has one"),
        ("--data-parallel-size 2", "it wants 2 GPUs"),
        ("-tp 3 --nnodes 3 --node-rank 0", "64 heads cannot be shared out to 3 ranks"),
    ],
)
def test_what_cannot_work(flags: str, problem: str) -> None:
    wrong = [what for severity, what in measured(flags) if severity is Severity.WRONG]
    assert any(what.startswith(problem) or problem in what for what in wrong), wrong


@pytest.mark.parametrize(
    "flags",
    [
        "--gpu-memory-utilization 0.7",
        "--gpu-memory-utilization 0.52 --kv-cache-dtype fp8 --max-model-len 65536",
        "--gpu-memory-utilization 0.2 --kv-cache-memory-bytes 1G",
        "--gpu-memory-utilization 0.3 --cpu-offload-gb 60",
        "--gpu-memory-utilization $SHARE",
        "--gpu-memory-utilization 0.45 -tp 2 --nnodes 2 --node-rank 0",
        "-tp 2 --distributed-executor-backend ray --gpu-memory-utilization 0.7",
        '-tp 2 "$@"',
        "-tp $RANKS",
    ],
)
def test_what_may_work(flags: str) -> None:
    assert [what for severity, what in measured(flags) if severity is Severity.WRONG] == []


def test_how_many_requests_fit_is_told() -> None:
    (fits,) = measured("--gpu-memory-utilization 0.7 --kv-cache-dtype fp8 --max-num-seqs 2")
    assert fits == (
        Severity.FINE,
        "24.4 GB are left beside the weights: at most 10 requests of 131072 tokens (2.4 GB each) at once",
    )
    (more,) = measured("--gpu-memory-utilization 0.7 --kv-cache-dtype fp8 --max-num-seqs 64")
    assert more[0] is Severity.FINE
    assert more[1].endswith("at once, or 20556 tokens for each of the 64 of --max-num-seqs")
    (most,) = measured("--gpu-memory-utilization 0.7 --kv-cache-dtype fp8 --max-num-seqs 1024")
    assert most[0] is Severity.NOTE
    assert most[1].endswith("or 1164 tokens for each of the 1024 of --max-num-seqs: most of them wait")


def test_what_the_sources_refuse_stands_at_its_flag_unless_a_rule_tells_it() -> None:
    refused = (Unfit("--attention-backend", "X does not run there", ("Y",)), Unfit("--moe-backend", "Z does not run there"))
    text = f"vllm serve {MODEL} \\\n --attention-backend X \\\n --moe-backend flashinfer_trtllm \\\n --gpu-memory-utilization 0.7\n"
    parsed = script.parse("serve.sh", text)
    subject = scripts.ScriptSubject(parsed, {}, SPARK, measures=(Measure(SPARK, NEEDS, refused),))
    found = [one.found for one in scripts.look(subject) if one.check == "machine" and one.severity is Severity.WRONG]
    assert [(one.line, one.what) for one in found] == [(2, "--attention-backend: X does not run there")]
    assert found[0].fix == "--attention-backend Y, or leave it out: vLLM chooses"
    assert [(edit.line, edit.old, edit.new) for edit in found[0].edits] == [(2, "--attention-backend", "")]


def test_which_checkpoint_a_command_serves() -> None:
    recipe = recipes.load("gpt-oss-20b-spark")
    for model, name in (
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("OpenAI/GPT-OSS-120B", "gpt-oss-120b"),
        ("/models/x", "gpt-oss-20b"),
        ("$MODEL", "gpt-oss-20b"),
        ("Qwen/Qwen3-8B", None),
    ):
        (serve,) = script.parse("serve.sh", f"vllm serve {model}\n").serves
        found = yardstick.checkpoint_of(serve, recipe)
        assert (found.name if found is not None else None) == name, model


@pytest.mark.parametrize("name", [name for name in recipes.known() if recipes.load(name).model in checkpoints.known()])
def test_a_recipe_fits_its_own_machine(name: str) -> None:
    recipe = recipes.load(name)
    assert recipe.hardware is not None
    profile = hardware.load(recipe.hardware.name)
    target = Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)
    checkpoint = checkpoints.load(recipe.model)
    (serve,) = script.parse(
        "serve.sh", f"vllm serve {checkpoint.repository} {' '.join(map(quoted, recipe.arguments))}\n"
    ).serves
    use = yardstick.use_of(serve, target, checkpoint)
    assert use.capability == profile.capability
    assert use.pair > (8, 0)
    found = yardstick.look(serve, yardstick.measure_of(serve, target, checkpoint))
    assert [one.what for one in found if one.severity is not Severity.FINE] == []


def quoted(argument: str) -> str:
    return f"'{argument}'"


@pytest.mark.parametrize(
    ("flags", "asked"),
    [
        ("--attention-backend FLEX", {"--attention-backend": "FLEX"}),
        ("""--attention-config '{"backend":"FLEX"}'""", {"--attention-backend": "FLEX"}),
        ("-ac.backend FLEX", {}),
        ("--attention-config.backend FLEX", {"--attention-backend": "FLEX"}),
        ("""--kernel-config '{"moe_backend":"marlin"}'""", {"--moe-backend": "marlin"}),
        ("""--kernel-config '{"moe_backend":[1]}'""", {}),
        ("--kernel-config '[[[['", {}),
        ("--attention-backend $B", {}),
    ],
)
def test_the_backends_that_a_command_asks_for(flags: str, asked: dict[str, str]) -> None:
    (serve,) = script.parse("serve.sh", f"vllm serve {MODEL} {flags}\n").serves
    found = yardstick.use_of(serve, SPARK, LARGE).flags
    assert {name: value for name, value in found.items() if name in yardstick.ASKED} == asked


def test_a_narrower_cache_is_advised_only_where_it_is_not_set() -> None:
    for kind, is_advised in (("auto", True), ("fp8", False)):
        text = f"vllm serve {MODEL} --gpu-memory-utilization 0.52 --max-model-len 131072 --kv-cache-dtype {kind}\n"
        (serve,) = script.parse("serve.sh", text).serves
        fixes = [found.fix for found in yardstick.look(serve, Measure(SPARK, NEEDS)) if found.severity is Severity.WRONG]
        assert [("fp8" in fix) for fix in fixes] == [is_advised]


def judged(name: str, flags: str) -> list[tuple[Severity, str, str]]:
    """Measure a command that serves a published checkpoint on a DGX Spark."""
    checkpoint = checkpoints.load(name)
    (serve,) = script.parse("serve.sh", f"vllm serve {checkpoint.repository} {flags}\n").serves
    found = yardstick.look(serve, yardstick.measure_of(serve, SPARK, checkpoint))
    return [(each.severity, each.what, each.fix) for each in found]


@pytest.mark.parametrize(
    ("name", "flags", "what", "fix"),
    [
        (
            "qwen3-6-27b-nvfp4",
            "--gpu-memory-utilization 0.21",
            # 26.9 - 22.0; 262144 tokens of 32768 bytes: the checkpoint names FP8; and the state
            "a request of 262144 tokens takes 8.7 GB of KV cache, and 4.9 GB are left beside the weights",
            "--max-model-len 143360 or less, or a higher --gpu-memory-utilization",
        ),
        (
            "glm-4-7-flash-nvfp4",
            "--gpu-memory-utilization 0.2",
            # 25.6 - 19.2; 202752 tokens * 47 layers * 576 values of BF16
            "a request of 202752 tokens takes 11.0 GB of KV cache, and 6.4 GB are left beside the weights",
            "--max-model-len 116736 or less, --kv-cache-dtype fp8, or a higher",
        ),
        (
            "qwen3-coder-next-fp8",
            "--gpu-memory-utilization 0.6",
            "the weights of qwen3-coder-next-fp8 take 80.4 GB on each GPU, and --gpu-memory-utilization 0.6 of 128.0 GB allows 76.8 GB",
            "spread the model over more GPUs",
        ),
        (
            "nemotron-3-super-nvfp4",
            "--gpu-memory-utilization 0.7 --max-model-len 32k --max-num-seqs 256",
            "256 requests at once take 43.6 GB: 170.2 MB each for the states of linear-attention or Mamba layers; 16.3 GB are left",
            "--max-num-seqs 95 or less, or a higher --gpu-memory-utilization",
        ),
    ],
)
def test_what_does_not_fit_of_other_models(name: str, flags: str, what: str, fix: str) -> None:
    wrong = [(problem, remedy) for severity, problem, remedy in judged(name, flags) if severity is Severity.WRONG]
    assert len(wrong) == 1
    assert what in wrong[0][0]
    assert fix in wrong[0][1]


def test_that_most_requests_would_wait_is_told_with_what_to_change() -> None:
    (found,) = judged("glm-4-7-flash-nvfp4", "--gpu-memory-utilization 0.6 --max-model-len 131072 --max-num-seqs 1024")
    severity, what, fix = found
    assert severity is Severity.NOTE
    assert what.endswith("1038 tokens for each of the 1024 of --max-num-seqs: most of them wait")
    assert (
        fix
        == "--max-num-seqs 519 leaves each 2048 tokens; --kv-cache-dtype fp8, or a higher --gpu-memory-utilization leaves more"
    )


@pytest.mark.parametrize(
    "flags", ["--max-model-len auto", "--max-model-len -1", "--max-model-len 100k", "--kv-cache-dtype nvfp4"]
)
def test_lengths_that_vllm_chooses_and_formats_that_are_not_known(flags: str) -> None:
    found = judged("glm-4-7-flash-nvfp4", f"--gpu-memory-utilization 0.2 {flags}")
    assert [what for severity, what, _ in found if severity is not Severity.FINE] == []


def folder(tmp_path: Path, config: dict[str, Any], size: int = 0) -> Path:
    made = tmp_path / "models" / "mine"
    made.mkdir(parents=True)
    (made / "config.json").write_text(json.dumps(config))
    if size:
        with (made / "model-00001-of-00001.safetensors").open("wb") as shard:
            shard.truncate(size)
    return made


SMALL = Target("a small GPU", "12.0", 2 * 10**9, unified=False)


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve {folder} --gpu-memory-utilization 0.5",
        "vllm serve --model=./models/mine --gpu-memory-utilization 0.5",
        "docker run -v {folder}/..:/weights vllm/vllm-openai:v0.32.0 /weights/mine --gpu-memory-utilization 0.5",
        "docker run -v ./models:/weights:ro vllm/vllm-openai:v0.32.0 --model /weights/mine --gpu-memory-utilization 0.5",
    ],
)
def test_the_folder_of_a_script_is_read(tmp_path: Path, command: str) -> None:
    """32 layers, 8 KV heads of 128 in BF16: 131,072 bytes a token, 4.3 GB for 32,768 of them."""
    config = LLAMA | {"num_hidden_layers": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768}
    made = folder(tmp_path, config, 100_000_000)
    found = in_folder(tmp_path, command.format(folder=made))
    assert "a request of 32768 tokens takes 4.3 GB of KV cache, and 0.9 GB are left beside the weights" in found


def in_folder(tmp_path: Path, command: str) -> str:
    path = str(tmp_path / "serve.sh")
    (serve,) = script.parse(path, command + "\n").serves
    return "\n".join(each.what for each in yardstick.look(serve, yardstick.measure_of(serve, SMALL, None, (), path)))


def test_folders_that_are_not_this_machines_are_not_read(tmp_path: Path) -> None:
    made = folder(tmp_path, LLAMA)
    for command in (
        f"docker run vllm/vllm-openai:v0.32.0 {made}",
        f"docker run -v /elsewhere:{made} vllm/vllm-openai:v0.32.0 {made}",
        f"docker run -v cache:{made} vllm/vllm-openai:v0.32.0 {made}",
        "vllm serve $MODEL",
        "vllm serve ./nowhere",
    ):
        assert in_folder(tmp_path, command) == "", command


def test_a_configuration_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    made = folder(tmp_path, {"model_type": "other"})
    assert "whether the model fits: " in in_folder(tmp_path, f"vllm serve {made}")
    (made / "config.json").unlink()
    os.mkfifo(made / "config.json")
    assert in_folder(tmp_path, f"vllm serve {made}") == ""
