# SPDX-License-Identifier: Apache-2.0
"""What is read from logs: of real servers of the pinned vLLM with the patches (`cpu-…`; `h200-…`, on an H200 with weights made at random,
routes and all but the beginning of endless errors left out), and made from vLLM's format strings (`made-…`): what none of them said."""

import time
from pathlib import Path

import pytest

from stack.deploy import recipes, vllm_log
from stack.deploy.recipes import Backends
from stack.deploy.vllm_log import Cache, Graphs, Reading

LOGS = Path(__file__).parent / "logs"
SPARK = recipes.load("gpt-oss-120b-spark").backends
DECODES = "Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of "


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_bytes().decode()


def names(said: Reading, part: str) -> list[str]:
    return [one.name for one in said.named(part)]


def record(text: str, level: str = "INFO", at: str = "11-22 09:00:00") -> str:
    return f"(EngineCore pid=7) {level} {at} [some.py:1] {text}\n"


def test_a_server_on_a_cpu() -> None:
    said = vllm_log.read(log("cpu-mxfp4"))
    assert (said.version, said.model, said.context) == ("0.32.0+sm121.gd5a9b317.cpu", "/models/tiny-mxfp4", 4096)
    assert (said.dtype, said.quantization, said.compiled) == ("bfloat16", "gpt_oss_mxfp4", False)
    assert [(one.name, one.of) for one in said.moe] == [("CPU", "Mxfp4")]
    assert said.cache == Cache("bfloat16", 1342177, 1.0, 4096, 327.68)
    assert (said.graphs.on, said.graphs.why) == (False, "enforce_eager is set")
    assert {one.name: one.seconds for one in said.phases} == {"load": 0.87, "engine": 5.91, "ready": 87.0}
    assert (said.ready, said.stage, said.address) == (True, "ready", "http://127.0.0.1:44633")
    assert (said.starts, said.lines, said.unknown, said.refused) == (1, 115, (), ())
    # What the front end says of its engine while both are ended is no error.
    assert "EngineDeadError" in log("cpu-mxfp4")
    assert said.error is None


def test_others_on_a_cpu() -> None:
    exact, compiled = vllm_log.read(log("cpu-fp32")), vllm_log.read(log("cpu-compiled"))
    assert [(one.name, one.of) for one in exact.moe] == [("CPU", "Unquantized")]
    assert (exact.quantization, exact.cache.kind) == (None, "float32")
    assert (compiled.compiled, exact.compiled) == (True, False)
    assert (compiled.graphs.on, compiled.graphs.why) == (False, "cudagraph_mode is NONE")


def test_what_a_cpu_refuses() -> None:
    moe, linear, debug = (vllm_log.read(log(f"cpu-{name}")) for name in ("refused-moe", "refused-linear", "debug-coloured"))
    assert [(one.part, one.name, one.why) for one in moe.refused] == [
        ("MoE", "MARLIN", "kernel does not support current device cpu")
    ]
    assert moe.error is not None
    assert (moe.error.process, moe.error.text.partition(":")[0]) == ("Worker", "ValueError")
    assert [one.text.partition(" ")[0] for one in linear.fallbacks] == ["--linear-backend=marlin", "--linear-backend=marlin"]
    assert [one.name for one in debug.unknown] == ["VLLM_MXFP4_BACKEND"]
    assert ("attention", "FLASHINFER", "on CPU") in [(one.part, one.name, one.why) for one in debug.refused]
    assert {one.name for one in debug.refused} >= {"MARLIN", "TRITON", "FLASHINFER_TRTLLM_MXFP4_BF16"}
    assert (names(debug, "MoE"), debug.cache.kind, debug.ready) == (["CPU"], "fp8", True)
    argument = vllm_log.read(log("cpu-argument")).error
    assert argument is not None
    assert argument.text == "main.py: error: unrecognized arguments: --mxfp4-backend marlin"


