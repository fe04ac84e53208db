# SPDX-License-Identifier: Apache-2.0
"""Recipes of the Spark community: what is read of them, what is not carried over, and what a hostile one does."""

import time
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy.node_settings import NODES, ON_NODES
from stack.doctor import community, importing
from stack.doctor.importing import Imported
from stack.doctor.knowledge import load

EUGR = """\
# A recipe of the first version.
recipe_version: "1"
name: Some Model NVFP4
description: some-model in NVFP4
model: some/Model-NVFP4
container: vllm-node
solo_only: true
mods:
  - mods/fix-some-model
build_args: [--tf5, --pre]
defaults:
  port: 8000
  host: 0.0.0.0
  tensor_parallel: 1
  gpu_memory_utilization: 0.7
  max_model_len: 262144
env:
  VLLM_LOGGING_LEVEL: INFO
  ONE: 1
command: |
  vllm serve some/Model-NVFP4  \\
     --max_model_len {max_model_len} \\
     --port {port} --host {host} \\
     -tp {tensor_parallel} \\
     --override-generation-config '{{"temperature":0.7,"top_p":0.95}}' \\
     --compilation-config.cudagraph_mode PIECEWISE \\
     --chat-template fixed.jinja \\
     --enable-auto-tool-choice \\
     --tool-call-parser=qwen3_coder \\
     --gpu-memory-utilization {gpu_memory_utilization}
"""
SPARKRUN = """\
recipe_version: "2"
model: some/Model-FP8
model_revision: 0123456789012345678901234567890123456789
runtime: vllm
min_nodes: 2
container: ghcr.io/some/image:latest
metadata:
  description: Some model on two nodes
executor_config:
  user: root
defaults:
  port: 8000
  host: 0.0.0.0
  tensor_parallel: 2
  pipeline_parallel: 1
  kv_cache_dtype: fp8
  speculative_config: '{"method": "mtp", "num_speculative_tokens": 2}'
env:
  NCCL_IB_HCA: rocep1s0f0
  HF_TOKEN: hf_secret
  EMPTY: ""
  TIKTOKEN_ENCODINGS_BASE: ${HOME_OF_CACHE}/x
command: |
  vllm serve {model} \\
    --host {host} \\
    --port {port} \\
    --kv-cache-dtype {kv_cache_dtype} \\
    --speculative-config '{speculative_config}' \\
    --distributed-executor-backend ray \\
    --seed {seed} \\
    -tp {tensor_parallel} \\
    -pp {pipeline_parallel}
"""
RULES = load.builtin()


def read(tmp_path: Path, text: str, **options: bool | str) -> Imported:
    file = tmp_path / "shared.yaml"
    file.write_text(text)
    return importing.read(file, RULES, **options)  # type: ignore[arg-type]


def test_the_first_version(tmp_path: Path) -> None:
    made = read(tmp_path, EUGR)
    assert (made.shared.name, made.draft.title, made.draft.model) == (
        "Some Model NVFP4",
        "some-model in NVFP4",
        "some/Model-NVFP4",
    )
    assert made.draft.arguments == (
        ("--max-model-len", "262144"),
        ("--tensor-parallel-size", "1"),
        ("--override-generation-config", '{"temperature":0.7,"top_p":0.95}'),
        ("--compilation-config.cudagraph_mode", "PIECEWISE"),
        ("--chat-template", "fixed.jinja"),
        ("--enable-auto-tool-choice",),
        ("--tool-call-parser", "qwen3_coder"),
        ("--gpu-memory-utilization", "0.7"),
    )
    assert dict(made.draft.environment) == {"VLLM_LOGGING_LEVEL": "INFO", "ONE": "1"}
    assert (made.draft.machine, made.draft.nodes, made.draft.memory) == ("spark", 1, 90)
    left = {each.key: each for each in made.shared.left_out}
    assert left.keys() == {"container", "mods", "build_args"}
    assert [key for key, each in left.items() if each.needs_person] == ["mods", "build_args"]
    assert "mods/fix-some-model" in left["mods"].what
    assert "--tf5, --pre" in left["build_args"].what
    assert EUGR.splitlines()[left["mods"].line - 1].strip() == "- mods/fix-some-model"
    assert [(each.setting, each.needs_person) for each in made.draft.said] == [("--chat-template", True)]
    assert len(made.to_look_at) == 3


