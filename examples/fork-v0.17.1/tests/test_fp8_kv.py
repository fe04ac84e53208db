# SPDX-License-Identifier: Apache-2.0
"""The series fp8-kv in vLLM: attention with sinks on FlashInfer's own kernels, from a batch's metadata to its output.

The backend, its builder and its implementation are the upstream's own. FlashInfer and the GPU are not there: its wrappers
are replaced by `Wrapper`, which has their interface and computes by definition what the compiled kernel does.
"""

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
import support
import torch

with support.quiet(), support.stubbed("flashinfer"):
    from vllm.config import CUDAGraphMode, DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backend import CommonAttentionMetadata
    from vllm.v1.attention.backends import flashinfer as backend

SINKS = "vllm/run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch"

PROVES = {
    SINKS: [
        "test_sm12x_supports_sinks",
        "test_gpt_oss_is_served_with_an_fp8_cache",
    ],
}

pytestmark = pytest.mark.filterwarnings("ignore")

HEADS, KV_HEADS, SIZE, PAGE = 8, 2, 64, 16
SCALE = SIZE**-0.5

Gpu = Callable[[int, int], None]


class Wrapper:
    """FlashInfer's BatchAttentionWithAttentionSinkWrapper, as its documentation has it."""

    def __init__(self, workspace: torch.Tensor, kv_layout: str, backend: str, **parameters: Any) -> None:
        assert (kv_layout, backend) == ("NHD", "fa2")
        self.parameters = parameters
        self.is_cuda_graph_enabled = parameters.pop("use_cuda_graph", False)

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: torch.dtype = torch.float16,
        kv_data_type: torch.dtype | None = None,
        o_data_type: torch.dtype | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        assert (num_qo_heads, num_kv_heads, head_dim_qk, page_size) == (HEADS, KV_HEADS, SIZE, PAGE)
        assert (pos_encoding_mode, causal, q_data_type, o_data_type) == ("NONE", True, torch.bfloat16, torch.bfloat16)
        # The module is compiled before anything is planned.
        assert self.parameters["q_data_type"] == q_data_type
        assert self.parameters["kv_data_type"] == kv_data_type
        assert self.parameters["head_dim_qk"] == self.parameters["head_dim_vo"] == head_dim_qk
        assert (self.parameters["window_left"] >= 0) == (window_left >= 0)
        self._window_left, self._logits_soft_cap, self._sm_scale, self._causal = window_left, logits_soft_cap or 0.0, sm_scale, causal
        if self.is_cuda_graph_enabled:
            assert len(qo_indptr) == len(self.parameters["qo_indptr_buf"])
            assert len(paged_kv_indptr) == len(self.parameters["paged_kv_indptr_buf"])
            assert len(paged_kv_last_page_len) == len(self.parameters["paged_kv_last_page_len_buf"])
            assert len(paged_kv_indices) <= len(self.parameters["paged_kv_indices_buf"])
        self.batch = [
            (slice(*qo_indptr[i : i + 2].tolist()), paged_kv_indices[slice(*paged_kv_indptr[i : i + 2].tolist())].clone(), int(last))
            for i, last in enumerate(paged_kv_last_page_len)
        ]

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: torch.Tensor,
        *arguments: Any,
        k_scale: float | None = None,  # a compiled kernel does not see it
        v_scale: float | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        sinks, scale = arguments
        assert sinks.dtype == torch.float32
        assert (q.dtype, paged_kv_cache.dtype) == (torch.bfloat16, self.parameters["kv_data_type"])
        for rows, pages, last in self.batch:
            cache = paged_kv_cache[pages.long()].double()  # [pages, 2, page, heads, size]
            k, v = cache.transpose(0, 1).flatten(1, 2)[:, : (len(pages) - 1) * PAGE + last]
            out[rows] = attention(q[rows], k, v, sinks, scale, self._window_left).to(out.dtype)
        out *= v_scale
        return out


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor, scale: float, window_left: int
) -> torch.Tensor:
    """The last tokens of a sequence attend to it; a sink takes its part of each head's weights and gives nothing."""
    k, v = (x.double().repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    distance = torch.arange(len(k) - len(q), len(k))[:, None] - torch.arange(len(k))
    hidden = (distance < 0) | ((distance > window_left) if window_left >= 0 else False)
    logits = logits.masked_fill(hidden, -math.inf)
    with_sink = torch.cat([logits, sinks.double()[:, None, None].expand(-1, len(q), 1)], -1)
    return torch.einsum("hqk,khd->qhd", with_sink.softmax(-1)[..., :-1], v)


class CopyPageIndices:
    """The Triton kernel that writes the batch's pages one after the other."""

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        def copy(pages: torch.Tensor, table: torch.Tensor, stride: int, indptr: torch.Tensor, BLOCK_SIZE: int) -> None:
            for i, (start, end) in enumerate(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)):
                pages[start:end] = table[i, : end - start]

        return copy


