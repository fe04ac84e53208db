# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-dense: the output head of an MXFP4 checkpoint, quantized while vLLM loads it, and its layers in decode.

Command line, configuration, model construction, weight loading and logits are the upstream's own and run on the CPU.
Two things need a GPU and are replaced: the quantizer, a Triton kernel, by `quantize` of mxfp4.py, which follows the OCP MX
specification (and equals that kernel bit for bit in Triton's interpreter); and the GEMM kernel, of which none exists
for the CPU, by `ReferenceKernel`, which registers by the upstream's extension point. FlashInfer's kernels for few tokens are
replaced by what flashinfer_decode.py says that they compute.
"""

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import flashinfer_decode
import pytest
import support
import torch
from flashinfer_decode import recorded
from gpt_oss import ATTENTION, configured, write_checkpoint
from mxfp4 import dequantize, quantize, rounded

with support.quiet():
    import vllm._custom_ops as custom_ops
    import vllm.model_executor.kernels.linear as linear_kernels
    import vllm.model_executor.layers.quantization.online.mxfp4 as online_mxfp4
    from vllm.config import VllmConfig
    from vllm.config.quantization import (
        ONLINE_QUANT_SHORTHAND_NAMES,
        QuantizationConfigArgs,
        resolve_quantization_config,
    )
    from vllm.model_executor.kernels.linear import MxFp4LinearKernel, MxFp4LinearLayerConfig, register_linear_kernel
    from vllm.model_executor.layers.linear import LinearBase, RowParallelLinear
    from vllm.model_executor.layers.quantization.mxfp4 import GptOssMxfp4Config
    from vllm.model_executor.layers.quantization.online.base import OnlineQuantizationConfig
    from vllm.model_executor.layers.quantization.online.mxfp4 import Mxfp4OnlineLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        UnquantizedEmbeddingMethod,
        VocabParallelEmbedding,
    )
    from vllm.model_executor.model_loader import get_model
    from vllm.model_executor.model_loader.reload import finalize_layerwise_processing
    from vllm.model_executor.models.gpt_oss import TransformerBlock
    from vllm.platforms import PlatformEnum

HEAD = "vllm/quantize-lm-head-at-load.patch"
GPT_OSS = "vllm/pass-the-quantization-config-to-gpt-oss-s-lm-head.patch"
FP8 = "vllm/accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch"
NONE = "vllm/accept-none-for-layers-left-alone-by-online-quantization.patch"
GEMV = "vllm/run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch"

PROVES = {
    HEAD: [
        "test_lm_head_takes_what_linear_takes",
        "test_lm_head_survives_the_merge_with_a_shorthand",
        "test_lm_head_resolves_to_the_online_method",
        "test_gpt_oss_loads_a_quantized_head",
        "test_a_shard_of_the_head_is_quantized",
        "test_lm_head_goes_with_targets",
        "tests/quantization/test_quantization_config_args.py::test_args_lm_head_takes_what_linear_takes",
        "tests/quantization/test_quantization_config_args.py::test_args_lm_head_needs_a_linear_recipe",
        "tests/quantization/test_quantization_config_args.py::test_resolve_keeps_lm_head_beside_a_shorthand",
        "tests/quantization/test_quantization_config_args.py::test_lm_head_resolves_to_the_linear_method",
        "tests/quantization/test_quantization_config_args.py::test_lm_head_does_not_quantize_input_embeddings",
    ],
    GPT_OSS: [
        "test_gpt_oss_loads_a_quantized_head",
        "tests/model_executor/test_gpt_oss_lm_head.py::test_gpt_oss_passes_its_quant_config_to_lm_head",
    ],
    FP8: [
        "test_each_projection_takes_a_format",
        "test_short_names_mean_the_same_everywhere",
        "test_a_format_without_a_kernel_is_refused_with_the_reason",
        "test_an_unknown_name_is_refused_with_those_that_are_known",
        "tests/quantization/test_quantization_config_args.py::test_args_fp8_means_fp8_per_channel_for_a_layer",
        "tests/quantization/test_quantization_config_args.py::test_args_unknown_name_lists_fp8",
    ],
    NONE: [
        "test_each_projection_takes_a_format",
        "test_none_wins_over_a_shorthand",
        "test_shards_of_a_fused_layer_have_one_format",
        "tests/quantization/test_quantization_config_args.py::test_args_none_leaves_a_kind_of_layers_alone",
        "tests/quantization/test_quantization_config_args.py::test_targets_none_leaves_a_layer_alone",
        "tests/quantization/test_quantization_config_args.py::test_targets_none_counts_as_a_format_of_a_fused_layer",
    ],
    GEMV: [
        "test_one_switch_decodes_dense_layers_by_the_gemv",
        "test_the_number_of_tokens_decides",
        "test_a_large_weight_is_dequantized_in_slices",
        "test_a_shard_is_multiplied",
        "test_the_compiler_sees_one_operator",
        "test_the_gemv_is_refused_with_the_reason",
        "test_float16_weights_are_refused",
        "test_without_a_compiler_the_gemv_is_refused",
        "tests/kernels/quantization/test_mxfp4_flashinfer_gemv.py::test_the_number_of_tokens_decides",
        "tests/kernels/quantization/test_mxfp4_flashinfer_gemv.py::test_a_large_weight_is_dequantized_in_slices",
        "tests/kernels/quantization/test_mxfp4_flashinfer_gemv.py::test_the_kernel_runs_by_name_from_sm80_on",
        "tests/kernels/quantization/test_mxfp4_flashinfer_gemv.py::test_the_kernel_is_there_where_it_can_be_loaded",
    ],
}
UPSTREAM_TESTS = [
    "tests/quantization/test_quantization_config_args.py",
    "tests/quantization/test_config_utils.py",
    "tests/quantization/test_online.py",
]
UPSTREAM_ARGS = [
    "-p",
    "support",
    # The first wants torchvision, the others a module of the upstream's tests that imports HTTP clients.
    "--deselect=tests/quantization/test_online.py::test_qianfan_online_fp8_keeps_vision_layers_unquantized",
    "--deselect=tests/quantization/test_online.py::test_online_ignore_keeps_checkpoint_quantization_linear",
    "--deselect=tests/quantization/test_online.py::test_online_quantization_rejects_prequantized_moe",
]

pytestmark = pytest.mark.filterwarnings("ignore")

HIDDEN = 64


class ReferenceKernel(MxFp4LinearKernel):
    """MXFP4 weights times plain activations, from what the online method leaves on the layer."""

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        return True, None

    @classmethod
    def can_implement(cls, config: MxFp4LinearLayerConfig) -> tuple[bool, str | None]:
        return True, None

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        assert layer.weight.dtype == layer.weight_scale.dtype == torch.uint8

    def apply_weights(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        values = dequantize(layer.weight.data, layer.weight_scale.data)
        return torch.nn.functional.linear(x.float(), values.float(), None if bias is None else bias.float()).to(x.dtype)


@pytest.fixture(autouse=True)
def _replace_what_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linear_kernels._POSSIBLE_MXFP4_KERNELS, PlatformEnum.CPU, [])
    register_linear_kernel(ReferenceKernel, PlatformEnum.CPU, "mxfp4")
    monkeypatch.setattr(online_mxfp4, "mxfp4_quantize", quantize)
    # vLLM's own runner for the CPU makes this a no-op too.
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
    # On CPUs with AMX vLLM asks for kernels of its own, which are not built here.
    monkeypatch.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False, raising=False)


Configure = Callable[..., VllmConfig]


@pytest.fixture(name="configure")
def _configure(tmp_path: Path) -> Iterator[Configure]:
    """From a command line to a configuration that is in force until the test ends."""
    with ExitStack() as stack:

        def configure(*arguments: str, quantization: dict[str, Any] | None = None) -> VllmConfig:
            given = [] if quantization is None else ["--quantization-config", json.dumps(quantization)]
            return stack.enter_context(configured(tmp_path / "model", tmp_path / "store", *arguments, *given))

        yield configure


def hidden_states() -> torch.Tensor:
    return torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(7)).bfloat16()


def check_logits(logits: torch.Tensor, weight: torch.Tensor) -> None:
    """The logits are those of this weight up to the rounding of a BF16 result."""
    expected = hidden_states().double() @ weight.double().T
    assert logits.shape == expected.shape
    torch.testing.assert_close(logits.double(), expected, rtol=2**-7, atol=2**-7)


# The argument


@pytest.mark.parametrize("value", ["mxfp4", "fp8_per_tensor", "fp8_per_block_static", {"weight": "mxfp8"}])
def test_lm_head_takes_what_linear_takes(value: Any) -> None:
    """quantize-lm-head-at-load.patch: names and dictionaries mean the same in both fields."""
    arguments = resolve_quantization_config("gpt_oss_mxfp4", {"linear": value, "lm_head": value})
    assert arguments.lm_head is not None
    assert arguments.lm_head == arguments.linear


def test_a_shorthand_without_linear_recipe_is_refused() -> None:
    """quantize-lm-head-at-load.patch: a recipe for MoE layers only is none for a head."""
    with pytest.raises(ValueError, match="'nvfp4_per_token' does not define a linear spec"):
        QuantizationConfigArgs(lm_head="nvfp4_per_token")


def test_lm_head_survives_the_merge_with_a_shorthand() -> None:
    """quantize-lm-head-at-load.patch: --quantization fp8_per_tensor with an lm_head of another kind keeps both."""
    merged = resolve_quantization_config("fp8_per_tensor", {"lm_head": "mxfp4"})
    assert merged.linear == resolve_quantization_config("fp8_per_tensor", None).linear
    assert merged.lm_head == QuantizationConfigArgs(linear="mxfp4").linear


def test_no_shorthand_quantizes_the_head_by_itself() -> None:
    """quantize-lm-head-at-load.patch: the head is opt-in whatever else is asked for."""
    for name in ("fp8_per_tensor", "fp8_per_block", "fp8_per_channel"):
        config = OnlineQuantizationConfig(resolve_quantization_config(name, None))
        assert config.resolve_quant_method_cls(ParallelLMHead, "lm_head") is None
        assert config.resolve_quant_method_cls(LinearBase, "model.layers.0.self_attn.o_proj") is not None


def test_lm_head_goes_with_targets() -> None:
    """quantize-lm-head-at-load.patch: the field decides for the head, whatever a pattern matches."""
    targets = {"re:.*": "fp8_per_tensor"}
    source, *_, method = resolve_head(lm_head="mxfp4", targets=targets)
    assert (source.value, method) == ("lm_head", Mxfp4OnlineLinearMethod)
    assert resolve_head(lm_head="mxfp4", targets=targets, ignore=["lm_head"]) is None


def test_nothing_to_quantize_is_refused() -> None:
    """quantize-lm-head-at-load.patch: lm_head alone is enough to ask for, nothing at all is not."""
    OnlineQuantizationConfig(QuantizationConfigArgs(lm_head="mxfp4"))
    with pytest.raises(ValueError, match="at least one of"):
        OnlineQuantizationConfig(QuantizationConfigArgs(ignore=["lm_head"]))


# The method that a head gets


def resolve_head(**arguments: Any) -> tuple[Any, ...] | None:
    config = OnlineQuantizationConfig(QuantizationConfigArgs(**arguments))
    return config.resolve_quant_method_cls(ParallelLMHead, "lm_head")


def test_lm_head_resolves_to_the_online_method() -> None:
    """quantize-lm-head-at-load.patch: the dispatch, without any layer."""
    source, _, pattern, spec, method = resolve_head(linear="fp8_per_tensor", lm_head="mxfp4")
    assert (source.value, pattern, method) == ("lm_head", None, Mxfp4OnlineLinearMethod)
    assert spec == QuantizationConfigArgs(linear="mxfp4").linear


@pytest.mark.parametrize("pattern", ["lm_head", "re:lm_.*", "*head"])
def test_ignore_counts_for_the_head(pattern: str) -> None:
    """quantize-lm-head-at-load.patch: an ignored head resolves to nothing."""
    assert resolve_head(lm_head="mxfp4", ignore=[pattern]) is None
    assert resolve_head(lm_head="mxfp4", ignore=["lm_head.not"]) is not None


def test_linear_does_not_mean_the_head() -> None:
    """quantize-lm-head-at-load.patch: off by default."""
    assert resolve_head(linear="mxfp4", moe={"activation": "mxfp8"}) is None


def test_targets_still_refuse_the_head() -> None:
    """quantize-lm-head-at-load.patch: what targets says to a head has not changed."""
    with pytest.raises(ValueError, match="is not supported for ParallelLMHead"):
        resolve_head(targets={"lm_head": "fp8_per_tensor"})


def test_embeddings_are_never_quantized() -> None:
    """quantize-lm-head-at-load.patch: a head is an embedding by class; embeddings are no heads."""
    config = OnlineQuantizationConfig(QuantizationConfigArgs(lm_head="mxfp4"))
    assert config.resolve_quant_method_cls(VocabParallelEmbedding, "model.embed_tokens") is None


class HeadNamedInCheckpoint(GptOssMxfp4Config):
    """A checkpoint's configuration that has a method of its own for the head, as GPTQ's has."""

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any:
        return UnquantizedEmbeddingMethod() if isinstance(layer, ParallelLMHead) else None


@pytest.mark.parametrize("checkpoint", [GptOssMxfp4Config, HeadNamedInCheckpoint])
@pytest.mark.parametrize(
    ("arguments", "quantized"),
    [
        ({"lm_head": "mxfp4"}, True),
        ({"linear": "mxfp4", "lm_head": "mxfp4", "moe": {"activation": "mxfp8"}}, True),
        ({"linear": "mxfp4"}, False),
        ({"lm_head": "mxfp4", "ignore": ["lm_head"]}, False),
        ({"targets": {"re:.*": "mxfp4"}}, False),
        (None, False),
    ],
)
def test_the_head_of_a_quantized_checkpoint(
    configure: Configure,
    tmp_path: Path,
    checkpoint: type[GptOssMxfp4Config],
    arguments: dict[str, Any] | None,
    quantized: bool,
) -> None:
    """quantize-lm-head-at-load.patch: composed with the checkpoint's method, on real layers."""
    write_checkpoint(tmp_path / "model", 64)
    configure()
    config = checkpoint()
    if arguments is not None:
        config.online_quantization_config = OnlineQuantizationConfig(QuantizationConfigArgs(**arguments))

    head = ParallelLMHead(64, HIDDEN, quant_config=config, prefix="lm_head")
    embeddings = VocabParallelEmbedding(64, HIDDEN, quant_config=config, prefix="model.embed_tokens")

    assert isinstance(embeddings.quant_method, UnquantizedEmbeddingMethod)
    assert isinstance(head.quant_method, Mxfp4OnlineLinearMethod if quantized else UnquantizedEmbeddingMethod)
    if quantized:
        assert head.quant_method.requantization_source is None
        assert [line.split(" (")[0] for line in config.online_quantization_config.quantized_layer_summaries] == ["lm_head: 1"]


def test_a_tied_head_is_refused(configure: Configure, tmp_path: Path) -> None:
    """quantize-lm-head-at-load.patch: the weight of the embeddings is not quantized by way of the head."""
    write_checkpoint(tmp_path / "model", 64)
    configure()
    plain, quantized = GptOssMxfp4Config(), GptOssMxfp4Config()
    quantized.online_quantization_config = OnlineQuantizationConfig(QuantizationConfigArgs(lm_head="mxfp4"))
    embeddings = VocabParallelEmbedding(64, HIDDEN)

    head = ParallelLMHead(64, HIDDEN, quant_config=plain, prefix="lm_head").tie_weights(embeddings)
    assert head.weight is embeddings.weight
    with pytest.raises(ValueError, match=r"remove quantization_config\.lm_head"):
        ParallelLMHead(64, HIDDEN, quant_config=quantized, prefix="lm_head").tie_weights(embeddings)


# From the command line to logits


@pytest.mark.parametrize("vocabulary", [192, 200])  # the second is padded to 256 rows
def test_gpt_oss_loads_a_quantized_head(configure: Configure, tmp_path: Path, vocabulary: int) -> None:
    """quantize-lm-head-at-load.patch: a checkpoint's BF16 head gives the logits of its MXFP4 values."""
    weight = write_checkpoint(tmp_path / "model", vocabulary)["lm_head.weight"]
    model = get_model(vllm_config=configure(quantization={"linear": "mxfp4", "lm_head": "mxfp4"}))

    assert isinstance(model.lm_head.quant_method, Mxfp4OnlineLinearMethod)
    assert model.lm_head.weight.dtype == torch.uint8
    assert model.lm_head.weight.numel() == -(-vocabulary // 64) * 64 * HIDDEN // 2
    assert model.model.embedding.weight.dtype == torch.bfloat16
    check_logits(model.compute_logits(hidden_states()), rounded(weight))
    with pytest.raises(AssertionError):  # so the check tells MXFP4 from BF16
        check_logits(model.compute_logits(hidden_states()), weight)


@pytest.mark.parametrize("quantization", [None, {"linear": "mxfp4"}, {"linear": "mxfp4", "ignore": ["lm_head"]}])
def test_gpt_oss_keeps_its_head_by_default(configure: Configure, tmp_path: Path, quantization: dict[str, Any] | None) -> None:
    """quantize-lm-head-at-load.patch: gpt-oss passes its configuration on, and nothing changes by that alone."""
    weight = write_checkpoint(tmp_path / "model", 192)["lm_head.weight"]
    model = get_model(vllm_config=configure(quantization=quantization))

    assert isinstance(model.lm_head.quant_method, UnquantizedEmbeddingMethod)
    assert torch.equal(model.lm_head.weight, weight)
    check_logits(model.compute_logits(hidden_states()), weight)


def test_another_head_dtype_is_refused(configure: Configure, tmp_path: Path) -> None:
    """quantize-lm-head-at-load.patch: an FP32 head is not silently given up for a quantized one."""
    write_checkpoint(tmp_path / "model", 192)
    overrides = json.dumps({"head_dtype": "float32"})
    model = get_model(vllm_config=configure("--hf-overrides", overrides, quantization={"lm_head": "mxfp4"}))

    with pytest.raises(ValueError, match="only supported for an unquantized lm_head"):
        model.compute_logits(hidden_states())


@pytest.mark.parametrize("rank", [0, 1])
def test_a_shard_of_the_head_is_quantized(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """quantize-lm-head-at-load.patch: with tensor parallelism each rank quantizes its rows; padding becomes zeros."""
    weight = write_checkpoint(tmp_path / "model", 200)["lm_head.weight"]
    config = configure(quantization={"lm_head": "mxfp4"})
    for module in ("vllm.model_executor.layers.vocab_parallel_embedding", "vllm.model_executor.parameter"):
        monkeypatch.setattr(f"{module}.get_tensor_model_parallel_rank", lambda: rank)
        monkeypatch.setattr(f"{module}.get_tensor_model_parallel_world_size", lambda: 2)

    head = ParallelLMHead(200, HIDDEN, params_dtype=torch.bfloat16, quant_config=config.quant_config, prefix="lm_head")
    assert head.weight.is_meta
    head.weight.weight_loader(head.weight, weight)
    finalize_layerwise_processing(head, config.model_config)

    padded = torch.zeros(256, HIDDEN, dtype=weight.dtype)
    padded[:200] = weight
    logits = head.quant_method.apply(head, hidden_states(), bias=None)
    check_logits(logits, rounded(padded[128 * rank : 128 * (rank + 1)]))


@pytest.mark.parametrize("order", [("weight", "bias"), ("bias", "weight")])
def test_a_bias_of_the_head_is_kept(configure: Configure, tmp_path: Path, order: tuple[str, str]) -> None:
    """quantize-lm-head-at-load.patch: a parameter that appears after the method's own is loaded, not quantized."""
    loaded = {"weight": write_checkpoint(tmp_path / "model", 192)["lm_head.weight"]}
    loaded["bias"] = loaded["weight"][:, 0].clone()
    config = configure(quantization={"lm_head": "mxfp4"})

    head = ParallelLMHead(
        192, HIDDEN, bias=True, params_dtype=torch.bfloat16, quant_config=config.quant_config, prefix="lm_head"
    )
    for name in order:
        parameter = getattr(head, name)
        parameter.weight_loader(parameter, loaded[name])
    finalize_layerwise_processing(head, config.model_config)

    assert torch.equal(head.bias, loaded["bias"])
    logits = head.quant_method.apply(head, hidden_states(), bias=None)
    check_logits(logits, rounded(loaded["weight"]))


# A format for each of qkv, o and lm_head

FORMATS = ["mxfp4", "fp8", "none"]
# Nine of the 27: any two of the layers meet in all pairs of formats.
COMBINATIONS = [(FORMATS[i], FORMATS[j], FORMATS[(i + j) % 3]) for i in range(3) for j in range(3)]
PROJECTIONS = {"*.qkv_proj": ("q_proj", "k_proj", "v_proj"), "*.o_proj": ("o_proj",)}


class NoExperts(torch.nn.Module):
    """In place of a layer's MLP: the model class lets it be swapped."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


def fp8_product(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Each row of both divided by its largest value / 448 and rounded to E4M3, multiplied in double precision."""

    def rows(values: torch.Tensor) -> torch.Tensor:
        scales = values.abs().amax(-1, keepdim=True).float() / 448
        return (values.float() / scales).to(torch.float8_e4m3fn).double() * scales.double()

    return rows(inputs) @ rows(weight).T


PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mxfp4": lambda inputs, weight: inputs.double() @ rounded(weight).T,
    "fp8": fp8_product,
    "none": lambda inputs, weight: inputs.double() @ weight.double().T,
}


def check_product(outputs: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, name: str) -> None:
    """The outputs are those of this format, and of no other one."""
    off = {each: (outputs.double() - bias.double() - product(inputs, weight)).norm() for each, product in PRODUCTS.items()}
    size = PRODUCTS["none"](inputs, weight).norm()
    assert off.pop(name) < 0.006 * size
    assert min(off.values()) > 0.012 * size


@pytest.mark.parametrize(("qkv", "output", "head"), COMBINATIONS)
def test_each_projection_takes_a_format(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qkv: str, output: str, head: str
) -> None:
    """accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch: from the command line to the products."""
    weights = write_checkpoint(tmp_path / "model", 192, layers=1, experts=False)
    monkeypatch.setattr(TransformerBlock, "mlp_cls", NoExperts)
    formats = dict(zip(PROJECTIONS, (qkv, output), strict=True))
    model = get_model(vllm_config=configure(quantization={"targets": formats, "lm_head": head}))

    inputs = hidden_states()
    for (pattern, names), name in zip(PROJECTIONS.items(), formats.values(), strict=True):
        stored = [[weights[f"{ATTENTION}.{part}.{kind}"] for part in names] for kind in ("weight", "bias")]
        layer = getattr(model.model.layers[0].attn, pattern[2:])
        check_product(layer(inputs)[0], inputs, torch.cat(stored[0]), torch.cat(stored[1]), name)
    check_product(model.compute_logits(inputs), inputs, weights["lm_head.weight"], torch.zeros(192), head)


@pytest.mark.parametrize(("name", "means"), [("fp8", "fp8_per_channel"), ("mxfp4", "mxfp4")])
def test_short_names_mean_the_same_everywhere(name: str, means: str) -> None:
    """accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch: fp8 and mxfp4 are shorthands in all fields."""
    for field in ("linear", "lm_head"):
        assert QuantizationConfigArgs(**{field: name}) == QuantizationConfigArgs(**{field: means})
    assert QuantizationConfigArgs(targets={"*": name}) == QuantizationConfigArgs(targets={"*": means})


def test_fp8_stays_a_checkpoint_format_on_the_command_line() -> None:
    """accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch: --quantization fp8 has not become an online shorthand."""
    assert "fp8" not in ONLINE_QUANT_SHORTHAND_NAMES
    assert "none" not in ONLINE_QUANT_SHORTHAND_NAMES


def test_none_wins_over_a_shorthand() -> None:
    """accept-none-for-layers-left-alone-by-online-quantization.patch: --quantization fp8_per_tensor, and linear layers as they are."""
    config = OnlineQuantizationConfig(resolve_quantization_config("fp8_per_tensor", {"linear": "none"}))
    assert config.resolve_quant_method_cls(LinearBase, "model.layers.0.attn.o_proj") is None
    assert config.args.moe is not None


def test_shards_of_a_fused_layer_have_one_format() -> None:
    """accept-none-for-layers-left-alone-by-online-quantization.patch: none is a format, too, so q and k cannot differ by it."""
    config = OnlineQuantizationConfig(QuantizationConfigArgs(targets={"*.q_proj": "none", "*.[kv]_proj": "mxfp4"}))
    config.packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}
    with pytest.raises(ValueError, match=r"different quantization_config\.targets values"):
        config.resolve_quant_method_cls(LinearBase, "model.layers.0.attn.qkv_proj")


@pytest.mark.parametrize("quantization", [{"lm_head": "{}"}, {"targets": {"*.o_proj": "{}"}}, {"linear": "{}"}])
@pytest.mark.parametrize(
    ("name", "gpu", "reason"),
    [
        ("mxfp4", None, "Failed to find a kernel that can implement the MXFP4 linear layer"),
        ("fp8", (8, 0), "MarlinFP8 is W8A16 weight-only. Requires SM89"),
    ],
)
def test_a_format_without_a_kernel_is_refused_with_the_reason(
    configure: Configure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quantization: dict[str, Any],
    name: str,
    gpu: tuple[int, int] | None,
    reason: str,
) -> None:
    """accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch: while the model is being built; the layer is not left as it is."""
    write_checkpoint(tmp_path / "model", 192, layers=1, experts=False)
    monkeypatch.setattr(TransformerBlock, "mlp_cls", NoExperts)
    monkeypatch.setitem(linear_kernels._POSSIBLE_MXFP4_KERNELS, PlatformEnum.CPU, [])  # as upstream has it
    config = configure(quantization=json.loads(json.dumps(quantization).replace("{}", name)))
    if gpu is not None:
        support.fake_gpu(monkeypatch, *gpu)
        monkeypatch.setattr(custom_ops, "cutlass_scaled_mm_supports_fp8", lambda capability: capability >= 89)
    with pytest.raises(ValueError, match=reason):
        get_model(vllm_config=config)


def test_mxfp4_refuses_an_input_that_has_no_whole_blocks(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch: 32 values share a scale."""
    write_checkpoint(tmp_path / "model", 192, hidden=48)
    config = configure(quantization={"lm_head": "mxfp4"})
    with pytest.raises(ValueError, match=r"MXFP4 requires input_size_per_partition \(48\) to be divisible by 32"):
        get_model(vllm_config=config)


@pytest.mark.parametrize("arguments", [{"lm_head": "fp6"}, {"targets": {"*.o_proj": "fp6"}}, {"targets": {"*": 8}}])
def test_an_unknown_name_is_refused_with_those_that_are_known(arguments: dict[str, Any]) -> None:
    """accept-fp8-as-the-format-of-a-layer-in-online-quantization.patch: none and the aliases are among them."""
    with pytest.raises(ValueError, match="'mxfp4'"):
        QuantizationConfigArgs(**arguments)
    with pytest.raises(ValueError, match=r"'none'.*'fp8'"):
        QuantizationConfigArgs(**arguments)


# FlashInfer's kernels for few tokens

GEMV_SWITCH = ["--linear-backend", "flashinfer_gemv"]
GEMV_MODULE = "vllm.model_executor.kernels.linear.mxfp4.flashinfer_gemv"
Calls = list[tuple[str, int]]


@pytest.fixture(name="calls")
def _calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A FlashInfer that has the kernels; which of them run, and with how many rows."""
    calls: Calls = []
    module = importlib.import_module(GEMV_MODULE)
    monkeypatch.setattr(module, "has_flashinfer_mxfp4_gemv", lambda: True)
    for name in ("gemv", "weight_quantize", "weight_dequantize"):
        stand_in = recorded(calls, name, getattr(flashinfer_decode, name))
        monkeypatch.setattr(module, f"flashinfer_mxfp4_{name}", stand_in)
    return calls


def random_rows(rows: int, columns: int = HIDDEN) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).bfloat16()


def check_rows(outputs: torch.Tensor, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """The outputs are those of the weight rounded to MXFP4, and not of the weight itself."""
    added = torch.zeros(len(weight)) if bias is None else bias
    expected, others = (inputs.double() @ one.double().T + added.double() for one in (rounded(weight), weight))
    assert outputs.shape == expected.shape
    assert (outputs - expected).norm() < 0.006 * expected.norm()
    assert (outputs - others).norm() > 0.02 * expected.norm()


@pytest.mark.parametrize("capability", [(8, 0), (12, 1)])
def test_one_switch_decodes_dense_layers_by_the_gemv(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls, capability: tuple[int, int]
) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: qkv, o and lm_head, from the command line to the products."""
    weights = write_checkpoint(tmp_path / "model", 192, layers=1, experts=False)
    monkeypatch.setattr(TransformerBlock, "mlp_cls", NoExperts)
    config = configure(*GEMV_SWITCH, quantization={"linear": "mxfp4", "lm_head": "mxfp4"})
    support.fake_gpu(monkeypatch, *capability)
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda: 0)
    model = get_model(vllm_config=config)

    inputs = hidden_states()
    for pattern, names in PROJECTIONS.items():
        weight, bias = (torch.cat([weights[f"{ATTENTION}.{part}.{kind}"] for part in names]) for kind in ("weight", "bias"))
        check_rows(getattr(model.model.layers[0].attn, pattern[2:])(inputs)[0], inputs, weight, bias)
    check_rows(model.compute_logits(inputs), inputs, weights["lm_head.weight"], None)
    assert sorted(calls) == [*[("gemv", 5)] * 3, *(("weight_quantize", rows) for rows in (64, 128, 192))]


def multiply(weight: torch.Tensor, inputs: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """What the kernel makes of a weight that a checkpoint has in MXFP4."""
    codes, scales = quantize(weight)
    return torch.ops.vllm.flashinfer_mxfp4_linear(inputs, codes, scales, bias)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (1, [("gemv", 1)]),
        (16, [("gemv", 16)]),
        (17, [("gemv", 16), ("gemv", 1)]),
        (64, [("gemv", 16)] * 4),
        (65, [("weight_dequantize", 40)]),
    ],
)
def test_the_number_of_tokens_decides(calls: Calls, tokens: int, expected: Calls, biased: bool) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: one call, slices, or a dequantized weight."""
    weight, inputs = random_rows(40), random_rows(tokens)
    bias = weight[:, 0].clone() if biased else None
    check_rows(multiply(weight, inputs, bias), inputs, weight, bias)
    assert calls == expected


@pytest.mark.parametrize("biased", [False, True])
def test_a_large_weight_is_dequantized_in_slices(monkeypatch: pytest.MonkeyPatch, calls: Calls, biased: bool) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: so that a head takes no memory of its BF16 size."""
    module = importlib.import_module(GEMV_MODULE)
    assert module.MAX_DEQUANTIZED_ROWS == 16384
    monkeypatch.setattr(module, "MAX_DEQUANTIZED_ROWS", 96)
    weight, inputs = random_rows(200), random_rows(65)
    bias = weight[:, 0].clone() if biased else None
    check_rows(multiply(weight, inputs, bias), inputs, weight, bias)
    assert calls == [("weight_dequantize", 96), ("weight_dequantize", 96), ("weight_dequantize", 8)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_shard_is_multiplied(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls, rank: int
) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: of a projection that ranks share by its columns; inputs of any rank."""
    write_checkpoint(tmp_path / "model", 192)
    config = configure(*GEMV_SWITCH, quantization={"linear": "mxfp4"})
    support.fake_gpu(monkeypatch, 12, 1)
    for module in ("vllm.model_executor.layers.linear", "vllm.model_executor.parameter"):
        monkeypatch.setattr(f"{module}.get_tensor_model_parallel_rank", lambda: rank)
        monkeypatch.setattr(f"{module}.get_tensor_model_parallel_world_size", lambda: 2)
    layer = RowParallelLinear(
        2 * HIDDEN,
        48,
        bias=False,
        reduce_results=False,
        params_dtype=torch.bfloat16,
        quant_config=config.quant_config,
        prefix="model.layers.0.attn.o_proj",
    )
    weight = random_rows(48, 2 * HIDDEN)
    layer.weight.weight_loader(layer.weight, weight)
    finalize_layerwise_processing(layer, config.model_config)

    inputs, part = random_rows(6), slice(HIDDEN * rank, HIDDEN * (rank + 1))
    outputs = layer(inputs.reshape(2, 3, HIDDEN).transpose(0, 1))[0]
    assert outputs.shape == (3, 2, 48)
    check_rows(outputs.transpose(0, 1).reshape(6, 48), inputs, weight[:, part].contiguous(), None)
    assert calls == [("weight_quantize", 48), ("gemv", 6)]


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("tokens", [1, 65])
def test_the_compiler_sees_one_operator(tokens: int) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: with a schema and a fake that agree with what it does."""
    codes, scales = quantize(random_rows(40))
    arguments = (random_rows(tokens), codes, scales, random_rows(40)[:, 0].clone())
    torch.library.opcheck(torch.ops.vllm.flashinfer_mxfp4_linear.default, arguments)


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("switch", "capability", "available", "reason"),
    [
        (GEMV_SWITCH, (7, 5), True, "FlashInfer's MXFP4 matrix-vector kernel runs from SM80 on"),
        (GEMV_SWITCH, (12, 1), False, "FlashInfer has no MXFP4 matrix-vector kernel"),
        ([], (12, 1), True, "FlashInferGemvMxFp4LinearKernel: runs only with --linear-backend flashinfer_gemv"),
    ],
)
def test_the_gemv_is_refused_with_the_reason(
    configure: Configure,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    switch: list[str],
    capability: tuple[int, int],
    available: bool,
    reason: str,
) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: while the model is being built, and nothing else selects it."""
    module: ModuleType = importlib.import_module(GEMV_MODULE)
    monkeypatch.setattr(module, "has_flashinfer_mxfp4_gemv", lambda: available)
    write_checkpoint(tmp_path / "model", 192)
    configure(*switch)
    support.fake_gpu(monkeypatch, *capability)
    kernels = [module.FlashInferGemvMxFp4LinearKernel]
    assert kernels[0] in linear_kernels._POSSIBLE_MXFP4_KERNELS[PlatformEnum.CUDA]
    monkeypatch.setitem(linear_kernels._POSSIBLE_MXFP4_KERNELS, PlatformEnum.CUDA, kernels)
    with pytest.raises(ValueError, match=reason):
        linear_kernels.init_mxfp4_linear_kernel()


@pytest.mark.usefixtures("calls")
def test_float16_weights_are_refused() -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: the kernels know BF16 alone."""
    kernel = importlib.import_module(GEMV_MODULE).FlashInferGemvMxFp4LinearKernel
    with pytest.raises(ValueError, match=r"takes BF16 models, and the weights are torch\.float16"):
        kernel.quantize_weight(random_rows(32).half())


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("lacking", ["nvcc", "ninja"])
def test_without_a_compiler_the_gemv_is_refused(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """run-dense-mxfp4-layers-by-flashinfer-s-gemv.patch: FlashInfer has it, and its JIT needs nvcc and ninja."""
    flashinfer = importlib.import_module("vllm.utils.flashinfer")
    names = ("mxfp4_gemv", "mxfp4_weight_quantize", "mxfp4_weight_dequantize")
    gemm = SimpleNamespace(**dict.fromkeys(names))
    module: ModuleType = importlib.import_module(GEMV_MODULE)
    has = getattr(flashinfer.has_flashinfer_mxfp4_gemv, "__wrapped__")  # noqa: B009  (the function is typed as its cache)
    monkeypatch.setattr(module, "has_flashinfer_mxfp4_gemv", has)
    monkeypatch.setattr(flashinfer, "has_flashinfer", lambda: True)
    monkeypatch.setattr(flashinfer, "_get_submodule", {"flashinfer.gemm": gemm}.get)
    monkeypatch.setattr(flashinfer, "_flashinfer_nvcc_path", lambda: None if lacking == "nvcc" else "nvcc")
    monkeypatch.setattr(flashinfer.shutil, "which", lambda name: None if lacking == name else name)
    write_checkpoint(tmp_path / "model", 192)
    configure(*GEMV_SWITCH)
    support.fake_gpu(monkeypatch, 12, 1)
    kernels = [module.FlashInferGemvMxFp4LinearKernel]
    monkeypatch.setitem(linear_kernels._POSSIBLE_MXFP4_KERNELS, PlatformEnum.CUDA, kernels)
    with pytest.raises(ValueError, match="or cannot compile it"):
        linear_kernels.init_mxfp4_linear_kernel()