def test_an_h200_by_default() -> None:
    said = vllm_log.read(log("h200-default"))
    assert vllm_log.mismatches(said, recipes.load("gpt-oss-120b-h200").backends) == ()
    assert [names(said, part) for part in vllm_log.PARTS] == [["TRITON"], [], [], ["FLASH_ATTN"]]
    assert said.cache == Cache("bfloat16", 812235, 55.8, 16384, 49.57)
    assert (said.graphs.on, said.graphs.mode, said.graphs.seconds) == (True, "FULL_AND_PIECEWISE", 2.0)
    assert {"compile": 18.86, "graphs": 16.0, "engine": 69.3, "ready": 132.0}.items() <= {
        one.name: one.seconds for one in said.phases
    }.items()


def test_an_h200_as_it_is_told() -> None:
    eager, told = vllm_log.read(log("h200-eager")), vllm_log.read(log("h200-variables"))
    assert [names(eager, part) for part in vllm_log.PARTS] == [["MARLIN"], [], ["MarlinMxFp4LinearKernel"], ["TRITON_ATTN"]]
    assert (eager.graphs.on, eager.graphs.why, eager.compiled) == (False, "enforce_eager is set", False)
    assert [(one.part, one.found, one.why) for one in vllm_log.mismatches(eager, SPARK)] == [
        ("attention", "TRITON_ATTN", ()),
        ("KV cache", "bfloat16", ()),
        ("graphs", "off", ("enforce_eager is set",)),
    ]
    assert [one.name for one in told.unknown] == ["VLLM_NVFP4_GEMM_BACKEND", "VLLM_MXFP4_BACKEND"]
    assert [one.part for one in vllm_log.mismatches(told, SPARK)] == ["attention"]


@pytest.mark.parametrize(
    ("name", "stage", "error"),
    [
        (
            "h200-refused-moe",
            "loading the model",
            "ValueError: Mxfp4 MoE backend 'FLASHINFER_TRTLLM_MXFP4_BF16' does not support",
        ),
        (
            "h200-too-much",
            "starting the engine",
            "ValueError: Free memory on device cuda:0 (139.29/139.8 GiB) on startup is less",
        ),
        ("h200-jit-failed", "capturing graphs", "subprocess.CalledProcessError: Command '['ninja', "),
        ("h200-node-1", None, "IndexError: list index out of range"),
    ],
)
def test_an_h200_that_does_not_serve(name: str, stage: str | None, error: str) -> None:
    said = vllm_log.read(log(name))
    assert said.error is not None
    assert said.error.text.startswith(error)
    assert (said.ready, said.stage, said.headless) == (False, stage, name == "h200-node-1")


def test_a_stage_behind_a_progress_bar() -> None:
    found = [vllm_log.stage(one) for one in vllm_log.lines(log("h200-jit-failed"))]
    assert [one for one in found if one] == [
        "starting the engine",
        "loading the model",
        "measuring memory",
        "compiling",
        "compiling kernels",
        "capturing graphs",
    ]
    bars = [vllm_log.progress(one) for one in vllm_log.lines(log("h200-default"))]
    assert [one for one in bars if one][:3] == [(0, 5), (1, 5), (2, 5)]


def test_lines_are_where_an_editor_shows_them() -> None:
    text = log("cpu-mxfp4")
    (moe,) = vllm_log.read(text).moe
    assert "Using 'CPU' Mxfp4 MoE backend." in text.split("\n")[moe.line - 1]


def test_a_gpu_s_server_in_a_container_s_log() -> None:
    said = vllm_log.read(log("made-spark-compose"))
    assert vllm_log.mismatches(said, SPARK) == ()
    assert said.cache == Cache("fp8", 1310720, 22.5, 131072, 10.0)
    assert said.graphs == Graphs(True, "FULL_AND_PIECEWISE", None, 6.0, 0.84, said.graphs.line)
    assert [(one.name, one.seconds) for one in said.phases] == [
        ("download", 70.25),
        ("load", 42.5),
        ("model", 118.125),
        ("compile", 14.25),
        ("kernels", 3.1),
        ("graphs", 6.0),
        ("engine", 30.5),
        ("ready", 175.0),
    ]
    assert (said.weights, said.context, said.compiled, said.address) == (60.75, 131072, True, "http://0.0.0.0:8000")
    assert [one.name for one in said.unknown] == ["VLLM_MXFP4_BACKEND"]