def test_the_second_version_over_nodes(tmp_path: Path) -> None:
    """Nodes start without Ray, by vLLM's own flags; what each node sets, and what is a secret, is not taken over."""
    made = read(tmp_path, SPARKRUN).draft
    assert (made.model, made.revision, made.nodes, made.memory) == ("some/Model-FP8", "0123456789" * 4, 2, 118)
    assert made.arguments == (
        ("--kv-cache-dtype", "fp8"),
        ("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}'),
        ("--seed", "${SEED}"),
        ("--tensor-parallel-size", "2"),
        ("--nnodes", "2"),
        ("--node-rank", "${NODE_RANK}"),
        ("--master-addr", "${HEAD_ADDRESS}"),
        ("--pipeline-parallel-size", "1"),
    )
    assert dict(made.environment) == {"TIKTOKEN_ENCODINGS_BASE": "${HOME_OF_CACHE}/x", **ON_NODES}
    assert set(made.variables) == {*NODES, "SEED", "HOME_OF_CACHE"}
    said = {each.setting: each for each in made.said}
    assert said.keys() == {"NCCL_IB_HCA", "HF_TOKEN", "EMPTY", "--distributed-executor-backend"}
    assert not any(each.needs_person for each in made.said)
    assert "hf_secret" not in str(made)


def test_a_recipe_without_a_command(tmp_path: Path) -> None:
    made = read(tmp_path, SPARKRUN.partition("command:")[0]).draft
    assert ("--kv-cache-dtype", "fp8") in made.arguments
    assert ("--tensor-parallel-size", "2") in made.arguments
    assert not any(words[0] in ("--host", "--port", "--model") for words in made.arguments)


@pytest.mark.parametrize(
    ("old", "new", "setting", "needs"),
    [
        ("solo_only: true", "solo_only: true\npre_exec: ['pip install x']", "pre_exec", True),
        ("solo_only: true", "solo_only: true\npost_commands: ['echo']", "post_commands", True),
        ("solo_only: true", "solo_only: true\nbuilder: eugr", "builder", True),
        ("solo_only: true", "solo_only: true\nbenchmark: {timeout: 1}", "benchmark", False),
        ("solo_only: true", "solo_only: true\nfrobnicate: 3", "frobnicate", False),
        ("solo_only: true", "cluster_only: true", "nodes", True),
        ("tensor_parallel: 1", "tensor_parallel: 2", "nodes", True),
        ("tensor_parallel: 1", "tensor_parallel: many", "--tensor-parallel-size", True),
        ("--enable-auto-tool-choice", "--api-key sk-secret", "--api-key", True),
        ("--enable-auto-tool-choice", "--seed $(date +%s)", "--seed", True),
        ("  vllm serve", "  pip install x\n  vllm serve", "command", True),
        ("--enable-auto-tool-choice", "--allowed-origins a b", "command", True),
        ("--enable-auto-tool-choice", "--revision main --x '' ", "--x", True),
        ("--enable-auto-tool-choice", "--trust-remote-code", "--trust-remote-code", True),
        ("--enable-auto-tool-choice", "--middleware evil.module", "--middleware", True),
        ("--enable-auto-tool-choice", "--allowed-local-media-path /", "--allowed-local-media-path", True),
        ("ONE: 1", "LD_PRELOAD: /tmp/evil.so", "LD_PRELOAD", True),
        ("ONE: 1", "PYTHONPATH: /tmp/evil", "PYTHONPATH", True),
        ("ONE: 1", "'A B': x", "A B", True),
    ],
)
def test_what_needs_a_person(tmp_path: Path, old: str, new: str, setting: str, needs: bool) -> None:
    assert old in EUGR
    made = read(tmp_path, EUGR.replace(old, new))
    found = {each.setting: each.needs_person for each in made.draft.said} | {
        each.key: each.needs_person for each in made.shared.left_out
    }
    assert found.get(setting) is needs
    before = read(tmp_path, EUGR)
    assert setting not in {each.setting for each in before.draft.said} | {each.key for each in before.shared.left_out}
    assert "sk-secret" not in str(made.draft.arguments)
    assert not any(name in made.draft.environment for name in ("LD_PRELOAD", "PYTHONPATH", "A B"))


HARMFUL = """\
  CC: /tmp/evilvalue
  CUDA_HOME: /tmp/evilvalue
  CUDA_INJECTION64_PATH: /tmp/evilvalue.so
  VLLM_LOGGING_CONFIG_PATH: evilvalue
  VLLM_ALLOW_INSECURE_SERIALIZATION: 1
  VLLM_X: evilvalue.module
  FLASHINFER_NVCC: evilvalue
  FLASHINFER_EXTRA_CUDAFLAGS: -Xevilvalue
  HF_ENDPOINT: https://evilvalue
  TRITON_PTXAS_PATH: /tmp/evilvalue
  NCCL_NET_PLUGIN: evilvalue
  NCCL_TUNER_PLUGIN: evilvalue
  NCCL_CONF_FILE: evilvalue
  OMP_TOOL_LIBRARIES: evilvalue
  UCX_MODULE_DIR: evilvalue
  HTTPS_PROXY: http://user:evilvalue@somewhere:1
  WANDB_PASS: evilvalue
  APIKEY: evilvalue
  GH_PAT: evilvalue
"""


def test_variables_that_load_code_or_hold_secrets_are_left_out(tmp_path: Path) -> None:
    """Each is named, and no value is repeated."""
    made = read(tmp_path, EUGR.replace("  ONE: 1\n", HARMFUL))
    assert dict(made.draft.environment) == {"VLLM_LOGGING_LEVEL": "INFO"}
    names = {line.partition(":")[0].strip() for line in HARMFUL.splitlines()}
    assert names <= {each.setting for each in made.draft.said}
    assert "evilvalue" not in str((made.draft, made.to_look_at))


def test_variables_of_the_libraries_are_kept(tmp_path: Path) -> None:
    kept = {
        "NCCL_DEBUG": "INFO",
        "NVIDIA_TF32_OVERRIDE": "1",
        "TORCH_CUDA_ARCH_LIST": "12.1a",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "VLLM_ATTENTION_BACKEND": "FLASHINFER",
        "TIKTOKEN_ENCODINGS_BASE": "/encodings",
    }
    made = read(tmp_path, EUGR.replace("  ONE: 1\n", "".join(f"  {name}: '{value}'\n" for name, value in kept.items())))
    assert dict(made.draft.environment) == {"VLLM_LOGGING_LEVEL": "INFO", **kept}


@pytest.mark.parametrize(
    "flag",
    [
        "--hf-token evilvalue",
        "--hf-tok evilvalue",
        "--some-password evilvalue",
        "--middleware evilvalue.module",
        "--middlew evilvalue.module",
        "--worker-cls evilvalue.Worker",
        "--allowed-local-media-path /evilvalue",
        "--distributed-executor-backend evilvalue.Executor",
        "--otlp-traces-endpoint http://evilvalue",
        """--kv-transfer-config '{{"kv_connector":"X","kv_connector_module_path":"evilvalue"}}'""",
        "--kv-transfer-config.kv_connector_module_path evilvalue",
        """--compilation-config '{{"backend":"evilvalue.backend"}}'""",
        "--compilation-config.backend evilvalue.backend",
        """--compilation-config '{{"inductor_compile_config":{{"pass":["evilvalue.one"]}}}}'""",
        """--model-loader-extra-config '{{"token":"evilvalue"}}'""",
        """--model-loader-extra-config '{{"token":"evilvalue"'""",
    ],
)
def test_flags_that_load_code_or_hold_secrets_are_left_out(tmp_path: Path, flag: str) -> None:
    made = read(tmp_path, EUGR.replace("--enable-auto-tool-choice", flag))
    assert flag.split(maxsplit=1)[0] in {each.setting for each in made.draft.said if each.needs_person}
    assert "evilvalue" not in str((made.draft, made.to_look_at))


@pytest.mark.parametrize(
    "flag",
    [
        "--long-prefill-token-threshold 100",
        "--max-num-batched-tokens 8192",
        "--reasoning-parser qwen3",
        """--compilation-config '{{"splitting_ops":["vllm.attention"],"cudagraph_mode":"PIECEWISE"}}'""",
        """--speculative-config '{{"model":"nvidia/gpt-oss-120b-Eagle3.1","num_speculative_tokens":3}}'""",
    ],
)
def test_plain_flags_are_kept(tmp_path: Path, flag: str) -> None:
    made = read(tmp_path, EUGR.replace("--enable-auto-tool-choice", flag))
    assert flag.split(maxsplit=1)[0] in {words[0] for words in made.draft.arguments}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("solo_only: true", "solo_only: true\npre_exec: [login --token evilvalue]"),
        ("solo_only: true", "solo_only: true\nfrobnicate: evilvalue"),
        ("solo_only: true", "solo_only: true\nmods: [https://user:evilvalue@x]"),
        ("[--tf5, --pre]", "[--tf5, TOKEN=evilvalue]"),
        ("container: vllm-node", "container: user:evilvalue@host/x"),
        ("  vllm serve", "  K=evilvalue huggingface-cli login --token evilvalue\n  vllm serve"),
        ("--enable-auto-tool-choice", "--x a evilvalue"),
        ("--enable-auto-tool-choice", "--x $(echo evilvalue)"),
        ("ONE: 1", "VLLM_ONE: $(echo evilvalue)"),
    ],
)
def test_no_remark_repeats_a_secret(tmp_path: Path, old: str, new: str) -> None:
    made = read(tmp_path, EUGR.replace(old, new))
    assert "evilvalue" not in str((made.draft, made.to_look_at, made.shared.left_out, made.findings))


