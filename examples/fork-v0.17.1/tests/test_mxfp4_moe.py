# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe: which kernels run the MXFP4 MoE of gpt-oss, and how large its weights are.

The fake ends at the platform's compute capability and at the question what is installed; command line, configuration,
selection and the making of weights are the upstream's own. The tests that prove a patch know how later releases spell
what they ask for.
"""

import functools
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import gpt_oss_moe
import pytest
import support
import torch

with support.quiet():
    import vllm.model_executor.layers.quantization.mxfp4 as mxfp4
    from vllm.config import DeviceConfig, KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.fused_moe.config import FusedMoEParallelConfig

PADDING = "vllm/pad-the-hidden-size-to-128-for-marlin-s-mxfp4-moe.patch"
SWITCH = "vllm/let-moe-backend-choose-the-mxfp4-moe.patch"

PROVES = {
    PADDING: ["test_marlin_pads_the_hidden_size_to_128", "test_marlin_weights_of_gpt_oss"],
    SWITCH: ["test_the_option_chooses_the_kernels", "test_nothing_takes_the_place_of_what_cannot_run"],
}

pytestmark = pytest.mark.filterwarnings("ignore")

GPT_OSS = 2880  # hidden and intermediate size
MARLIN = "marlin" if gpt_oss_moe.HAS_ORACLE else "auto"  # with an oracle it is not the default everywhere

Gpu = Callable[[int, int], None]


def installed(monkeypatch: pytest.MonkeyPatch, **packages: bool) -> None:
    """What is installed, for each module that asks."""
    if gpt_oss_moe.HAS_ORACLE:
        gpt_oss_moe.install(monkeypatch, **{"flashinfer": True, "triton_kernels": False} | packages)
        return
    choice = "vllm.model_executor.layers.quantization.utils.mxfp4_moe_choice"
    for package, there in packages.items():
        monkeypatch.setattr(mxfp4, f"has_{package}", lambda there=there: there)
        if (support.TREE / choice.replace(".", "/")).with_suffix(".py").exists():
            monkeypatch.setattr(f"{choice}.has_{package}", lambda there=there: there)


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A CUDA platform on which FlashInfer is installed and triton_kernels is not."""
    installed(monkeypatch, flashinfer=True, triton_kernels=False)
    return functools.partial(support.fake_gpu, monkeypatch)


def in_force(moe_backend: str) -> Iterator[None]:
    config = VllmConfig(device_config=DeviceConfig(device="cpu"), kernel_config=KernelConfig(moe_backend=moe_backend))
    return set_current_vllm_config(config)


def backend(moe_backend: str = "auto", *, lora: bool = False, mxfp8: bool = False) -> str:
    line = gpt_oss_moe.asking_for(moe_backend, mxfp8=mxfp8)
    if gpt_oss_moe.HAS_ORACLE:
        with gpt_oss_moe.method(*line) as method:
            return method.mxfp4_backend.name
    with in_force(gpt_oss_moe.parsed(*line).moe_backend):
        return mxfp4.get_mxfp4_backend(lora).name


def hidden_size(size: int, moe_backend: str = "auto") -> int:
    parallel = FusedMoEParallelConfig.make_no_parallel()
    if gpt_oss_moe.HAS_ORACLE:
        with gpt_oss_moe.method(*gpt_oss_moe.asking_for(moe_backend)) as method:
            return method.maybe_roundup_sizes(size, GPT_OSS, torch.bfloat16, parallel)[0]
    from vllm.model_executor.layers.fused_moe.layer import maybe_roundup_hidden_size

    with in_force(moe_backend):
        return maybe_roundup_hidden_size(
            hidden_size=size,
            act_dtype=torch.bfloat16,
            moe_parallel_config=parallel,
            is_lora_enabled=False,
            model_type="gpt_oss",
            is_mxfp4_quant=True,
        )


# Padding


@pytest.mark.parametrize("capability", [(8, 0), (9, 0), (12, 1)])
@pytest.mark.parametrize(("size", "padded"), [(2880, 2944), (2944, 2944), (3072, 3072), (64, 128)])
def test_marlin_pads_the_hidden_size_to_128(gpu: Gpu, capability: tuple[int, int], size: int, padded: int) -> None:
    """pad-the-hidden-size-to-128-for-marlin-s-mxfp4-moe.patch: where the layer is made."""
    gpu(*capability)
    assert backend(MARLIN) == "MARLIN"
    assert hidden_size(size, MARLIN) == padded


