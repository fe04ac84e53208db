# SPDX-License-Identifier: Apache-2.0
"""Each error that is known has a line that shows it, and none is seen in a log where all went well."""

import time
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.doctor import logs
from stack.doctor.finding import Severity

from .cases import LOGS, info, said

# Made from the words of those who write them: no machine here has these errors.
LINES = {
    "fp4-conversion": "ptxas x.ptx, line 9; error   : Feature 'cvt.e2m1x2.f32' not supported on .target 'sm_121'",
    "architecture-unknown": "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    "compiler-killed": '/bin/sh: line 1:  4242 Killed                  "$CICC_PATH/cicc" --c++17 --orig_src_file_name x.cu',
    "harmony-vocabulary": "openai_harmony.HarmonyError: error downloading or loading vocab file: failed to download",
    "harmony": "openai_harmony.HarmonyError: invalid utf-8 sequence",
    "harmony-header": "openai_harmony.HarmonyError: unexpected tokens remaining in message header",
    "flashinfer-companion": "RuntimeError: flashinfer-cubin version (0.6.4) does not match flashinfer version (0.7.0.post1).",
    "library-mismatch": "ImportError: /site/vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    "cudnn-too-old": "LibraryError: cudnn FP4 GEMM with mxfp4 quantization is not supported on SM120/SM121 with cuDNN backend version < 9.14.0.",
    "memory-taken": "ValueError: Free memory on device cuda:0 (80.1/119.7 GiB) on startup is less than desired GPU memory utilization (0.9, ",
    "no-room-for-cache": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    "fp8-sinks-on-sm90": 'mma_sm90.hpp(6108): error: static assertion failed with "MajorB must be GMMA::Major::K for this config."',
    "backend-refused": "ValueError: Mxfp4 MoE backend 'FLASHINFER_TRTLLM_MXFP4_BF16' does not support the deployment configuration since",
    "context-too-long": "ValueError: To serve at least one request with the model's max seq len (131072), (4.5 GiB KV cache is needed",
    "out-of-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "illegal-instruction": "torch.AcceleratorError: CUDA error: an illegal instruction was encountered",
    "no-kernel-image": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "driver-too-old": "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).",
    "sinks-unsupported": "ValueError: Selected backend FLASHINFER is not valid. Reason: ['attention sinks not supported']",
    "moe-requantized": "NotImplementedError: Requantizing checkpoint-quantized MoE layers is not supported.",
    "parser-not-harmony": "ValueError: Harmony requires GptOssReasoningParser, got DeepSeekR1ReasoningParser.",
    "flag-unknown": "vllm: error: unrecognized arguments: --mxfp4-backend CUTLASS",
    "import-moved": "ModuleNotFoundError: No module named 'vllm.model_executor.layers.quantization.quant_utils'",
    "engine-killed": "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
    "kernel-not-compiled": "RuntimeError: Ninja build failed. Ninja output:",
}


def test_each_is_known_once() -> None:
    names = [one.id for one in logs.known()]
    assert not {*LINES} - {*names}
    assert len({*names}) == len(names)


@pytest.mark.parametrize("name", LINES)
def test_it_is_found_with_its_line(name: str) -> None:
    found = logs.of(f"one\ntwo\n{info(LINES[name], 'ERROR')}\n")
    assert [(rule.id, line.number) for rule, line in found.errors] == [(name, 3)]


def test_an_unknown_error_before_known_ones_is_named_too() -> None:
    first, second = info("KeyError: 'odd'", "ERROR"), info(LINES["out-of-memory"], "ERROR")
    for lines, names in (
        ((first, second), ["the first error: KeyError", "torch.OutOfMemory"]),
        ((second, first), ["torch.OutOfMemory"]),
    ):
        found = [one for one in logs.look(said(*lines), "log") if one.check == "errors"]
        assert sorted(names) == sorted(name for name in names for one in found if one.found.what.startswith(name))
        assert len(found) == len(names)


def test_what_is_only_told_is_no_error() -> None:
    assert logs.of(info(LINES["sinks-unsupported"], "DEBUG")).errors == ()