def test_an_error_repeats_no_secret(tmp_path: Path) -> None:
    with pytest.raises(StackError) as refused:
        read(tmp_path, EUGR.replace("ONE: 1", 'HF_TOKEN: "evilvalue\\e"'))
    assert "'HF_TOKEN' has control characters" in str(refused.value)
    assert "evilvalue" not in str(refused.value)


def test_nothing_is_not_reported(tmp_path: Path) -> None:
    text = EUGR.replace("mods:\n  - mods/fix-some-model", "mods: []").replace("build_args: [--tf5, --pre]", "build_args: []")
    made = read(
        tmp_path,
        text.replace("container: vllm-node\n", "pull_image: false\n").replace("     --chat-template fixed.jinja \\\n", ""),
    )
    assert (made.shared.left_out, made.draft.said, made.findings, made.to_look_at) == ((), (), (), ())


def test_what_is_gone_is_found_and_corrected(tmp_path: Path) -> None:
    """By the doctor's rules, with the lines of the file; `fix` takes its corrections."""
    text = EUGR.replace("VLLM_LOGGING_LEVEL: INFO", "VLLM_NVFP4_GEMM_BACKEND: marlin").replace(
        "--enable-auto-tool-choice", "--enforce-eager"
    )
    made = read(tmp_path, text)
    lines = text.splitlines()
    assert [lines[(each.line or 0) - 1].strip() for each in made.findings if each.severity == "wrong"] == [
        "VLLM_NVFP4_GEMM_BACKEND: marlin",
        "--enforce-eager \\",
    ]
    fixed = read(tmp_path, text, fix=True)
    assert {each.what for each in fixed.mended} >= {each.what for each in made.findings if each.severity == "wrong"}
    assert [each for each in fixed.findings if each.severity == "wrong"] == []
    assert ("--enforce-eager",) not in fixed.draft.arguments
    assert "VLLM_NVFP4_GEMM_BACKEND" not in fixed.draft.environment
    assert {each.key for each in fixed.shared.left_out} == {each.key for each in made.shared.left_out}