def test_several_processes_say_the_same_once_and_the_slowest_counts() -> None:
    said = vllm_log.read(log("made-two-ranks"))
    assert [names(said, part) for part in vllm_log.PARTS] == [["MARLIN"], [], ["FlashInferMxFp4LinearKernel"], ["TRITON_ATTN"]]
    assert said.seconds("load") == 10.0
    assert (said.graphs.on, said.graphs.mode) == (True, "PIECEWISE")
    assert len(said.fallbacks) == 1
    found = {one.part: one for one in vllm_log.mismatches(said, SPARK)}
    assert [*found] == ["linear", "attention", "KV cache"]
    assert (found["linear"].expected, found["linear"].found) == ("MarlinMxFp4LinearKernel", "FlashInferMxFp4LinearKernel")
    assert "falling back to normal kernel selection" in found["linear"].why[0]
    assert (found["KV cache"].expected, found["KV cache"].found) == ("fp8", "bfloat16")


def test_what_was_refused_and_why() -> None:
    said = vllm_log.read(log("made-refused"))
    assert [(one.part, one.name, one.why) for one in said.refused] == [
        ("MoE", "FLASHINFER_TRTLLM_MXFP4_BF16", "kernel does not support current device cuda"),
        ("MoE", "TRITON", "kernel does not support current device cuda"),
        ("attention", "FLASH_ATTN", "sink setting not supported, kv_cache_dtype not supported"),
        ("attention", "FLASHINFER", "sink setting not supported"),
    ]
    assert said.error is not None
    assert said.error.text.startswith("ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid")
    assert not said.ready
    told = {one.part: one for one in vllm_log.mismatches(said, SPARK)}
    assert told["attention"].found == "not said"
    assert told["attention"].why == ("FLASHINFER: sink setting not supported",)


def test_why_there_is_no_linear_kernel() -> None:
    said = vllm_log.read(log("made-no-linear"))
    assert [(one.name, one.why) for one in said.refused] == [
        ("FlashInferMxFp4LinearKernel", "FlashInfer MXFP4 needs SM100"),
        ("MarlinMxFp4LinearKernel", "disabled by environment variable"),
    ]


@pytest.mark.parametrize(
    ("text", "part", "name"),
    [
        ("Using TRITON Unquantized MoE backend out of potential backends: ['TRITON', 'CPU'].", "MoE", "TRITON"),
        ("Using 'FLASHINFER_CUTLASS_MXFP4_MXFP8' Mxfp4 MoE backend.", "MoE", "FLASHINFER_CUTLASS_MXFP4_MXFP8"),
        ("Using FLASHINFER_CUTLASS Fp8 MoE backend out of potential backends: ['TRITON'].", "MoE", "FLASHINFER_CUTLASS"),
        (f"{DECODES}up to 16 tokens, 'flashinfer_cutlass_fused_moe' above.", "MoE decode", "flashinfer_mxfp4_moe_decode"),
        (f"{DECODES}all batches.", "MoE decode", "flashinfer_mxfp4_moe_decode"),
        (
            f"{DECODES}fewer than 33 tokens, 'flashinfer_mxfp4_moe_prefill' for more.",
            "MoE decode",
            "flashinfer_mxfp4_moe_decode",
        ),
        ("Using FlashInferGemvMxFp4LinearKernel for MXFP4 GEMM", "linear", "FlashInferGemvMxFp4LinearKernel"),
        ("Selected CutlassFP8ScaledMMLinearKernel for model.layers.0.attn.qkv", "linear", "CutlassFP8ScaledMMLinearKernel"),
        ("Using MarlinLinearKernel for mixed-precision linear", "linear", "MarlinLinearKernel"),
        ("Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].", "attention", "FLASH_ATTN"),
        ("Using AttentionBackendEnum.TRITON_ATTN backend.", "attention", "TRITON_ATTN"),
        ("Using CPU_MLA backend.", "attention", "CPU_MLA"),
    ],
)
def test_a_backend_that_is_selected(text: str, part: str, name: str) -> None:
    said = vllm_log.read(record(text))
    assert {one: names(said, one) for one in vllm_log.PARTS} == {one: [name] if one == part else [] for one in vllm_log.PARTS}


