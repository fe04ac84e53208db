"""
Copyright (c) 2026 by FlashInfer team.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

  http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
"""

from . import env as jit_env
from .core import JitSpec, current_compilation_context, gen_jit_spec


def _gen_module(name: str) -> JitSpec:
    return gen_jit_spec(
        name,
        [jit_env.FLASHINFER_CSRC_DIR / f"{name}.cu"],
        extra_cuda_cflags=current_compilation_context.get_nvcc_flags_list(
            supported_major_versions=[8, 9, 10, 11, 12]
        ),
    )


def gen_mxfp4_moe_decode_module() -> JitSpec:
    """MXFP4 mixture of experts for up to 16 tokens, BF16 activations, SM80 and later."""
    return _gen_module("mxfp4_moe_decode")
