# SPDX-License-Identifier: Apache-2.0
"""The series fp8-kv: which backend vLLM chooses for an FP8 KV cache with sinks, and with which scales it calls FlashInfer.

Command line, selection and the backend's own code are the upstream's. FlashInfer is not installed: in place of its
wrappers stands attention in double precision, over the values of the cache and with the scales that the backend passes.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import support
import torch

with support.quiet():
    import vllm.platforms as platforms
    import vllm.utils.flashinfer as flashinfer_utils
    from vllm.config import AttentionConfig, VllmConfig, set_current_vllm_config
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig
    from vllm.v1.kv_cache_layout import KVCacheLayout

    with support.stubbed("flashinfer"):
        import vllm.v1.attention.backends.flashinfer as backend

SCALE = "vllm/ignore-q-scale-where-queries-are-not-fp8.patch"
E5M2 = "vllm/refuse-e5m2-kv-caches-where-flashinfer-decodes-with-xqa.patch"

PROVES = {
    SCALE: [
        "test_prefill_with_sinks_scales_no_bf16_query",
        "test_native_kernels_scale_no_bf16_query",
        "tests/v1/attention/test_flashinfer_q_scale.py::test_native_kernels_get_q_scale_for_fp8_queries_only",
        "tests/v1/attention/test_flashinfer_q_scale.py::test_prefill_with_sinks_gets_q_scale_for_fp8_queries_only",
    ],
    E5M2: [
        "test_e5m2_goes_to_triton_where_xqa_decodes",
        "test_flashinfer_refuses_e5m2_with_the_reason",
        "tests/v1/attention/test_flashinfer_xqa_kv_cache_dtype.py::test_e5m2_kv_cache_is_refused_where_xqa_decodes",
    ],
}
UPSTREAM_TESTS = ["tests/kernels/attention/test_use_trtllm_attention.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")

XQA = [(9, 0), (12, 0), (12, 1)]

# Selection


Choose = Callable[..., str]


@pytest.fixture(name="choose")
def _choose(monkeypatch: pytest.MonkeyPatch) -> Iterator[Choose]:
    """What vLLM's CUDA platform answers on a machine without network, for one of gpt-oss's layers."""
    for name in ("vllm._C_stable_libtorch", "vllm._C"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    cuda = importlib.import_module("vllm.platforms.cuda")

    def get(*_: object, **__: object) -> None:
        raise OSError("no network")

    def forget() -> None:
        flashinfer_utils.supports_trtllm_attention.cache_clear()
        flashinfer_utils.has_nvidia_artifactory.cache_clear()

    monkeypatch.setattr(flashinfer_utils.requests, "get", get)
    monkeypatch.setattr(flashinfer_utils, "has_flashinfer_cubin", lambda: False)

    def choose(
        gpu: tuple[int, int], kv_cache_dtype: str, name: str | None = None, *, sinks: bool = True, xqa: bool | None = None
    ) -> str:
        forget()
        support.fake_gpu(monkeypatch, *gpu)
        capability = platforms.interface.DeviceCapability(*gpu)

        class Platform(cuda.CudaPlatformBase):
            @classmethod
            def get_device_capability(cls, device_id: int = 0) -> Any:
                return capability

        asked = AttentionSelectorConfig(
            head_size=64,
            dtype=torch.bfloat16,
            kv_cache_dtype=kv_cache_dtype,
            block_size=None,
            use_mla=False,
            has_sink=sinks,
            use_sparse=False,
            use_mm_prefix=False,
        )
        selected = None if name is None else AttentionBackendEnum[name]
        with set_current_vllm_config(VllmConfig(attention_config=AttentionConfig(use_trtllm_attention=xqa))):
            return Platform.get_attn_backend_cls(selected, asked, 64).rsplit(".", 1)[1]

    yield choose
    forget()


@pytest.mark.parametrize("gpu", [(12, 0), (12, 1)])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8", "fp8_e4m3"])
@pytest.mark.parametrize("name", [None, "FLASHINFER"])
def test_flashinfer_is_chosen_offline(choose: Choose, gpu: tuple[int, int], kv_cache_dtype: str, name: str | None) -> None:
    """ignore-q-scale-where-queries-are-not-fp8.patch, and the others: with sinks, by default and by name."""
    assert choose(gpu, kv_cache_dtype, name) == "FlashInferBackend"


@pytest.mark.parametrize("gpu", [(12, 0), (12, 1)])
@pytest.mark.parametrize("sinks", [True, False])
def test_e5m2_goes_to_triton_where_xqa_decodes(choose: Choose, gpu: tuple[int, int], sinks: bool) -> None:
    """refuse-e5m2-kv-caches-where-flashinfer-decodes-with-xqa.patch: a backend that reads it is chosen."""
    assert choose(gpu, "fp8_e5m2", sinks=sinks) == "TritonAttentionBackend"


@pytest.mark.parametrize("gpu", XQA)
def test_flashinfer_refuses_e5m2_with_the_reason(choose: Choose, gpu: tuple[int, int]) -> None:
    """refuse-e5m2-kv-caches-where-flashinfer-decodes-with-xqa.patch: when the backend is chosen, not by wrong text."""
    with pytest.raises(ValueError, match="XQA decode cannot read an FP8 E5M2 KV cache"):
        choose(gpu, "fp8_e5m2", "FLASHINFER")


@pytest.mark.parametrize(("gpu", "xqa"), [((8, 9), None), ((12, 1), False), ((9, 0), False)])
def test_native_decode_keeps_e5m2(choose: Choose, gpu: tuple[int, int], xqa: bool | None) -> None:
    """refuse-e5m2-kv-caches-where-flashinfer-decodes-with-xqa.patch: where XQA is not used, nothing changes."""
    assert choose(gpu, "fp8_e5m2", "FLASHINFER", sinks=False, xqa=xqa) == "FlashInferBackend"


# Scales

# vLLM 0.33.0 makes a buffer on the GPU for a kernel that runs on SM100 only.
LATER = ("get_device_sm_count", "get_trtllm_gen_multi_ctas_kv_counter_bytes", "_get_multi_ctas_kv_counter_buffer")
TOKENS, HEADS, SIZE = 16, 2, 32
Q_SCALE, K_SCALE, V_SCALE = 0.25, 0.5, 2.0
SM_SCALE = SIZE**-0.5


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, sinks: torch.Tensor | None
) -> torch.Tensor:
    """[tokens, heads, size]; one KV head; the last token sees all, the one before it one less; a sink takes its share."""
    logits = torch.einsum("qhd,kd->hqk", query.double(), key.double()) * scale
    last = torch.arange(key.shape[0])[None, :] - (key.shape[0] - query.shape[0]) > torch.arange(query.shape[0])[:, None]
    logits = logits.masked_fill(last, -torch.inf)
    if sinks is not None:
        shares = torch.cat([logits, sinks.double()[:, None, None].expand(-1, len(query), 1)], -1).softmax(-1)[..., :-1]
    else:
        shares = logits.softmax(-1)
    return torch.einsum("hqk,kd->qhd", shares, value.double())


class Planned:
    """What plan() leaves on a wrapper of FlashInfer's."""

    _window_left = -1
    _logits_soft_cap = 0.0
    _sm_scale = SM_SCALE
    _causal = True


