# SPDX-License-Identifier: Apache-2.0
"""Print the choices of vLLM for every configuration of a grid, one a line, to compare a bare tree with a patched one.

Run by `differential.py`, on either tree. Only names that both trees have are asked for, so the grid is the same. FlashInfer's functions
that the grid relies on are faked as in the proofs; its kernels for few tokens are absent, as in upstream's FlashInfer.
"""

import functools
import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import support
import torch

with support.quiet():
    import vllm.model_executor.kernels.linear.mxfp4.flashinfer as flashinfer_mxfp4
    import vllm.model_executor.layers.fused_moe.experts.flashinfer_cutlass_moe as cutlass_moe
    import vllm.model_executor.layers.fused_moe.oracle.mxfp4 as oracle
    import vllm.platforms as platforms
    import vllm.utils.flashinfer as flashinfer_utils
    from vllm.config import AttentionConfig, KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.config.quantization import QuantizationConfigArgs
    from vllm.model_executor.kernels.linear import init_mxfp4_linear_kernel
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import FusedMoEConfig, FusedMoEParallelConfig, RoutingMethodType
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.quantization.online.base import OnlineQuantizationConfig
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic, kMxfp8Dynamic
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    with support.stubbed("flashinfer"):
        import vllm.v1.attention.backends.flashinfer  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")

MARK = "choice\t"
ROWS = "rows"
"""The key of the line that says how many others there are."""
"""Each line of the table begins with it."""
GPUS = [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (11, 0), (12, 0), (12, 1)]
LINEAR = "auto flashinfer_cutlass flashinfer_trtllm flashinfer_cudnn flashinfer_b12x b12x cutlass marlin triton torch emulation"
MOE = """
auto triton cutlass deep_gemm marlin humming emulation flashinfer_trtllm flashinfer_cutlass flashinfer_cutedsl flashinfer_b12x b12x aiter
"""
BACKENDS = (None, "FLASHINFER", "TRITON_ATTN", "FLASH_ATTN")
SPECS = [
    "mxfp4",
    "mxfp8",
    "fp8",
    "none",
    "fp8_per_tensor",
    "fp8_per_channel",
    "fp8_per_block_static",
    "nvfp4_per_token",
    "int4",
    "",
    None,
]
PREFIXES = {"model.layers.0.attn.o_proj": LinearBase, "lm_head": ParallelLMHead, "model.embed_tokens": VocabParallelEmbedding}
SIZES = [(2880, 2880), (2880, 1440), (2880, 720), (4096, 14336), (5120, 1536), (7168, 2048), (2881, 1000)]

Row = tuple[str, Callable[[], object]]


def answer(ask: Callable[[], object]) -> str:
    """Return the answer, or the kind of error: its text may list more names."""
    try:
        return str(ask())
    except Exception as refused:  # whatever upstream raises is its answer
        return f"({type(refused).__name__})"


def linear_rows() -> Iterator[Row]:
    for backend, key in itertools.product(LINEAR.split(), (None, kMxfp4Dynamic, kMxfp8Dynamic)):

        def kernel(backend: str = backend, key: Any = key) -> str:
            with set_current_vllm_config(VllmConfig(kernel_config=KernelConfig(linear_backend=backend))):
                return type(init_mxfp4_linear_kernel(activation_quant_key=key)).__name__

        yield f"linear {backend} {key}", kernel


def moe_rows() -> Iterator[Row]:
    for backend, key, activation in itertools.product(
        MOE.split(), (None, kMxfp8Dynamic, kMxfp4Dynamic), (MoEActivation.SWIGLUOAI, MoEActivation.SILU)
    ):

        def experts(backend: str = backend, key: Any = key, activation: Any = activation) -> str:
            config = FusedMoEConfig(
                num_experts=128,
                experts_per_token=4,
                hidden_dim=2880,
                intermediate_size=2880,
                num_local_experts=128,
                num_logical_experts=128,
                activation=activation,
                device="cpu",
                routing_method=RoutingMethodType.Renormalize,
                moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
                in_dtype=torch.bfloat16,
                moe_backend=backend,
                has_bias=activation is MoEActivation.SWIGLUOAI,
            )
            asked = VllmConfig(kernel_config=KernelConfig(moe_backend=backend))
            asked.model_config = SimpleNamespace(quantization_config=None)
            with set_current_vllm_config(asked):
                chosen, cls = oracle.select_mxfp4_moe_backend(config, activation_key=key)
            return f"{chosen.name} {cls and cls.__name__}"

        yield f"moe {backend} {key} {activation.value}", experts