def weights(hidden: int, intermediate: int) -> dict[str, torch.Size]:
    """The shapes of what a Marlin layer of this size holds."""
    layer = torch.nn.Module()
    if gpt_oss_moe.HAS_ORACLE:
        with gpt_oss_moe.method(*gpt_oss_moe.asking_for(MARLIN)) as method:
            parallel = FusedMoEParallelConfig.make_no_parallel()
            sizes = method.maybe_roundup_sizes(hidden, intermediate, torch.bfloat16, parallel)
            method.create_weights(layer, 1, *sizes, torch.bfloat16)
        return {name: parameter.shape[1:] for name, parameter in layer.named_parameters()}
    with in_force("auto"):
        moe = SimpleNamespace(is_lora_enabled=False, has_bias=True, moe_backend="auto")
        method = mxfp4.Mxfp4MoEMethod(moe)
        method.create_weights(layer, 1, hidden, intermediate, torch.bfloat16)
    assert (layer.hidden_size, layer.intermediate_size_per_partition) == (method.hidden_size, method.intermediate_size)
    return {name: parameter.shape[1:] for name, parameter in layer.named_parameters()}


def test_marlin_weights_of_gpt_oss(gpu: Gpu) -> None:
    """pad-the-hidden-size-to-128-for-marlin-s-mxfp4-moe.patch: and where its weights are."""
    gpu(12, 1)
    assert weights(GPT_OSS, GPT_OSS) == {
        "w13_weight": (5888, 1472),
        "w13_weight_scale": (5888, 92),
        "w13_bias": (5888,),
        "w2_weight": (2944, 1472),
        "w2_weight_scale": (2944, 92),
        "w2_bias": (2944,),
    }


TILES = re.compile(r"\{(\d+), (\d+), (\d+)\}")


@pytest.mark.parametrize("batch", ["small", "large"])
@pytest.mark.parametrize("intermediate", [2880, 1440, 720])  # on one, two and four devices
def test_the_kernels_have_tiles_for_these_shapes(gpu: Gpu, batch: str, intermediate: int) -> None:
    """pad-the-hidden-size-to-128-for-marlin-s-mxfp4-moe.patch: by the tiles that the kernels' own source names."""
    gpu(12, 1)
    source = (support.TREE / "csrc/moe/marlin_moe_wna16/ops.cu").read_text()
    (table,) = re.findall(rf"{batch}_batch_thread_configs\[\] = \{{(.*?)\}};", source, re.DOTALL)
    tiles = [(int(k), int(n)) for k, n, _ in TILES.findall(table)]
    assert len(tiles) == 3
    shapes = weights(GPT_OSS, intermediate)
    for name in ("w13", "w2"):
        n, k = shapes[f"{name}_weight"][0], shapes[f"{name}_weight"][1] * 2
        fitting = [tile for tile in tiles if k % tile[0] == 0 and n % tile[1] == 0]
        assert fitting == tiles if batch == "small" else len(fitting) >= 2


@pytest.mark.parametrize(("capability", "name"), [((9, 0), "BF16"), ((10, 0), "MXFP8"), ((10, 0), "MXFP8_CUTLASS")])
def test_other_backends_pad_as_before(gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], name: str) -> None:
    """pad-the-hidden-size-to-128-for-marlin-s-mxfp4-moe.patch: nothing else changes."""
    gpu(*capability)
    monkeypatch.setenv(f"VLLM_USE_FLASHINFER_MOE_MXFP4_{name}", "1")
    assert backend() != "MARLIN"
    assert hidden_size(GPT_OSS) == (3072 if name == "MXFP8" else 2944)


# The switch

