# SPDX-License-Identifier: Apache-2.0
"""The GPU machines that archives are made for: their software, and the parts of the wheels that they need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stack.base.errors import StackError


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of machine. `gpu` is 90 for compute capability 9.0.

    `python` is its CPython. `torch` is the oldest torch with which vLLM's libraries load (they use that release's stable ABI), and
    `cuda` the CUDA release that torch is built for. `left_out` are patterns of files that are not packed, because a text server does
    not load them, or they are for other GPUs. `kernels` maps a library to a pattern of kernel names; only images with such a kernel
    are packed. `limit`: bytes of the largest archive. `emulates`: it also carries kernels for SM120, compiled for this GPU.
    `share` of the memory is a server's; `environment` is its own; it has `patience` seconds to answer.
    """

    name: str
    gpu: int
    python: tuple[int, int]
    torch: tuple[int, int]
    cuda: int
    platform: str
    requirements: str
    left_out: tuple[str, ...] = ()
    kernels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    limit: int = 60_000_000
    emulates: bool = False
    share: float = 0.9
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    patience: float = 480.0

    @property
    def capability(self) -> str:
        """Its compute capability, such as 9.0."""
        return f"{self.gpu // 10}.{self.gpu % 10}"


_ELSEWHERE = (
    # vLLM: its launcher in Rust; FlashAttention 2, which no GPU since Hopper uses; attention and GEMMs of other models and GPUs. Of these,
    # DeepGEMM and QuTLASS do not load either with a torch older than the wheel's own.
    "vllm/vllm-rs",
    "vllm/_deepselect_C*",
    "vllm/_flashkda_C*",
    "vllm/_flashmla*",
    "vllm/_qutlass_C*",
    "vllm/third_party/deep_gemm/*",
    "vllm/third_party/fmha_sm100/*",
    "vllm/vllm_flash_attn/_vllm_fa2_C*",
    # FlashInfer: sources of kernels for other GPUs and models, which are not compiled here.
    "flashinfer/data/cutlass/examples/*",
    "flashinfer/data/cutlass/test/*",
    "flashinfer/data/csrc/blackwell_msa/*",
    "flashinfer/data/csrc/cake_*",
    "flashinfer/data/csrc/dcp/*",
    "flashinfer/data/csrc/gdn/*",
    "flashinfer/data/csrc/kda/*",
    "flashinfer/experimental/cake_*/csrc/*",
    "flashinfer/experimental/sm110_*/csrc/*",
    "flashinfer/moe_ep/*",
    "flashinfer/prims_ts/*",
    # The tokenizers of other models, and countries' names in other languages.
    "mistral_common/data/*",
    "pycountry/locales/*",
    # Type stubs, and headers for compiling against a package.
    "*.pyi",
    "tvm_ffi/3rdparty/*",
)

SM90 = Target(
    name="sm90",
    gpu=90,
    python=(3, 12),
    torch=(2, 11),
    cuda=13,
    platform="x86_64",
    requirements="requirements-sm90.txt",
    left_out=_ELSEWHERE,
    # gpt-oss has heads of 64 in bfloat16. The two other kernels prepare and combine the work.
    kernels=MappingProxyType(
        {
            "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": (
                "ILi64EEEEEELi64ENS_10bfloat16_t|FlashAttnFwdCombine|prepare_varlen_num_blocks"
            )
        }
    ),
    # It is copied like a working tree, over slow connections.
    limit=60_000_000,
    emulates=True,
    # With 0.85 of 80 GB, upstream's padded experts left 0.45 GB too little for a cache.
    share=0.9,
    # 120 to 302 seconds were measured, depending on the host.
    patience=480.0,
)
SM121 = Target(
    name="sm121",
    gpu=121,
    # DGX OS 7 is an Ubuntu 24.04.
    python=(3, 12),
    torch=(2, 11),
    cuda=13,
    platform="aarch64",
    requirements="requirements-sm121.txt",
    # FlashAttention 3 is for SM90 only.
    left_out=(*_ELSEWHERE, "vllm/vllm_flash_attn/_vllm_fa3_C*"),
    # An owner downloads it once, beside a model of 65 GB.
    limit=500_000_000,
    # As the recipes for one Spark.
    share=0.7,
    environment=MappingProxyType({"FLASHINFER_CUDA_ARCH_LIST": "12.1a", "MAX_JOBS": "2"}),
    # CUTLASS's experts took 43 minutes to compile in another image (spark-arena/recipe-registry issue 17), with more compilers at once.
    patience=3 * 3600.0,
)
TARGETS = {target.name: target for target in (SM90, SM121)}


def named(name: str) -> Target:
    """Find the target of that name.

    Raises:
        StackError: there is no such target.

    """
    if name not in TARGETS:
        raise StackError(f"no archive can be made for {name!r}", f"known: {', '.join(TARGETS)}")
    return TARGETS[name]
