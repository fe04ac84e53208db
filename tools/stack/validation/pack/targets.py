# SPDX-License-Identifier: Apache-2.0
"""The GPU machines that an archive is made for: what they bring, and what of the wheels they need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from stack.base.errors import StackError


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of machine. `gpu` is 90 for compute capability 9.0.

    `python` is its CPython; `torch` the oldest torch that vLLM's libraries load with (they use the stable ABI of that
    release) and `cuda` the CUDA release that torch is built for. `left_out` are patterns of files of the wheels that are not
    packed: what a server of text does not load, and what is for other GPUs. `kernels` names the images of a library that are
    packed, by a pattern of kernel names, where not all are needed.
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

    @property
    def capability(self) -> str:
        """Its compute capability, as in 9.0."""
        return f"{self.gpu // 10}.{self.gpu % 10}"


_ELSEWHERE = (
    # Of vLLM: its launcher in Rust; FlashAttention 2, which no GPU since Hopper is given; attention and GEMMs of other models and
    # GPUs, of which DeepGEMM and QuTLASS do not load with a torch older than the wheel's own, either.
    "vllm/vllm-rs",
    "vllm/_deepselect_C*",
    "vllm/_flashkda_C*",
    "vllm/_flashmla*",
    "vllm/_qutlass_C*",
    "vllm/third_party/deep_gemm/*",
    "vllm/third_party/fmha_sm100/*",
    "vllm/vllm_flash_attn/_vllm_fa2_C*",
    # Of FlashInfer: sources of kernels for other GPUs and models, which nothing here compiles.
    "flashinfer/data/cutlass/examples/*",
    "flashinfer/data/cutlass/test/*",
    "flashinfer/data/csrc/blackwell_msa/*",
    "flashinfer/data/csrc/cake_*",
    "flashinfer/data/csrc/dcp/*",
    "flashinfer/data/csrc/gdn/*",
    "flashinfer/data/csrc/kda/*",
    "flashinfer/experimental/*",
    "flashinfer/moe_ep/*",
    "flashinfer/prims_ts/*",
    # The tokenizers of other models, and countries' names in other languages.
    "mistral_common/data/*",
    "pycountry/locales/*",
    # Scripts, and what only those read who compile against a package.
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
    # gpt-oss: heads of 64 in bfloat16; the two others prepare and join what these compute.
    kernels=MappingProxyType(
        {
            "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": (
                "ILi64EEEEEELi64ENS_10bfloat16_t|FlashAttnFwdCombine|prepare_varlen_num_blocks"
            )
        }
    ),
)
TARGETS = {one.name: one for one in (SM90,)}


def named(name: str) -> Target:
    """The target of that name.

    Raises:
        StackError: there is none.

    """
    if name not in TARGETS:
        raise StackError(f"no archive can be made for {name!r}", f"known: {', '.join(TARGETS)}")
    return TARGETS[name]