@pytest.fixture(name="device")
def _device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A device whose kernels can be downloaded, for releases that ask for that."""
    flashinfer = importlib.import_module("vllm.utils.flashinfer")
    monkeypatch.setattr(flashinfer, "has_nvidia_artifactory", lambda: True)
    flashinfer.supports_trtllm_attention.cache_clear()
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
        yield functools.partial(support.fake_gpu, monkeypatch)
    flashinfer.supports_trtllm_attention.cache_clear()


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A device, FlashInfer's wrapper, and no way to TRTLLM's kernels."""
    flashinfer = importlib.import_module("vllm.utils.flashinfer")
    monkeypatch.setattr(flashinfer, "has_nvidia_artifactory", lambda: False)
    flashinfer.supports_trtllm_attention.cache_clear()
    for module in ("flashinfer_sinks", "flashinfer"):
        path = support.TREE / f"vllm/v1/attention/backends/{module}.py"
        if path.exists() and "BatchAttentionWithAttentionSinkWrapper" in path.read_text():
            monkeypatch.setattr(f"vllm.v1.attention.backends.{module}.BatchAttentionWithAttentionSinkWrapper", Wrapper)
    # What the backend checks its wrappers against.
    monkeypatch.setattr(backend, "BatchPrefillWithPagedKVCacheWrapper", Wrapper)
    monkeypatch.setattr(backend, "BatchDecodeWithPagedKVCacheWrapper", Wrapper)
    monkeypatch.setattr(backend, "_copy_page_indices_kernel", CopyPageIndices())
    with set_current_vllm_config(VllmConfig(device_config=DeviceConfig(device="cpu"))):
        yield functools.partial(support.fake_gpu, monkeypatch)
    flashinfer.supports_trtllm_attention.cache_clear()


def layer(cache_dtype: str, window: int | None, sinks: bool = True) -> Any:
    impl = backend.FlashInferImpl(
        HEADS,
        SIZE,
        SCALE,
        KV_HEADS,
        None,
        window,
        cache_dtype,
        sinks=torch.randn(HEADS, generator=torch.Generator().manual_seed(3)).bfloat16() * 3 if sinks else None,
    )
    impl.dcp_world_size = 1
    impl.process_weights_after_loading(torch.bfloat16)
    return impl


def builder(
    monkeypatch: pytest.MonkeyPatch, impl: Any, cache_dtype: str, graphs: CUDAGraphMode = CUDAGraphMode.NONE
) -> Any:
    """The builder of a model with these layers only."""
    parameters = importlib.import_module("vllm.v1.attention.backends.utils").PerLayerParameters(impl.window_left, impl.logits_soft_cap, impl.scale, impl.sinks is not None)
    monkeypatch.setattr(backend, "get_per_layer_parameters", lambda *_: {"layer": parameters})
    config = SimpleNamespace(
        cache_config=SimpleNamespace(cache_dtype=cache_dtype),
        model_config=SimpleNamespace(
            max_model_len=256, dtype=torch.bfloat16, get_num_attention_heads=lambda _: HEADS
        ),
        attention_config=SimpleNamespace(disable_flashinfer_q_quantization=False, use_trtllm_attention=None),
        compilation_config=SimpleNamespace(cudagraph_mode=graphs, max_cudagraph_capture_size=8),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, dcp_kv_cache_interleave_size=1),
        speculative_config=None,
    )
    spec = SimpleNamespace(block_size=PAGE, num_kv_heads=KV_HEADS, head_size=SIZE, dtype=torch.bfloat16)
    made = backend.FlashInferMetadataBuilder(spec, ["layer"], config, torch.device("cpu"))
    made.set_workspace_buffer(torch.zeros(8, dtype=torch.uint8))
    return made