def test_a_known_checkpoint_keeps_its_revision(tmp_path: Path) -> None:
    text = EUGR.replace("some/Model-NVFP4", "openai/gpt-oss-120b")
    assert (read(tmp_path, text).draft.model, read(tmp_path, text).draft.revision) == ("gpt-oss-120b", None)
    other = text.replace("solo_only: true", f"solo_only: true\nmodel_revision: {'a' * 40}")
    assert (read(tmp_path, other).draft.model, read(tmp_path, other).draft.revision) == ("openai/gpt-oss-120b", "a" * 40)
    odd = read(tmp_path, text.replace("solo_only: true", "solo_only: true\nmodel_revision: main")).draft
    assert [each.setting for each in odd.said if each.needs_person] == [
        "model_revision",
        "--chat-template",
    ] or odd.revision is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no recipe of this form"),
        ("just text", "is no recipe of this form"),
        ("[1, 2]", "is no recipe of this form"),
        ("a: {", "is not valid YAML"),
        ("name: x\n---\nname: y\n", "is no recipe of this form"),
        ("services:\n  a: {command: vllm serve x}\ncommand: vllm serve y\n", "is no recipe of this form"),
        ("apiVersion: v1\ncommand: vllm serve y\n", "is no recipe of this form"),
        ("model: a/b\ncommand: echo\n", "has no command that starts vLLM"),
        (EUGR.replace("vllm serve", "sglang serve"), "serves with SGLang: import a recipe of vLLM"),
        (EUGR.replace("some/Model-NVFP4", "/models/some"), "the model is '/models/some', no repository: name one with --model"),
        (EUGR.replace("ONE: 1", 'ONE: "a\\eb"'), "has control characters"),
        (EUGR.replace("qwen3_coder", "qwen3\u202ecoder"), "has control characters"),
        (EUGR.replace("qwen3_coder", "qwen3\x1bcoder"), "is not valid YAML"),
        (EUGR + "# " + "x" * 2**16, "is larger than 64 KiB"),
        ("&a [" * 2000, "is not valid YAML"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(StackError) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)


def test_the_model_can_be_named(tmp_path: Path) -> None:
    made = read(tmp_path, EUGR.replace("some/Model-NVFP4", "/models/some"), model="some/Other")
    assert made.draft.model == "some/Other"
    with pytest.raises(StackError, match="unknown hardware 'toaster'"):
        read(tmp_path, EUGR, machine="toaster")
    assert read(tmp_path, EUGR, machine="h200").draft.memory == 99