def test_a_recipe_expects_what_runs_experts_of_few_tokens() -> None:
    expected = Backends(moe="FLASHINFER_CUTLASS_MXFP4_MXFP8", decode="flashinfer_mxfp4_moe_decode")
    chosen = record("Using 'FLASHINFER_CUTLASS_MXFP4_MXFP8' Mxfp4 MoE backend.")
    both = vllm_log.read(chosen + record(f"{DECODES}up to 16 tokens, 'flashinfer_cutlass_fused_moe' above."))
    assert vllm_log.mismatches(both, expected) == ()
    assert [(one.name, one.of) for one in both.decode] == [("flashinfer_mxfp4_moe_decode", "up to 16 tokens")]
    (missing,) = vllm_log.mismatches(vllm_log.read(chosen), expected)
    assert (missing.part, missing.expected, missing.found) == ("MoE decode", "flashinfer_mxfp4_moe_decode", "not said")


@pytest.mark.parametrize("text", ["Using backend AttentionBackendEnum.FLASH_ATTN for vit attention", "Using CPUExpertsMxfp4"])
def test_what_is_no_backend_of_ours(text: str) -> None:
    said = vllm_log.read(record(text))
    assert [names(said, part) for part in vllm_log.PARTS] == [[], [], [], []]


def test_a_list_of_moe_backends_that_were_refused() -> None:
    reasons = "backend: MARLIN, reason: kernel does not support LoRA; backend: TRITON, reason: a; b"
    said = vllm_log.read(
        record(f"NotImplementedError: No MXFP4 MoE backend supports it. Unsupported reasons: {reasons}. ", "ERROR")
    )
    assert [(one.name, one.why) for one in said.refused] == [("MARLIN", "kernel does not support LoRA"), ("TRITON", "a; b")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup.", "enforce_eager is set"),
        ("Skipping CUDA graph capture. To turn on", "Skipping CUDA graph capture. To turn on"),
        ("X is not supported; setting cudagraph_mode=NONE because it is not compiled", None),
        ("Cudagraph mode FULL is not compatible with compilation mode NONE. Overriding to CUDAGraphMode.NONE.", None),
    ],
)
def test_why_there_are_no_graphs(text: str, why: str | None) -> None:
    said = vllm_log.read(record(text, "WARNING")).graphs
    assert (said.on, said.why) == (False, why or text)
    assert vllm_log.read("nothing of graphs").graphs.on is None


@pytest.mark.parametrize(
    ("front", "back"),
    [
        (
            "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-22 09:00:00\x1b[0m \x1b[90m[a.py:1]\x1b[0m ",
            "\r",
        ),
        ("(Worker_TP0 pid=7) INFO 11-22 09:00:00 [a.py:1] ", ""),
        ("INFO 11-22 09:00:00 [a.py:1] ", ""),
        ("(EngineCore_DP0 pid=7) DEBUG 11-22 09:00:00 [v1/.../worker/a.py:1] ", ""),
        ("vllm-server-1  | (EngineCore pid=7) INFO 11-22 09:00:00 [a.py:1] ", ""),
        ("2026-11-22T09:00:00.1Z (EngineCore pid=7) INFO 11-22 09:00:00 [a.py:1] ", ""),
        ("node1 | ", ""),
        ("", ""),
        ("Loading shards: 10%|█ | 1/10\rLoading shards: 20%|██ | 2/10\r", ""),
    ],
)
def test_whatever_stands_before_a_line(front: str, back: str) -> None:
    said = vllm_log.read(f"one\n{front}Using 'MARLIN' Mxfp4 MoE backend.{back}\nlast")
    assert [(one.name, one.line) for one in said.moe] == [("MARLIN", 2)]


def test_the_parts_of_a_line() -> None:
    one = vllm_log.line("(Worker_TP0 pid=7) WARNING 11-22 09:00:00 [a/.../b.py:12] Said so: [x] INFO", 3)
    assert (one.number, one.process, one.level) == (3, "Worker_TP0", "WARNING")
    assert (one.at, one.place, one.text) == ("11-22 09:00:00", "a/.../b.py:12", "Said so: [x] INFO")


def test_a_log_may_end_anywhere() -> None:
    text = log("made-spark-compose")
    whole = vllm_log.read(text)
    for end in range(0, len(text), 97):
        part = vllm_log.read(text[:end])
        assert part.ready is False
        assert {*names(part, "MoE")} <= {*names(whole, "MoE")}
    assert vllm_log.read("") == Reading()


