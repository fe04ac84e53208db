# SPDX-License-Identifier: Apache-2.0
"""A command is measured by a machine and a checkpoint; every recipe's own command passes."""

import pytest

from stack.deploy import checkpoints, hardware, recipes
from stack.doctor import script, scripts, yardstick
from stack.doctor.finding import Severity
from stack.doctor.rules import Target
from stack.doctor.yardstick import Measure
from stack.projects import Unfit

SPARK = Target("a DGX Spark", "12.1", 128 * 10**9, unified=True)
LARGE = checkpoints.load("gpt-oss-120b")
MODEL = LARGE.repository


def measured(flags: str, unfit: tuple[Unfit, ...] = (), target: Target = SPARK) -> list[tuple[Severity, str]]:
    (serve,) = script.parse("serve.sh", f"vllm serve {MODEL} {flags}\n").serves
    return [(found.severity, found.what) for found in yardstick.look(serve, Measure(target, LARGE, unfit))]


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
    assert more[1].endswith("at once, or 20663 tokens for each of the 64 of --max-num-seqs")
    (most,) = measured("--gpu-memory-utilization 0.7 --kv-cache-dtype fp8 --max-num-seqs 1024")
    assert most[0] is Severity.NOTE
    assert most[1].endswith("or 1291 tokens for each of the 1024 of --max-num-seqs: most of them wait")


def test_what_the_sources_refuse_stands_at_its_flag_unless_a_rule_tells_it() -> None:
    refused = (Unfit("--attention-backend", "X does not run there", ("Y",)), Unfit("--moe-backend", "Z does not run there"))
    text = f"vllm serve {MODEL} \\\n --attention-backend X \\\n --moe-backend flashinfer_trtllm \\\n --gpu-memory-utilization 0.7\n"
    parsed = script.parse("serve.sh", text)
    subject = scripts.ScriptSubject(parsed, {}, SPARK, measures=(Measure(SPARK, LARGE, refused),))
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
    found = yardstick.look(serve, Measure(target, checkpoint))
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
        fixes = [found.fix for found in yardstick.look(serve, Measure(SPARK, LARGE)) if found.severity is Severity.WRONG]
        assert [("fp8" in fix) for fix in fixes] == [is_advised]