def test_aliases_are_never_expanded(tmp_path: Path) -> None:
    """A billion laughs: every level names the one before nine times. It is counted as what it is, a few hundred nodes, and refused."""
    levels = ["a0: &a0 [lol]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    bomb = "\n".join(levels) + "\nmods: *a11\nenv: {X: *a11}\n"
    began = time.process_time()
    with pytest.raises(StackError, match="line 7 stands for more than 1000000 values"):
        read(tmp_path, bomb + EUGR.replace("mods:\n  - mods/fix-some-model\n", "").replace("env:\n", "other:\n"))
    assert time.process_time() - began < 2


def test_a_long_value_is_named_a_thousand_times(tmp_path: Path) -> None:
    text = EUGR.replace("defaults:\n", f"defaults:\n  long: {'x' * 5000}\n") + "     --a " + "{long} " * 1000 + "\n"
    with pytest.raises(StackError, match="characters of values"):
        read(tmp_path, text)


def test_control_characters_of_what_is_left_out_are_gone(tmp_path: Path) -> None:
    made = read(
        tmp_path, EUGR.replace("- mods/fix-some-model", '- "a\\e]0;title\\ab\\u202e"').replace("Some Model", "Some\\tModel")
    )
    assert all(each.what.isprintable() and each.key.isprintable() for each in made.shared.left_out)
    assert made.shared.name.isprintable()


def test_what_nobody_would_read_is_shortened(tmp_path: Path) -> None:
    made = read(tmp_path, EUGR.replace("--enable-auto-tool-choice", "--x " + "loose " * 500))
    assert len(made.shared.left_out) == 41
    assert (made.shared.left_out[-1].what, made.shared.left_out[-1].needs_person) == ("462 more like these", True)
    many = "".join(f"  X{number}: 1\n" for number in range(301))
    for text in (EUGR.replace("--enable-auto-tool-choice", "--a 1 " * 300), EUGR.replace("  ONE: 1\n", many)):
        with pytest.raises(StackError, match="more than 300 flags or variables"):
            read(tmp_path, text)


def test_a_link_or_a_device_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(StackError):
        community.read(Path("/dev/zero"))
    with pytest.raises(StackError, match="cannot be read"):
        community.read(tmp_path)


RAY = """\
recipe_version: "1"
name: ray
model: some/Model
defaults: {port: 8000, tensor_parallel: 2}
env:
  NCCL_IB_DISABLE: 1
  HF_TOKEN: hf_secret
command: |
  vllm serve some/Model -tp {tensor_parallel} \\
    --gpu-memory-utilization 0.95 \\
    --swap-space 4 \\
    --distributed-executor-backend ray \\
    --port {port}
"""


def test_rules_are_about_the_command_that_is_made(tmp_path: Path) -> None:
    """Ray goes, and with it what a rule says of Ray; the nodes start by flags, so rules about several nodes hold."""
    made = read(tmp_path, RAY)
    assert [each.line for each in made.findings if each.rule == "roce-off"] == [
        RAY.splitlines().index("  NCCL_IB_DISABLE: 1") + 1
    ]
    assert any("RoCE" in each for each in made.to_look_at)
    assert [each.rule for each in made.findings if "Ray" in each.what] == []
    assert [each.setting for each in made.draft.said if "Ray" in each.what] == ["--distributed-executor-backend"]


def test_a_correction_of_the_command_that_is_made(tmp_path: Path) -> None:
    made = read(tmp_path, RAY, fix=True)
    assert "NCCL_IB_DISABLE" not in made.draft.environment
    assert {each.rule for each in made.mended} >= {"roce-off"}
    assert not [each for each in made.findings if each.rule == "roce-off"]


def test_lines_are_those_of_the_file_with_corrections_too(tmp_path: Path) -> None:
    plain, mended = read(tmp_path, RAY), read(tmp_path, RAY, fix=True)
    assert mended.lines == plain.lines
    lines = RAY.splitlines()
    for said in mended.draft.said:
        assert said.setting in lines[mended.lines[said.setting] - 1]
    for found in mended.mended:
        assert found.line is not None
        assert any(word in lines[found.line - 1] for word in ("NCCL_IB_DISABLE", "--gpu-memory", "--swap-space"))


def test_what_is_made_has_no_line_for_what_the_file_has_not(tmp_path: Path) -> None:
    text = RAY.replace("  NCCL_IB_DISABLE: 1\n", "")
    assert all(each.line for each in read(tmp_path, text).findings)
