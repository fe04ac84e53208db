# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-dense: the output head of an MXFP4 checkpoint, quantized while vLLM loads it.

Command line, configuration, model construction, weight loading and logits are the upstream's own and run on the CPU.
Two things need a GPU and are replaced: the quantizer, a Triton kernel, by `quantize` of mxfp4.py, which follows the OCP MX
specification (and equals that kernel bit for bit in Triton's interpreter); and the GEMM kernel, of which none exists
for the CPU, by `ReferenceKernel`, which registers by the upstream's extension point.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import support
import torch
from mxfp4 import dequantize, quantize, rounded
from safetensors.torch import save_file

with support.quiet():
    import vllm.model_executor.kernels.linear as linear_kernels
    import vllm.model_executor.layers.quantization.online.mxfp4 as online_mxfp4
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.config.quantization import QuantizationConfigArgs, resolve_quantization_config
    from vllm.distributed import (
        destroy_distributed_environment,
        destroy_model_parallel,
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.kernels.linear import MxFp4LinearKernel, MxFp4LinearLayerConfig, register_linear_kernel
    from vllm.model_executor.layers.linear import LinearBase
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
    from vllm.platforms import PlatformEnum
    from vllm.utils.argparse_utils import FlexibleArgumentParser

HEAD = "vllm/quantize-lm-head-at-load.patch"

PROVES = {
    HEAD: [
        "test_lm_head_takes_what_linear_takes",
        "test_lm_head_survives_the_merge_with_a_shorthand",
        "test_lm_head_resolves_to_the_online_method",
        "test_gpt_oss_loads_a_quantized_head",
        "test_a_shard_of_the_head_is_quantized",
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
        return torch.nn.functional.linear(x.float(), values.float(), bias).to(x.dtype)


@pytest.fixture(autouse=True)
def _replace_what_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linear_kernels._POSSIBLE_MXFP4_KERNELS, PlatformEnum.CPU, [])
    register_linear_kernel(ReferenceKernel, PlatformEnum.CPU, "mxfp4")
    monkeypatch.setattr(online_mxfp4, "mxfp4_quantize", quantize)
    # vLLM's own runner for the CPU makes this a no-op too.
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)


# A checkpoint in gpt-oss's layout with no layers between the embeddings and the head


def write_checkpoint(folder: Path, vocabulary: int, **config: Any) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(vocabulary)
    weights = {
        "model.embed_tokens.weight": torch.randn(vocabulary, HIDDEN, generator=generator).bfloat16(),
        "model.norm.weight": torch.ones(HIDDEN).bfloat16(),
        "lm_head.weight": torch.randn(vocabulary, HIDDEN, generator=generator).bfloat16(),
    }
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 0,
        "layer_types": [],
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    } | config
    (folder / "config.json").write_text(json.dumps(config))
    return weights


Configure = Callable[..., VllmConfig]


@pytest.fixture(name="configure")
def _configure(tmp_path: Path) -> Iterator[Configure]:
    """From a command line to a configuration that is in force until the test ends."""
    contexts = []

    def configure(*arguments: str, quantization: dict[str, Any] | None = None) -> VllmConfig:
        parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
        line = ["--model", str(tmp_path / "model"), "--skip-tokenizer-init", "--enforce-eager", *arguments]
        if quantization is not None:
            line += ["--quantization-config", json.dumps(quantization)]
        config = EngineArgs.from_cli_args(parser.parse_args(line)).create_engine_config()
        contexts.append(set_current_vllm_config(config))
        contexts[-1].__enter__()
        init_distributed_environment(1, 0, (tmp_path / "store").as_uri(), 0, "gloo")
        initialize_model_parallel(1, 1)
        return config

    yield configure
    if contexts:
        destroy_model_parallel()
        destroy_distributed_environment()
    for context in reversed(contexts):
        context.__exit__(None, None, None)


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


def test_lm_head_excludes_targets() -> None:
    """quantize-lm-head-at-load.patch: as linear and moe do."""
    with pytest.raises(ValueError, match=r"mutually exclusive with quantization_config\.lm_head"):
        QuantizationConfigArgs(lm_head="mxfp4", targets={"re:.*o_proj": "mxfp4"})


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
