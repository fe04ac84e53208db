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

# JIT specifications of this package's modules. Sources and headers lie beside this file.

from pathlib import Path

from ...jit.core import JitSpec, current_compilation_context, gen_jit_spec

_HERE = Path(__file__).resolve().parent


def gen_mxfp4_decode_module(name: str) -> JitSpec:
    """The module of csrc/``name``.cu, for SM80 and later."""
    return gen_jit_spec(
        name,
        [_HERE / "csrc" / f"{name}.cu"],
        extra_cuda_cflags=current_compilation_context.get_nvcc_flags_list(
            supported_major_versions=[8, 9, 10, 11, 12]
        ),
        extra_include_paths=[_HERE / "include"],
    )