def size_rows() -> Iterator[Row]:
    for backend in oracle.Mxfp4MoeBackend:
        for hidden, intermediate in SIZES:
            ask = functools.partial(oracle.mxfp4_round_up_hidden_size_and_intermediate_size, backend, hidden, intermediate)
            yield f"sizes {backend.name} {hidden} {intermediate}", ask


def quantization_rows() -> Iterator[Row]:
    for field, value in itertools.product(("linear", "moe"), SPECS):

        def arguments(field: str = field, value: Any = value) -> str:
            return str(QuantizationConfigArgs(**{field: value})).replace(
                ", lm_head=None", ""
            )  # a field that the bare tree lacks

        yield f"arguments {field} {value}", arguments
    for value, (prefix, cls) in itertools.product(SPECS, PREFIXES.items()):
        for field in ({"linear": value}, {"targets": {"*": value}}):

            def method(field: dict[str, Any] = field, prefix: str = prefix, cls: type = cls) -> object:
                found = OnlineQuantizationConfig(QuantizationConfigArgs(**field)).resolve_quant_method_cls(cls, prefix)
                return found and found[-1].__name__

            yield f"method {next(iter(field))} {value} {prefix}", method


def attention_rows(platform: Any) -> Iterator[Row]:
    for name, dtype, size, sinks, xqa in itertools.product(
        BACKENDS, ("auto", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4"), (64, 128, 512), (False, True), (None, False)
    ):

        def backend(
            name: str | None = name, dtype: str = dtype, size: int = size, sinks: bool = sinks, xqa: bool | None = xqa
        ) -> str:
            asked = AttentionSelectorConfig(
                head_size=size,
                dtype=torch.bfloat16,
                kv_cache_dtype=dtype,
                block_size=None,
                use_mla=False,
                has_sink=sinks,
                use_sparse=False,
                use_mm_prefix=False,
            )
            selected = None if name is None else AttentionBackendEnum[name]
            with set_current_vllm_config(VllmConfig(attention_config=AttentionConfig(use_trtllm_attention=xqa))):
                return platform.get_attn_backend_cls(selected, asked, 64).rsplit(".", 1)[1]

        yield f"attention {name} {dtype} {size} sinks={sinks} xqa={xqa}", backend


@pytest.mark.parametrize("network", [False, True])
def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], network: bool) -> None:
    """Print it, past pytest's capture."""
    for name in ("vllm._C_stable_libtorch", "vllm._C"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    cuda = importlib.import_module("vllm.platforms.cuda")
    monkeypatch.setattr(flashinfer_mxfp4, "has_flashinfer_cutedsl", lambda: True)
    monkeypatch.setattr(cutlass_moe, "has_flashinfer_cutlass_fused_moe", lambda: True)
    monkeypatch.setattr(flashinfer_utils, "has_nvidia_artifactory", lambda: network)
    lines = [f"{key}\t{answer(ask)}" for key, ask in (*size_rows(), *quantization_rows())]
    for gpu in GPUS:
        support.fake_gpu(monkeypatch, *gpu)
        flashinfer_utils.supports_trtllm_attention.cache_clear()
        capability = platforms.interface.DeviceCapability(*gpu)

        class Platform(cuda.CudaPlatformBase):
            @classmethod
            def get_device_capability(cls, device_id: int = 0, capability: Any = capability) -> Any:
                return capability

        rows = (*linear_rows(), *moe_rows(), *attention_rows(Platform))
        lines += [f"sm{gpu[0]}{gpu[1]} {key}\t{answer(ask)}" for key, ask in rows]
    flashinfer_utils.supports_trtllm_attention.cache_clear()
    assert len({line.partition("\t")[0] for line in lines}) == len(lines)
    with capsys.disabled():
        print("".join(f"\n{MARK}network={network} {line}" for line in (*lines, f"{ROWS}\t{len(lines)}")))
