# SPDX-License-Identifier: Apache-2.0
"""The series fp8-kv: which modules FlashInfer compiles for attention with sinks.

The wrapper and the generator of sources are the upstream's own; they run up to the call of the compiler, which is
where `asked_for` stops them.
"""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import support
import torch

with support.quiet():
    from flashinfer.attention import BatchAttentionWithAttentionSinkWrapper
    from flashinfer.jit import env as jit_env
    from flashinfer.jit.core import JitSpec
    from flashinfer.jit.xqa import gen_xqa_module

URI = "flashinfer/name-every-compile-time-parameter-in-the-sink-uri.patch"
XQA = "flashinfer/refuse-kv-cache-dtypes-that-xqa-cannot-read.patch"

PROVES = {
    URI: [
        "test_kv_dtypes_have_modules_of_their_own",
        "test_head_dimensions_have_modules_of_their_own",
        "test_every_compiled_in_parameter_counts",
        "test_a_second_kv_dtype_leaves_the_first_ones_sources_alone",
    ],
    XQA: ["test_xqa_refuses_what_it_cannot_read"],
}
# Of the six modules of tests in the source archive, the one about where compiled modules are kept.
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")

Asked = Callable[..., JitSpec]


class CompilerCalledError(Exception):
    """Carries what would be compiled."""


@pytest.fixture(name="asked_for")
def _asked_for(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Make a wrapper and return the module that it wants to be compiled."""

    def stop(spec: JitSpec) -> None:
        raise CompilerCalledError(spec)

    monkeypatch.setattr(JitSpec, "build_and_load", stop)
    # Building a wheel copies this folder into the package; a source tree has it beside the package.
    monkeypatch.setattr(jit_env, "FLASHINFER_CSRC_DIR", Path(jit_env.__file__).parents[2] / "csrc")

    def asked_for(**parameters: Any) -> JitSpec:
        with pytest.raises(CompilerCalledError) as caught:
            BatchAttentionWithAttentionSinkWrapper(torch.empty(128, dtype=torch.uint8), backend="fa2", **parameters)
        return caught.value.args[0]

    return asked_for


# gpt-oss on a GB10: heads of 64, BF16 queries
GPT_OSS = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16, "head_dim_qk": 64, "head_dim_vo": 64}
OTHERS = [
    {"q_data_type": torch.float16},
    {"kv_data_type": torch.float8_e4m3fn},
    {"kv_data_type": torch.float8_e5m2},
    {"head_dim_qk": 128},
    {"head_dim_vo": 128},
    {"window_left": 127},
    {"use_fp16_qk_reduction": True},
    {"pos_encoding_mode": "ROPE_LLAMA"},
]


def generated(spec: JitSpec) -> dict[str, str]:
    """The files of the module's folder: sources, and the configuration that they include."""
    (folder,) = {Path(source).parent for source in spec.sources}
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_kv_dtypes_have_modules_of_their_own(asked_for: Asked) -> None:
    """name-every-compile-time-parameter-in-the-sink-uri.patch: BF16 and FP8 KV caches do not share a build folder."""
    names = {asked_for(**GPT_OSS | {"kv_data_type": kv}).name for kv in (torch.bfloat16, torch.float8_e4m3fn)}
    assert len(names) == 2


def test_head_dimensions_have_modules_of_their_own(asked_for: Asked) -> None:
    """name-every-compile-time-parameter-in-the-sink-uri.patch: nor do heads of 64 and of 128."""
    names = {asked_for(**GPT_OSS | {"head_dim_qk": qk, "head_dim_vo": vo}).name for qk, vo in ((64, 64), (128, 64), (128, 128))}
    assert len(names) == 3


def test_every_compiled_in_parameter_counts(asked_for: Asked) -> None:
    """name-every-compile-time-parameter-in-the-sink-uri.patch: modules with different sources have different names."""
    found = [(spec.name, generated(spec)) for other in ({}, *OTHERS) for spec in [asked_for(**GPT_OSS | other)]]
    for (name, text), (other_name, other_text) in combinations(found, 2):
        assert text != other_text
        assert name != other_name


def test_a_second_kv_dtype_leaves_the_first_ones_sources_alone(asked_for: Asked) -> None:
    """name-every-compile-time-parameter-in-the-sink-uri.patch: so changing the KV cache's dtype rebuilds nothing."""
    bf16 = asked_for(**GPT_OSS)
    before = generated(bf16)
    asked_for(**GPT_OSS | {"kv_data_type": torch.float8_e4m3fn})
    assert generated(bf16) == before


@pytest.mark.parametrize("other", [{}, *OTHERS])
def test_equal_parameters_share_a_module(asked_for: Asked, other: dict[str, Any]) -> None:
    """name-every-compile-time-parameter-in-the-sink-uri.patch: the name depends on nothing else, and is a good one."""
    first, second = asked_for(**GPT_OSS | other), asked_for(**GPT_OSS | other)
    assert first.name == second.name
    assert first.name.isidentifier()  # it becomes part of the name of a torch operator
    assert len(f"{first.name}.so") < 200  # and of files


def test_the_window_does_not_count_by_its_size(asked_for: Asked) -> None:
    """name-every-compile-time-parameter-in-the-sink-uri.patch: what is a run-time parameter causes no new module."""
    assert asked_for(**GPT_OSS, window_left=127).name == asked_for(**GPT_OSS, window_left=1023).name


# XQA, which decodes on SM90 and SM12x


def elements(kv: torch.dtype, query: torch.dtype = torch.bfloat16) -> str:
    """The flag that says how XQA's kernels read the cache."""
    spec = gen_xqa_module(query, kv, page_size=16, head_dim=64, head_group_ratio=8, use_sliding_window=True, output_dtype=query)
    (flag,) = [flag for flag in spec.extra_cuda_cflags if "CACHE_ELEM_ENUM" in flag]
    return flag


@pytest.mark.parametrize("kv", [torch.float8_e5m2, torch.float16, torch.float32])
def test_xqa_refuses_what_it_cannot_read(kv: torch.dtype) -> None:
    """refuse-kv-cache-dtypes-that-xqa-cannot-read.patch: it is not compiled for another element instead."""
    with pytest.raises(ValueError, match=f"Invalid KV cache dtype: {kv} for XQA"):
        elements(kv)


def test_xqa_reads_what_it_did() -> None:
    """refuse-kv-cache-dtypes-that-xqa-cannot-read.patch: four kinds of elements, as mha.h numbers them."""
    kinds = [torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.uint8]
    assert [elements(kv) for kv in kinds] == [f"-DCACHE_ELEM_ENUM={number}" for number in range(4)]
    assert elements(torch.float16, torch.float16) == elements(torch.bfloat16)