class Batch:
    """Requests of these lengths, of which the last tokens are asked for, and a cache that holds them."""

    def __init__(self, asked: list[int], lengths: list[int], cache_dtype: str) -> None:
        generator = torch.Generator().manual_seed(5)
        self.asked, self.lengths, self.tokens = asked, lengths, sum(asked)
        self.fp8 = cache_dtype.startswith("fp8")
        self.query = torch.randn(self.tokens, HEADS, SIZE, generator=generator).bfloat16()
        pages = [-(-length // PAGE) for length in lengths]
        self.table = torch.zeros(len(lengths), max(pages), dtype=torch.int32)
        order = (torch.randperm(sum(pages), generator=generator) + 1).int()
        for row, part in zip(self.table, order.split(pages), strict=True):
            row[: len(part)] = part
        cache = torch.randn(sum(pages) + 1, 2, PAGE, KV_HEADS, SIZE, generator=generator)
        self.cache = cache.to(torch.float8_e4m3fn if self.fp8 else torch.bfloat16)

    def metadata(self) -> CommonAttentionMetadata:
        starts = torch.tensor([0, *self.asked]).cumsum(0).int()
        lengths = torch.tensor(self.lengths, dtype=torch.int32)
        return CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=lengths,
            _seq_lens_cpu=lengths,
            _num_computed_tokens_cpu=lengths - torch.tensor(self.asked).int(),
            num_reqs=len(self.asked),
            num_actual_tokens=self.tokens,
            max_query_len=max(self.asked),
            max_seq_len=max(self.lengths),
            block_table_tensor=self.table,
            slot_mapping=torch.zeros(self.tokens, dtype=torch.int64),
        )

    def forward(self, impl: Any, metadata: Any, k_scale: float, v_scale: float) -> torch.Tensor:
        scales = SimpleNamespace(_q_scale_float=1.0, _k_scale_float=k_scale, _v_scale_float=v_scale)
        cache = self.cache.view(torch.uint8) if self.fp8 else self.cache
        unused = torch.zeros(self.tokens, KV_HEADS, SIZE, dtype=torch.bfloat16)
        output = torch.zeros_like(self.query)
        return impl.forward(scales, self.query, unused, unused, cache, metadata, output)

    def expected(self, impl: Any, k_scale: float, v_scale: float) -> torch.Tensor:
        parts = []
        for asked, length, row, query in zip(self.asked, self.lengths, self.table, self.query.split(self.asked), strict=True):
            k, v = self.cache[row.long()].double().transpose(0, 1).flatten(1, 2)[:, :length]
            sinks = impl.sinks if impl.sinks is not None else torch.full((HEADS,), -math.inf)
            parts.append(attention(query, k * k_scale, v * v_scale, sinks, SCALE, impl.window_left))
        return torch.cat(parts)


CASES = [("auto", None, 1.0, 1.0), ("auto", 32, 1.0, 1.0), ("fp8", None, 0.5, 1.5), ("fp8_e4m3", 32, 0.25, 2.0)]


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
def test_sm12x_supports_sinks(device: Gpu, capability: tuple[int, int]) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: the question that selection asks."""
    device(*capability)
    assert backend.FlashInferBackend.supports_sink() is True


@pytest.mark.parametrize("cache_dtype", ["auto", "fp8", "fp8_e4m3"])
def test_gpt_oss_is_served_with_an_fp8_cache(device: Gpu, cache_dtype: str) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: --attention-backend FLASHINFER is no error."""
    device(12, 1)
    values = {
        "head_size": 64,
        "dtype": torch.bfloat16,
        "kv_cache_dtype": cache_dtype,
        "block_size": PAGE,
        "has_sink": True,
        "device_capability": DeviceCapability(12, 1),
        "attn_type": "decoder",
    }
    check = backend.FlashInferBackend.validate_configuration
    flags = [name for name, parameter in signature(check).parameters.items() if parameter.default is parameter.empty]
    assert check(**{name: False for name in flags} | values) == []


@pytest.mark.parametrize("capability", [(12, 0), (12, 1)])
def test_sm12x_needs_no_network(gpu: Gpu, capability: tuple[int, int]) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: without TRTLLM's kernels, nothing is downloaded."""
    gpu(*capability)
    assert backend.FlashInferBackend.supports_sink() is True


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0)])
def test_other_devices_need_trtllm(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: no other device is admitted, and they say so."""
    gpu(*capability)
    assert backend.FlashInferBackend.supports_sink() is False
    with pytest.raises(NotImplementedError, match="does not support attention sinks"):
        builder(monkeypatch, layer("auto", None), "auto")


@pytest.mark.parametrize(("cache_dtype", "window", "k_scale", "v_scale"), CASES)
def test_a_mixed_batch_is_attention_with_sinks(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, cache_dtype: str, window: int | None, k_scale: float, v_scale: float
) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: decodes and prefills, scales of K and V included."""
    gpu(12, 1)
    impl = layer(cache_dtype, window)
    batch = Batch([1, 1, 5, 40], [33, 16, 5, 77], cache_dtype)
    metadata = builder(monkeypatch, impl, cache_dtype).build(0, batch.metadata())
    assert (metadata.num_decodes, metadata.num_prefills) == (2, 2)
    output = batch.forward(impl, metadata, k_scale, v_scale)
    expected = batch.expected(impl, k_scale, v_scale)
    torch.testing.assert_close(output.double(), expected, rtol=2**-6, atol=2**-6)
    impl.sinks = None
    with pytest.raises(AssertionError):  # so the check sees sinks
        torch.testing.assert_close(output.double(), batch.expected(impl, k_scale, v_scale), rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize(("cache_dtype", "window", "k_scale", "v_scale"), CASES)
def test_decodes_are_attention_with_sinks(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, cache_dtype: str, window: int | None, k_scale: float, v_scale: float
) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: a batch of decodes only, twice with one wrapper."""
    gpu(12, 1)
    impl = layer(cache_dtype, window)
    made = builder(monkeypatch, impl, cache_dtype)
    for lengths in ([33, 16, 80], [1, 200]):
        batch = Batch([1] * len(lengths), lengths, cache_dtype)
        output = batch.forward(impl, made.build(0, batch.metadata()), k_scale, v_scale)
        torch.testing.assert_close(output.double(), batch.expected(impl, k_scale, v_scale), rtol=2**-6, atol=2**-6)


def test_decodes_in_a_cuda_graph_keep_their_buffers(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: one wrapper a batch size, on buffers that stay."""
    gpu(12, 1)
    impl = layer("fp8", None)
    made = builder(monkeypatch, impl, "fp8", CUDAGraphMode.FULL_AND_PIECEWISE)
    wrappers = []
    for lengths in ([33, 16], [34, 17], [5, 6, 7]):
        batch = Batch([1] * len(lengths), lengths, "fp8")
        metadata = made.build(0, batch.metadata())
        wrappers.append(metadata.decode.wrapper)
        assert wrappers[-1].is_cuda_graph_enabled
        assert wrappers[-1].parameters["paged_kv_indices_buf"] is made.paged_kv_indices.gpu
        output = batch.forward(impl, metadata, 0.5, 1.5)
        torch.testing.assert_close(output.double(), batch.expected(impl, 0.5, 1.5), rtol=2**-6, atol=2**-6)
    assert wrappers[0] is wrappers[1] is not wrappers[2]
    assert wrappers[0].parameters["qo_indptr_buf"].tolist() == [0, 1, 2]


def test_layers_of_different_windows_are_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-attention-sinks-on-flashinfer-s-own-kernels-on-sm12x.patch: one plan serves one window, with sinks as without."""
    gpu(12, 1)
    impl = layer("auto", None)
    made = builder(monkeypatch, impl, "auto")
    made.global_hyperparameters.has_same_window_lefts = False
    with pytest.raises(ValueError, match="Window left is not the same"):
        made.build(0, Batch([1], [5], "auto").metadata())