@pytest.mark.parametrize(
    "name", ["cpu-fp32", "cpu-mxfp4", "cpu-compiled", "cpu-debug-coloured", "h200-default", "h200-eager", "h200-variables"]
)
def test_none_in_a_server_s_log_that_ran(name: str) -> None:
    assert [one.id for one, _ in logs.read(LOGS / f"{name}.log").errors] == []


def test_long_logs_and_lines_take_no_time() -> None:
    began = time.monotonic()
    logs.of(f"{'Killed ' * 100_000}\n" * 3 + "ordinary line of a server, which says nothing at all\n" * 100_000)
    assert time.monotonic() - began < 60


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot be read"):
        logs.read(tmp_path / "none.log")
    with pytest.raises(StackError, match="cannot be read"):
        logs.read(tmp_path)


FULL = "ValueError: To serve at least one request with the model's max seq len (131072), (4.5 GiB KV cache is needed"


@pytest.mark.parametrize(
    ("before", "is_advised"),
    [
        ("", True),
        ("non-default args: {'model': 'm', 'kv_cache_dtype': 'auto', 'max_model_len': 131072}", True),
        ("non-default args: {'model': 'm', 'kv_cache_dtype': 'fp8', 'max_model_len': 131072}", False),
        ("non-default args: {'max_model_len': 131072, 'kv_cache_dtype': 'fp8_e4m3'}", False),
        ("args: Namespace(model='m', kv_cache_dtype='fp8_e5m2', port=8000)", False),
        ("Initializing a V1 LLM engine (v0.32.0) with config: model='m', kv_cache_dtype=fp8_e4m3, seed=0", False),
    ],
)
def test_a_setting_that_the_log_shows_is_not_advised(before: str, is_advised: bool) -> None:
    found = [*logs.look(said(*([info(before)] if before else []), info(FULL, "ERROR")), "log")]
    (wrong,) = (one.found for one in found if one.found.rule == "context-too-long")
    assert ("--kv-cache-dtype fp8" in wrong.fix) is is_advised
    assert "lower --max-model-len" in wrong.fix


def test_an_error_line_without_an_exception_is_not_overlooked() -> None:
    for line in (info("Something is not as it should be.", "ERROR"), "docker: Error response from daemon: no such thing."):
        (wrong,) = (one.found for one in logs.look(said(line), "log") if one.check == "errors")
        assert wrong.severity is Severity.WRONG
        assert "no rule knows it" in wrong.what
    for line in (info("Dumping input data", "ERROR"), info("  File x", "ERROR"), info("Something went on.", "WARNING")):
        assert {one.severity for one in logs.look(said(line), "log") if one.check == "errors"} == {Severity.FINE}
    ready = said(info("Something is not as it should be.", "ERROR"), "INFO:     Application startup complete.")
    assert {one.severity for one in logs.look(ready, "log") if one.check == "errors"} == {Severity.FINE}


def test_an_exception_with_a_small_letter_is_the_first_error() -> None:
    (wrong,) = (
        one.found
        for one in logs.look(said(info("some._bindings.someBackendError: X_ERR", "ERROR")), "log")
        if one.check == "errors"
    )
    assert "some._bindings.someBackendError: X_ERR" in wrong.what


def test_an_error_whose_next_line_says_what_it_is() -> None:
    lines = [info("pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig", "ERROR")]
    lines += [info("  Value error, invalid literal for int() with base 10: '4.0' [type=value_error]", "ERROR")]
    (wrong,) = (one.found for one in logs.look(said(*lines), "log") if one.check == "errors")
    assert "for VllmConfig: Value error, invalid literal for int() with base 10: '4.0'" in wrong.what


def test_a_variable_that_vllm_never_had_is_only_told() -> None:
    for name, severity in (("VLLM_VERSION", Severity.NOTE), ("VLLM_NVFP4_GEMM_BACKEND", Severity.WRONG)):
        line = info(f"Unknown vLLM environment variable detected: {name}", "WARNING")
        (one,) = (one for one in logs.look(said(line), "log") if one.check == "unknown-variables")
        assert one.severity is severity
