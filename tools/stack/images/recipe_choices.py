# SPDX-License-Identifier: Apache-2.0
"""Choose for an image what its recipe needs: the GPU for which kernels are compiled, and the compiler."""

from stack.deploy import hardware
from stack.deploy.recipes import Recipe
from stack.images.system import System
from stack.proof.compiling import toolkit

_ARCHITECTURES, _JOBS = "FLASHINFER_CUDA_ARCH_LIST", "MAX_JOBS"
_COMPILER = "nvcc,nvvm,crt,cccl,cudart,cublas,curand,cusolver,cusparse,nvrtc,nvtx,profiler"
"""The parts of CUDA with which FlashInfer's JIT compiles: the compiler, and the headers that its sources include."""


def arguments(recipe: Recipe) -> dict[str, str]:
    """Return the Dockerfile's arguments that a recipe decides."""
    made = {"STACK_RECIPE": recipe.name}
    if recipe.hardware is not None:
        # With the suffix `a`: without it ptxas refuses instructions that only this GPU has.
        made["ARCHITECTURES"] = f"{hardware.load(recipe.hardware.name).capability}a"
    named = {"ARCHITECTURES": recipe.environment.get(_ARCHITECTURES), "JOBS": recipe.environment.get(_JOBS)}
    return made | {name: value for name, value in named.items() if value is not None}


def compiler(recipe: Recipe, system: System) -> tuple[str, ...]:
    """Return requirements for CUDA's compiler, if the recipe is for a GPU and the base image lacks the compiler."""
    if recipe.hardware is None or has_compiler(system):
        return ()
    return (f"cuda-toolkit[{_COMPILER}]=={toolkit.CUDA}.*",)


def has_compiler(system: System) -> bool:
    """Return whether a base image has CUDA's compiler as a package."""
    return any(name.startswith("cuda-nvcc-") for name in system.packages)
