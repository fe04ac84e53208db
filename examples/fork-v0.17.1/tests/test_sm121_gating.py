# SPDX-License-Identifier: Apache-2.0
"""The series sm121-gating in vLLM: what is selected and built for SM120 and SM121.

The fake ends at the platform's compute capability and at the question whether FlashInfer is installed; selection is the
upstream's own, and so are the CMake functions, which CMake itself runs. The tests that prove a patch know how later
releases spell what they ask for, so that they pass there once upstream does the same.
"""

import functools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gpt_oss_moe
import pytest
import support
import torch

with support.quiet():
    import vllm.model_executor.layers.quantization.mxfp4 as mxfp4
    from vllm import envs
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.quantization.utils.marlin_utils import get_marlin_input_dtype

FP8_INPUT = "vllm/accept-fp8-input-for-marlin-on-sm121.patch"
CUTLASS_MOE = "vllm/offer-the-mxfp4-mxfp8-cutlass-moe-on-sm12x.patch"
MARLIN_BUILD = "vllm/build-marlin-for-sm12x-instead-of-ptx-of-older-devices.patch"

PROVES = {
    FP8_INPUT: ["test_sm12x_takes_fp8_input"],
    CUTLASS_MOE: ["test_sm12x_runs_the_cutlass_moe_where_asked_for"],
    MARLIN_BUILD: ["test_marlin_is_built_for_sm12x"],
}

pytestmark = pytest.mark.filterwarnings("ignore")

SM12X = [(12, 0), (12, 1)]

Gpu = Callable[[int, int], None]


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A CUDA platform on which FlashInfer is installed and triton_kernels is not."""
    monkeypatch.setattr(mxfp4, "has_flashinfer", lambda: True, raising=False)
    monkeypatch.setattr(mxfp4, "has_triton_kernels", lambda: False, raising=False)
    return functools.partial(support.fake_gpu, monkeypatch)


# Marlin's input


def input_dtype() -> torch.dtype | None:
    with set_current_vllm_config(VllmConfig()):
        return get_marlin_input_dtype()


@pytest.mark.parametrize("capability", [*SM12X, (8, 9)])
def test_sm12x_takes_fp8_input(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    """accept-fp8-input-for-marlin-on-sm121.patch: 12.1 as well as 12.0 and 8.9."""
    gpu(*capability)
    monkeypatch.setenv("VLLM_MARLIN_INPUT_DTYPE", "fp8")
    assert input_dtype() is torch.float8_e4m3fn


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (10, 0), (11, 0)])
def test_other_devices_still_refuse_fp8_input(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    """accept-fp8-input-for-marlin-on-sm121.patch: no other device is admitted."""
    gpu(*capability)
    monkeypatch.setenv("VLLM_MARLIN_INPUT_DTYPE", "fp8")
    with pytest.raises(ValueError, match="W4A8-FP8 only support"):
        input_dtype()


def test_no_input_dtype_is_no_error(gpu: Gpu) -> None:
    """accept-fp8-input-for-marlin-on-sm121.patch: the default stays W4A16."""
    gpu(12, 1)
    assert input_dtype() is None


# The MoE

ASKED = "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS"


def cutlass_moe_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> str:
    """What is selected by whoever asks for the CUTLASS MoE with MXFP8 activations: by the variable, and where it is gone, the option."""
    monkeypatch.setenv(ASKED, "1")
    if not gpt_oss_moe.HAS_ORACLE:
        return mxfp4.get_mxfp4_backend(False).name
    gpt_oss_moe.install(monkeypatch, flashinfer=True, triton_kernels=False)
    line = [] if ASKED in envs.environment_variables else gpt_oss_moe.asking_for("flashinfer_cutlass", mxfp8=True)
    with gpt_oss_moe.method(*line) as method:
        return method.mxfp4_backend.name


@pytest.mark.parametrize("capability", [*SM12X, (10, 0)])
def test_sm12x_runs_the_cutlass_moe_where_asked_for(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]
) -> None:
    """offer-the-mxfp4-mxfp8-cutlass-moe-on-sm12x.patch: what can be had on SM100 can be had on SM12x."""
    gpu(*capability)
    name = "SM100_FI_MXFP4_MXFP8_CUTLASS"
    assert cutlass_moe_where_asked_for(monkeypatch) in (name, gpt_oss_moe.LATER_NAMES[name])


@pytest.mark.parametrize("capability", SM12X)
@pytest.mark.parametrize(
    "value",
    [None, "0"],
)
def test_sm12x_runs_marlin_by_default(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], value: str | None
) -> None:
    """offer-the-mxfp4-mxfp8-cutlass-moe-on-sm12x.patch: nobody is switched over."""
    gpu(*capability)
    if value is not None:
        monkeypatch.setenv(ASKED, value)
    assert mxfp4.get_mxfp4_backend(False).name == "MARLIN"


@pytest.mark.parametrize("name", ["VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "VLLM_USE_FLASHINFER_MOE_MXFP4_BF16"])
def test_kernels_of_other_devices_stay_there(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """offer-the-mxfp4-mxfp8-cutlass-moe-on-sm12x.patch: TRTLLM's are for SM100, the BF16 ones for SM90."""
    gpu(12, 1)
    monkeypatch.setenv(name, "1")
    assert mxfp4.get_mxfp4_backend(False).name == "MARLIN"