class Native(Planned, backend.BatchPrefillWithPagedKVCacheWrapper):
    """Prefill and decode without a JIT variant: the scales multiply the plan's."""

    def run(
        self,
        query: torch.Tensor,
        cache: tuple[torch.Tensor, torch.Tensor],
        *,
        q_scale: float,
        k_scale: float,
        v_scale: float,
        out: torch.Tensor,
        sinks: torch.Tensor | None = None,
        **_: Any,
    ) -> None:
        key, value = (part[0, 0] for part in cache)
        out.copy_(attention(query, key, value, self._sm_scale * q_scale * k_scale, sinks) * v_scale)


class WithSinks(Planned, backend.BatchAttentionWithAttentionSinkWrapper, backend.BatchPrefillWithPagedKVCacheWrapper):
    """Prefill with sinks: the whole scale is an argument."""

    def run(
        self,
        query: torch.Tensor,
        cache: tuple[torch.Tensor, torch.Tensor],
        sinks: torch.Tensor,
        scale: float,
        *,
        v_scale: float,
        out: torch.Tensor,
    ) -> None:
        key, value = (part[0, 0] for part in cache)
        out.copy_(attention(query, key, value, scale, sinks) * v_scale)


def quantized(values: torch.Tensor, scale: float) -> torch.Tensor:
    return (values.float() / scale).to(torch.float8_e4m3fn)