def test_only_the_last_start_counts() -> None:
    said = vllm_log.read(log("made-refused") + log("cpu-mxfp4"))
    assert (said.starts, said.error, said.refused, said.ready) == (2, None, (), True)
    said = vllm_log.read(log("cpu-mxfp4") + log("made-refused"))
    assert (said.starts, said.ready, names(said, "MoE")) == (2, False, [])


def test_a_year_s_end_is_no_long_start() -> None:
    begun, done = record("a", at="12-31 23:59:50"), record("Application startup complete", at="01-01 00:00:10")
    assert vllm_log.read(begun + done).seconds("ready") == 20.0


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Traceback (most recent call last):\n  ValueError: shown\ntorch.OutOfMemoryError: CUDA out of memory\nKeyError: 1", 3),
        ("vllm serve: error: unrecognized arguments: --mxfp4-backend", 1),
        (record("ValueError: x", "WARNING") + record("RuntimeError: y", "ERROR"), 2),
    ],
)
def test_the_first_error(text: str, first: int) -> None:
    said = vllm_log.read(text).error
    assert said is not None
    assert said.number == first


def test_another_kernel_for_the_same_kind_of_layer_is_a_mismatch() -> None:
    one, other = (
        record("Using MarlinMxFp4LinearKernel for MXFP4 GEMM"),
        record("Using EmulationMxfp4LinearKernel for MXFP4 GEMM"),
    )
    expected = Backends(linear="MarlinMxFp4LinearKernel")
    assert vllm_log.mismatches(vllm_log.read(one), expected) == ()
    assert vllm_log.mismatches(vllm_log.read(one + record("Selected XFP8LinearKernel for lm_head")), expected) == ()
    (found,) = vllm_log.mismatches(vllm_log.read(one + other), expected)
    assert found.found == "MarlinMxFp4LinearKernel, EmulationMxfp4LinearKernel"


def test_what_a_recipe_does_not_name_may_be_anything() -> None:
    assert vllm_log.mismatches(vllm_log.read(log("made-two-ranks")), Backends()) == ()
    (found,) = vllm_log.mismatches(vllm_log.read(log("cpu-mxfp4")), Backends(graphs=True))
    assert (found.part, found.expected, found.found, found.why) == ("graphs", "on", "off", ("enforce_eager is set",))


@pytest.mark.parametrize(
    "text",
    [
        "Available KV cache memory: 1.2.3 GiB",
        "Loading weights took ... seconds",
        "Model loading took . GiB memory and . seconds",
        f"KV cache size: {'9' * 5000} tokens, Maximum concurrency for , tokens per request: .x",
        f"Using max model len {'9' * 5000}",
        "Graph capturing finished in 1,234 secs, took 1.0 GiB",
        "Initializing a V1 LLM engine (v1) with config: model='x', max_seq_len=None, quantization=None,",
        "Initializing a V1 LLM engine (v1) with config: model='x', max_seq_len='1,234', quantization=None,",
        f"Loading safetensors checkpoint shards: | {'9' * 5000}/1 [",
    ],
)
def test_what_is_no_number_is_not_taken_for_one(text: str) -> None:
    said = vllm_log.read(record(text))
    assert (said.cache, said.phases, said.weights, said.graphs.on) == (Cache(), (), None, None)
    assert vllm_log.progress(vllm_log.line(text)) is None


@pytest.mark.parametrize(
    "text",
    [
        record("x" * 2_000_000),
        record("Reasons: {" + "A: [" * 200_000),
        record("with config: model=" + "a='" * 300_000),
        "\r" * 500_000 + "\n" * 500_000,
        "\x1b[" * 500_000,
        "(EngineCore pid=7) " * 100_000,
        record("Unsupported reasons: " + "backend: A, reason: " * 50_000),
        record("GET /health") * 100_000,
        record("Reasons: {" + "attention backends found for " * 20_000),
        record("init engine (" * 20_000),
    ],
)
def test_time_grows_with_the_length_only(text: str) -> None:
    half, whole = _time(text[: len(text) // 2]), _time(text)
    assert whole < 4 * half + 2.0  # a quadratic one takes minutes


def _time(text: str) -> float:
    began = time.process_time()
    vllm_log.read(text)
    return time.process_time() - began