def test_the_cutlass_moe_needs_flashinfer_and_no_lora(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """offer-the-mxfp4-mxfp8-cutlass-moe-on-sm12x.patch: the other conditions count as before."""
    gpu(12, 1)
    monkeypatch.setenv(ASKED, "1")
    assert mxfp4.get_mxfp4_backend(True).name == "MARLIN"
    monkeypatch.setattr(mxfp4, "has_flashinfer", lambda: False)
    assert mxfp4.get_mxfp4_backend(False).name == "MARLIN"


# The build

CALL = re.compile(r"cuda_archs_loose_intersection\(\s*(MARLIN_\w+)\s+\"[^\"]*\"\s+\"\$\{CUDA_ARCHS\}\"\s*\)")
SUPPORTED = re.compile(r"set\(CUDA_SUPPORTED_ARCHS \"([^\"]*)\"\)")


@functools.cache
def marlin_archs(devices: str) -> dict[str, list[str]]:
    """What vLLM's CMake compiles each group of Marlin's sources for, in a build for these devices with CUDA 13.

    Where releases distinguish versions of CUDA, the newest comes first.
    """
    text = (support.TREE / "CMakeLists.txt").read_text()
    calls = list({call[1]: call for call in reversed([*CALL.finditer(text)])}.values())
    assert len(calls) >= 8, "CMakeLists.txt spells it otherwise"
    script = Path(support._folder.name, f"archs-{devices}.cmake")
    script.write_text(
        f"include({support.TREE / 'cmake/utils.cmake'})\n"
        f'cuda_archs_loose_intersection(CUDA_ARCHS "{SUPPORTED.search(text)[1]}" "{devices}")\n'
        + "".join(f'{call[0]}\nmessage("{call[1]}=${{{call[1]}}}")\n' for call in calls)
    )
    cmake = Path(sys.executable).with_name("cmake")
    done = subprocess.run([cmake, "-P", script], capture_output=True, text=True, check=True)
    return {name: archs.split(";") for name, _, archs in (line.partition("=") for line in done.stderr.splitlines())}


KERNELS = ["MARLIN_ARCHS", "MARLIN_BF16_ARCHS", "MARLIN_FP8_ARCHS", "MARLIN_MOE_ARCHS", "MARLIN_MOE_FP8_ARCHS"]
REPACKING = ["MARLIN_OTHER_ARCHS", "MARLIN_MOE_OTHER_ARCHS"]


@pytest.mark.parametrize("devices", ["12.0", "12.1", "12.1a", "8.0;9.0;10.0;12.0"])
@pytest.mark.parametrize("name", KERNELS)
def test_marlin_is_built_for_sm12x(name: str, devices: str) -> None:
    """build-marlin-for-sm12x-instead-of-ptx-of-older-devices.patch: code that SM121 runs as it is, for every GEMM."""
    native = [arch for arch in marlin_archs(devices)[name] if arch.startswith("12.")]
    assert native
    assert "12.0a" not in native  # runs on 12.0 and nowhere else


@pytest.mark.parametrize("name", REPACKING)
def test_repacking_is_built_for_sm12x(name: str) -> None:
    """build-marlin-for-sm12x-instead-of-ptx-of-older-devices.patch: and for what prepares weights at load."""
    assert marlin_archs("12.1")[name] == ["12.0"]


@pytest.mark.parametrize("name", [*KERNELS, *REPACKING])
def test_builds_for_sm12x_alone_have_nothing_else(name: str) -> None:
    """build-marlin-for-sm12x-instead-of-ptx-of-older-devices.patch: it costs no second build."""
    assert len(marlin_archs("12.1")[name]) == 1


def test_builds_for_other_devices_stay() -> None:
    """build-marlin-for-sm12x-instead-of-ptx-of-older-devices.patch: nothing is built that was not."""
    assert marlin_archs("8.0;8.9;9.0;10.0") == {
        "MARLIN_ARCHS": ["8.0+PTX"],
        "MARLIN_SM75_ARCHS": [""],
        "MARLIN_BF16_ARCHS": ["8.0+PTX", "9.0+PTX"],
        "MARLIN_FP8_ARCHS": ["8.9"],
        "MARLIN_OTHER_ARCHS": ["8.0+PTX"],
        "MARLIN_MOE_ARCHS": ["8.0+PTX"],
        "MARLIN_MOE_SM75_ARCHS": [""],
        "MARLIN_MOE_FP8_ARCHS": ["8.9"],
        "MARLIN_MOE_OTHER_ARCHS": ["8.0+PTX"],
    }