CHOICES = [
    ("flashinfer_cutlass", (9, 0), "SM90_FI_MXFP4_BF16"),
    ("flashinfer_cutlass", (10, 0), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
    ("flashinfer_cutlass", (12, 0), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
    ("flashinfer_cutlass", (12, 1), "SM100_FI_MXFP4_MXFP8_CUTLASS"),
    ("flashinfer_trtllm", (10, 3), "SM100_FI_MXFP4_BF16"),
    ("marlin", (10, 0), "MARLIN"),
    ("marlin", (12, 1), "MARLIN"),
    ("triton", (9, 0), "TRITON"),
]


@pytest.mark.parametrize(("name", "capability", "expected"), CHOICES)
def test_the_option_chooses_the_kernels(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int], expected: str
) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: from the command line to the backend."""
    gpu(*capability)
    installed(monkeypatch, triton_kernels=True)
    monkeypatch.setenv("VLLM_MXFP4_USE_MARLIN", "0" if name == "marlin" else "1")
    expected = gpt_oss_moe.LATER_NAMES.get(expected, expected) if gpt_oss_moe.HAS_ORACLE else expected
    assert backend(name, mxfp8="MXFP8" in expected) == expected


REFUSED = [
    ("flashinfer_cutlass", (8, 0), "FlashInfer has no such kernels for 8.0"),
    ("flashinfer_trtllm", (12, 1), "FlashInfer has no such kernels for 12.1"),
    ("flashinfer_trtllm", (9, 0), "FlashInfer has no such kernels for 9.0"),
    ("triton", (12, 1), "triton_kernels has no support for 12.1"),
    ("triton", (8, 0), "triton_kernels has no support for 8.0"),
]


@pytest.mark.parametrize(
    ("name", "capability"),
    [("flashinfer_cutlass", (8, 0)), ("flashinfer_trtllm", (12, 1)), ("flashinfer_trtllm", (9, 0)), ("triton", (8, 0))],
)
def test_nothing_takes_the_place_of_what_cannot_run(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int]
) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: an error, in whatever words."""
    gpu(*capability)
    installed(monkeypatch, triton_kernels=True)
    with pytest.raises(ValueError, match=r"cannot run|does not support"):
        backend(name, mxfp8=name == "flashinfer_cutlass")


@pytest.mark.parametrize(("name", "capability", "reason"), REFUSED)
def test_what_cannot_run_is_refused(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int], reason: str
) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: an error that says why, instead of another backend."""
    gpu(*capability)
    installed(monkeypatch, triton_kernels=True)
    with pytest.raises(ValueError, match=f"moe_backend='{name}' cannot run MXFP4 MoE: {re.escape(reason)}"):
        backend(name)


@pytest.mark.parametrize(
    ("name", "missing", "lora", "reason"),
    [
        ("flashinfer_cutlass", "flashinfer", False, "not installed"),
        ("flashinfer_cutlass", None, True, "LoRA"),
        ("triton", "triton_kernels", False, "not installed"),
    ],
)
def test_what_is_missing_is_said(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, name: str, missing: str | None, lora: bool, reason: str
) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: also where a package or a feature is what is missing."""
    gpu(9, 0)
    installed(monkeypatch, triton_kernels=True)
    if missing is not None:
        installed(monkeypatch, **{missing: False})
    with pytest.raises(ValueError, match=reason):
        backend(name, lora=lora)


@pytest.mark.parametrize("name", ["deep_gemm", "cutlass", "flashinfer_cutedsl", "aiter"])
def test_other_kernels_are_refused(gpu: Gpu, name: str) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: in the words of the other weight formats."""
    gpu(12, 1)
    with pytest.raises(ValueError, match=f"moe_backend='{name}' is not supported for MXFP4 MoE. Expected one of"):
        backend(name)


def test_the_option_counts_more_than_the_variables(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: the more explicit of the two wins."""
    gpu(12, 1)
    monkeypatch.setenv("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS", "1")
    assert backend("marlin") == "MARLIN"
    gpu(10, 0)
    monkeypatch.setenv("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "1")
    assert backend("flashinfer_trtllm") == "SM100_FI_MXFP4_MXFP8_TRTLLM"


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((8, 0), "MARLIN"), ((9, 0), "MARLIN"), ((10, 0), "SM100_FI_MXFP4_BF16"), ((12, 1), "MARLIN")],
)
def test_without_the_option_nothing_changes(gpu: Gpu, capability: tuple[int, int], expected: str) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: the default is vLLM's choice, also where no configuration is in force."""
    gpu(*capability)
    assert backend() == expected
    assert mxfp4.get_mxfp4_backend(False).name == expected


def test_the_padding_follows_the_option(gpu: Gpu) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: the layer is padded for the kernels that are chosen."""
    gpu(10, 0)
    assert hidden_size(GPT_OSS, "flashinfer_trtllm") == 3072
    assert hidden_size(GPT_OSS, "flashinfer_cutlass") == 2944


def test_other_platforms_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """let-moe-backend-choose-the-mxfp4-moe.patch: the option is for CUDA's backends."""
    assert backend("marlin") == "NONE"