def run_backend(
    monkeypatch: pytest.MonkeyPatch,
    wrapper: Planned,
    *,
    gpu: tuple[int, int],
    decode: bool,
    sinks: torch.Tensor | None,
    fp8: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The backend's output for one request with a calibrated checkpoint's scales, and what it should be."""
    support.fake_gpu(monkeypatch, *gpu)
    monkeypatch.setattr(
        backend.custom_ops, "scaled_fp8_quant", lambda values, scale: (quantized(values, scale.item()), scale), raising=False
    )
    for name in LATER:
        monkeypatch.setattr(backend, name, lambda *_: 0, raising=False)
    generator = torch.Generator().manual_seed(5)
    count = 1 if decode else TOKENS
    query = (3 * torch.randn(count, HEADS, SIZE, generator=generator)).bfloat16()
    key, value = torch.randn(2, TOKENS, SIZE, generator=generator).bfloat16()
    cache = torch.cat([quantized(key, K_SCALE), quantized(value, V_SCALE)], -1).view(torch.uint8)[None, None]

    with set_current_vllm_config(VllmConfig(attention_config=AttentionConfig(use_trtllm_attention=None))):
        implementation = backend.FlashInferImpl(HEADS, SIZE, SM_SCALE, 1, None, None, "fp8_e4m3", sinks=sinks)
    dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
    metadata = backend.FlashInferMetadata(
        kv_cache_layout=KVCacheLayout.LBHNC,
        num_actual_tokens=count,
        slot_mapping=torch.arange(count),
        q_data_type_prefill=dtype,
        q_data_type_decode=dtype,
        num_decodes=int(decode),
        num_decode_tokens=int(decode),
        num_prefills=int(not decode),
        num_prefill_tokens=0 if decode else count,
        causal=True,
        prefill=None if decode else backend.FIPrefill(wrapper),
        decode=backend.FIDecode(wrapper) if decode else None,
    )
    layer = SimpleNamespace(
        _q_scale=torch.tensor(Q_SCALE),
        _q_scale_float=Q_SCALE,
        _k_scale_float=K_SCALE,
        _v_scale_float=V_SCALE,
        _o_scale_float=None,
    )
    output = torch.empty(count, HEADS, SIZE, dtype=torch.bfloat16)
    implementation.forward(layer, query, key, value, cache, metadata, output)

    stored = quantized(key, K_SCALE).double() * K_SCALE, quantized(value, V_SCALE).double() * V_SCALE
    queries = quantized(query, Q_SCALE).double() * Q_SCALE if fp8 else query
    return output.double(), attention(queries, *stored, SM_SCALE, sinks)


SINKS = torch.tensor([0.5, -1.0])


@pytest.mark.parametrize("gpu", [(12, 0), (12, 1)])
def test_prefill_with_sinks_scales_no_bf16_query(monkeypatch: pytest.MonkeyPatch, gpu: tuple[int, int]) -> None:
    """ignore-q-scale-where-queries-are-not-fp8.patch: gpt-oss's prefill on a Spark, with calibrated scales."""
    found, expected = run_backend(monkeypatch, WithSinks(), gpu=gpu, decode=False, sinks=SINKS, fp8=False)
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("gpu", [(8, 9), (12, 1)])
def test_native_kernels_scale_no_bf16_query(monkeypatch: pytest.MonkeyPatch, gpu: tuple[int, int], decode: bool) -> None:
    """ignore-q-scale-where-queries-are-not-fp8.patch: nor do prefill without sinks and native decode."""
    found, expected = run_backend(monkeypatch, Native(), gpu=gpu, decode=decode, sinks=None, fp8=False)
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("wrapper", [Native, WithSinks])
def test_fp8_queries_keep_their_scale(monkeypatch: pytest.MonkeyPatch, wrapper: type[Planned]) -> None:
    """ignore-q-scale-where-queries-are-not-fp8.patch: SM90's prefill quantizes queries, and multiplies what it divided."""
    sinks = SINKS if wrapper is WithSinks else None
    found, expected = run_backend(monkeypatch, wrapper(), gpu=(9, 0), decode=False, sinks=sinks, fp8=True)
    torch.testing.assert_close(found, expected, rtol=2**-7, atol=2**-7)
