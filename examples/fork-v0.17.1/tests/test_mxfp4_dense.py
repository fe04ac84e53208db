# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-dense: attention projections and output head, quantized to MXFP4 while vLLM loads them.

Command line, configuration, layers, weight loading, quantizer and logits are the real ones and run on the CPU. Marlin has
no kernel for the CPU: its two functions are replaced by `reference`, at the names by which the method calls them.
"""

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import support
import torch
from safetensors.torch import save_file

with support.quiet():
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import (
        destroy_distributed_environment,
        destroy_model_parallel,
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.linear import QKVParallelLinear, RowParallelLinear, UnquantizedLinearMethod
    from vllm.model_executor.layers.quantization.mxfp4 import Mxfp4Config
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        UnquantizedEmbeddingMethod,
        VocabParallelEmbedding,
    )
    from vllm.model_executor.model_loader import get_model
    from vllm.utils.argparse_utils import FlexibleArgumentParser

HEAD = "vllm/quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch"
GPT_OSS = "vllm/pass-gpt-oss-s-quantization-configuration-to-its-head.patch"
ATTENTION = "vllm/quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch"

PROVES = {
    HEAD: ["test_a_shard_of_the_head", "test_gpt_oss_loads_a_quantized_head"],
    GPT_OSS: ["test_gpt_oss_loads_a_quantized_head"],
    ATTENTION: ["test_attention_layers_get_a_method_for_mxfp4"],
}

pytestmark = pytest.mark.filterwarnings("ignore")

HIDDEN = 128
VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
DENSE = "vllm.model_executor.layers.quantization.mxfp4_dense"


# MXFP4 by the book, the slow way


def dequantized(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The values of `[n, k / 2]` codes, lower nibble first, and `[n, k / 32]` scales."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1).long()
    values = VALUES[codes % 8] * torch.where(codes < 8, 1.0, -1.0)
    return values * torch.exp2(scales.double() - 127).repeat_interleave(32, 1)


def nearest(weight: torch.Tensor) -> torch.Tensor:
    """Each block on the grid that fits it best: the nearest values, ties to the even code."""
    blocks = weight.double().unflatten(1, (-1, 32))
    largest = blocks.abs().amax(-1, keepdim=True)
    # The finest grid on which the block's largest value, rounded to two bits, is not beyond 6.
    exponent = torch.floor(torch.log2(torch.where(largest == 0, 1.0, largest)))
    exponent = exponent - 2 + (largest >= 1.75 * torch.exp2(exponent)).double()
    scaled = blocks / torch.exp2(exponent)
    odd = torch.tensor([0, 1] * 4, dtype=torch.float64) * 1e-12
    codes = ((scaled.abs().unsqueeze(-1) - VALUES).abs() + odd).argmin(-1)
    return (VALUES[codes] * scaled.sign() * torch.exp2(exponent)).flatten(1)


def quantizer() -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    from vllm.model_executor.layers.quantization.utils.mxfp4_online import quantize_to_mxfp4

    return quantize_to_mxfp4


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 2.0**-9, 300.0])
def test_quantizer_takes_the_nearest_values(dtype: torch.dtype, scale: float) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: compared with a search through all values."""
    weight = (random(5000, 96) * scale).to(dtype)  # more rows than it takes at a time
    packed, scales = quantizer()(weight)
    assert (packed.shape, scales.shape) == ((5000, 48), (5000, 3))
    assert packed.dtype == scales.dtype == torch.uint8
    assert torch.equal(dequantized(packed, scales), nearest(weight))


def test_quantizer_keeps_what_is_mxfp4() -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: all sixteen codes at every scale of BF16."""
    codes = torch.tensor([*range(16), *range(16)], dtype=torch.uint8)
    packed = (codes[::2] | codes[1::2] << 4).expand(240, -1)
    scales = torch.arange(8, 248, dtype=torch.uint8).unsqueeze(1)
    weight = dequantized(packed, scales)
    assert torch.equal(weight.bfloat16().double(), weight)
    again = quantizer()(weight.bfloat16())
    assert torch.equal(again[0], packed)
    assert torch.equal(again[1], scales)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0), (0.26, 0.5), (5.01, 6.0)],
)
def test_quantizer_rounds_ties_to_even(value: float, expected: float) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: of either sign."""
    weight = torch.tensor([[6.0, value, -value] + [0.0] * 29])
    assert dequantized(*quantizer()(weight))[0, :3].tolist() == [6.0, expected, -expected]


@pytest.mark.parametrize(("largest", "kept"), [(6.0, 6.0), (6.9, 6.0), (7.0, 8.0), (7.9, 8.0), (8.0, 8.0)])
def test_quantizer_cuts_little_off(largest: float, kept: float) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: a block's largest value decides the scale."""
    weight = torch.tensor([[largest] + [0.0] * 31])
    assert dequantized(*quantizer()(weight))[0, 0] == kept


def test_quantizer_takes_zeros_and_refuses_nan() -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: a padded row is zeros; a broken one is an error."""
    packed, scales = quantizer()(torch.zeros(2, 64))
    assert not packed.any()
    assert (scales == 127).all()
    for bad in (torch.nan, torch.inf):
        with pytest.raises(ValueError, match="not finite"):
            quantizer()(torch.tensor([[bad] + [1.0] * 31]))


# A checkpoint in gpt-oss's layout with no layers between the embeddings and the head


def write_checkpoint(folder: Path, vocabulary: int = 192, **config: Any) -> dict[str, torch.Tensor]:
    weights = {
        "model.embed_tokens.weight": random(vocabulary, HIDDEN, seed=1).bfloat16(),
        "model.norm.weight": torch.ones(HIDDEN).bfloat16(),
        "lm_head.weight": random(vocabulary, HIDDEN, seed=2).bfloat16(),
    }
    if config.get("tie_word_embeddings"):
        del weights["lm_head.weight"]
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
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    } | config
    (folder / "config.json").write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
    return weights


def asking_for(layers: str) -> list[str]:
    """The arguments; later releases have one of their own for all linear layers."""
    attention = {"qkv", "o"} & set(layers.split(","))
    ours = support.TREE / "vllm/config/mxfp4_layers.py"
    if ours.exists() and attention <= set(importlib.import_module("vllm.config.mxfp4_layers").MXFP4_LAYERS):
        return ["--mxfp4-layers", layers]
    names = {"linear": attention, "lm_head": "lm_head" in layers}
    return ["--quantization-config", json.dumps({name: "mxfp4" for name, asked in names.items() if asked})]


Configure = Callable[..., VllmConfig]


@pytest.fixture(name="configure")
def _configure(tmp_path: Path) -> Iterator[Configure]:
    """From a command line to a configuration that is in force until the test ends."""
    contexts = []

    def configure(layers: str | None = None, **config: Any) -> VllmConfig:
        write_checkpoint(tmp_path / "model", **config)
        line = ["--model", str(tmp_path / "model"), "--skip-tokenizer-init", "--enforce-eager"]
        line += [] if layers is None else asking_for(layers)
        parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
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


def reference(
    input: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_global_scale: None,
    workspace: str,
    size_n: int,
    size_k: int,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """Marlin's product, in FP64, with the weights as they were handed to it."""
    assert (workspace, weight_global_scale) == ("prepared", None)
    assert (weight.shape, weight_scale.shape) == ((size_n, size_k // 2), (size_n, size_k // 32))
    product = input.double() @ dequantized(weight, weight_scale).T
    return (product if bias is None else product + bias.double()).to(input.dtype)


@pytest.fixture(name="marlin", autouse=True)
def _marlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if (support.TREE / DENSE.replace(".", "/")).with_suffix(".py").exists():
        monkeypatch.setattr(f"{DENSE}.is_fp4_marlin_supported", lambda: True)
        monkeypatch.setattr(f"{DENSE}.apply_fp4_marlin_linear", reference)
        monkeypatch.setattr(
            f"{DENSE}.prepare_fp4_layer_for_marlin", lambda layer: setattr(layer, "workspace", "prepared")
        )
    yield


def check(output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """The output is that of this weight up to the rounding of a BF16 result."""
    expected = states(weight.shape[1]).double() @ weight.double().T
    expected = expected if bias is None else expected + bias.double()
    torch.testing.assert_close(output.double(), expected, rtol=2**-7, atol=2**-7)


def states(size: int) -> torch.Tensor:
    return random(5, size, seed=7).bfloat16()


def load(layer: torch.nn.Module, **weights: torch.Tensor) -> None:
    for name, weight in weights.items():
        parameter = getattr(layer, name.partition("_")[0])
        shard = name.partition("_")[2]
        parameter.weight_loader(parameter, weight, *([shard] if shard else []))
    layer.quant_method.process_weights_after_loading(layer)


# The option


@pytest.mark.parametrize(
    ("layers", "expected"), [(None, "moe"), ("moe", "moe"), ("moe,lm_head", "moe,lm_head"), ("LM_head, MOE ", "LM_head, MOE ")]
)
def test_command_line_takes_the_option(configure: Configure, layers: str | None, expected: str) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: from the command line to the model's configuration."""
    assert configure(layers).model_config.mxfp4_layers == expected


@pytest.mark.parametrize(
    ("layers", "config", "reason"),
    [
        ("moe,router", {}, "unknown router"),
        ("lm_head", {}, "moe is missing"),
        ("", {}, "moe is missing"),
        ("moe,lm_head", {"quantization_config": None}, "lm_head can be quantized at load"),
    ],
)
def test_what_cannot_be_is_refused(configure: Configure, layers: str, config: dict[str, Any], reason: str) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: before anything is loaded, with the reason."""
    with pytest.raises(ValueError, match=reason):
        configure(layers, **config)


def test_other_checkpoints_need_not_know_the_option(configure: Configure) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: the default is no demand."""
    assert configure(quantization_config=None).model_config.quantization is None


# The layers


def test_attention_layers_get_a_method_for_mxfp4(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch: however the method is called."""
    config = configure("moe,qkv,o").quant_config
    support.fake_gpu(monkeypatch, 12, 1)
    layers = [
        QKVParallelLinear(HIDDEN, 64, 4, 2, quant_config=config, prefix="model.layers.0.attn.qkv_proj"),
        RowParallelLinear(256, HIDDEN, quant_config=config, prefix="model.layers.0.attn.o_proj"),
    ]
    assert ["mxfp4" in type(layer.quant_method).__name__.lower() for layer in layers] == [True, True]


def qkv() -> QKVParallelLinear:
    return QKVParallelLinear(
        HIDDEN, 64, 4, 2, bias=True, params_dtype=torch.bfloat16, quant_config=Mxfp4Config(), prefix="model.layers.0.attn.qkv_proj"
    )


def o(size: int = 256) -> RowParallelLinear:
    return RowParallelLinear(
        size, HIDDEN, bias=True, params_dtype=torch.bfloat16, quant_config=Mxfp4Config(), prefix="model.layers.0.attn.o_proj"
    )


@pytest.mark.parametrize("layers", ["moe,qkv", "moe,qkv,o"])
def test_qkv_runs_in_mxfp4(configure: Configure, layers: str) -> None:
    """quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch: three weights of a checkpoint become one of MXFP4."""
    configure(layers)
    layer = qkv()
    parts = {"q": random(256, HIDDEN, seed=3), "k": random(128, HIDDEN, seed=4), "v": random(128, HIDDEN, seed=5)}
    biases = {name: part[:, 0].bfloat16() for name, part in parts.items()}
    load(
        layer,
        **{f"weight_{name}": part.bfloat16() for name, part in parts.items()},
        **{f"bias_{name}": bias for name, bias in biases.items()},
    )
    weight = torch.cat([part.bfloat16() for part in parts.values()])
    assert layer.weight.dtype == torch.uint8
    output, _ = layer(states(HIDDEN))
    check(output, nearest(weight), torch.cat([*biases.values()]))
    with pytest.raises(AssertionError):  # so the check tells MXFP4 from BF16
        check(output, weight, torch.cat([*biases.values()]))


def test_o_runs_in_mxfp4(configure: Configure) -> None:
    """quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch: with its bias."""
    configure("moe,o")
    layer, weight = o(), random(HIDDEN, 256, seed=6).bfloat16()
    load(layer, weight=weight, bias=weight[:, 0].clone())
    output, _ = layer(states(256))
    check(output, nearest(weight), weight[:, 0])


@pytest.mark.parametrize("layers", [None, "moe"])
def test_layers_that_are_not_named_stay(configure: Configure, layers: str | None) -> None:
    """quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch: nothing is quantized by itself."""
    configure(layers)
    assert type(qkv().quant_method) is UnquantizedLinearMethod
    assert type(o().quant_method) is UnquantizedLinearMethod


def test_only_the_named_layer_is_quantized(configure: Configure) -> None:
    """quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch: each name means one layer."""
    configure("moe,o")
    assert type(qkv().quant_method) is UnquantizedLinearMethod
    assert type(o().quant_method) is not UnquantizedLinearMethod


def test_a_shape_without_tile_is_refused(configure: Configure) -> None:
    """quantize-attention-projections-of-an-mxfp4-checkpoint-at-load.patch: before loading, with the layer's name."""
    configure("moe,o")
    with pytest.raises(ValueError, match=r"model\.layers\.0\.attn\.o_proj cannot .* Marlin has no tile for 128 x 96"):
        o(96)


@pytest.mark.parametrize(
    ("n", "k", "fits"),
    [(5120, 2880, True), (2560, 2880, True), (2880, 4096, True), (2880, 2048, True), (201088, 2880, True), (100544, 2880, False)],
)
def test_the_shapes_of_gpt_oss(n: int, k: int, fits: bool) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: on one device and on two."""
    from vllm.model_executor.layers.quantization.mxfp4_dense import why_marlin_cannot

    assert (why_marlin_cannot(n, k) is None) is fits


def test_a_device_without_marlin_is_refused(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: the CPU, for one."""
    configure("moe,lm_head")
    monkeypatch.undo()
    with pytest.raises(ValueError, match="Marlin needs a CUDA device"):
        head()


# The head


def head(vocabulary: int = 256, **options: Any) -> ParallelLMHead:
    return ParallelLMHead(
        vocabulary, HIDDEN, params_dtype=torch.bfloat16, quant_config=Mxfp4Config(), prefix="lm_head", **options
    )


@pytest.mark.parametrize("vocabulary", [192, 200])  # the second is padded to 256 rows
def test_gpt_oss_loads_a_quantized_head(configure: Configure, tmp_path: Path, vocabulary: int) -> None:
    """pass-gpt-oss-s-quantization-configuration-to-its-head.patch: from the command line to the logits of MXFP4 values."""
    model = get_model(vllm_config=configure("moe,lm_head", vocabulary=vocabulary))
    weight = write_checkpoint(tmp_path / "model", vocabulary)["lm_head.weight"]
    assert model.lm_head.weight.dtype == torch.uint8
    assert model.lm_head.weight.numel() == -(-vocabulary // 64) * 64 * HIDDEN // 2
    assert model.model.embedding.weight.dtype == torch.bfloat16
    logits = model.compute_logits(states(HIDDEN))
    assert logits.shape == (5, vocabulary)
    check(logits, nearest(weight))
    with pytest.raises(AssertionError):
        check(logits, weight)


@pytest.mark.parametrize("layers", [None, "moe,qkv,o"])
def test_gpt_oss_keeps_its_head_by_default(configure: Configure, tmp_path: Path, layers: str | None) -> None:
    """pass-gpt-oss-s-quantization-configuration-to-its-head.patch: gpt-oss passes its configuration on; that alone changes nothing."""
    model = get_model(vllm_config=configure(layers))
    weight = write_checkpoint(tmp_path / "model")["lm_head.weight"]
    assert isinstance(model.lm_head.quant_method, UnquantizedEmbeddingMethod)
    check(model.compute_logits(states(HIDDEN)), weight)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_shard_of_the_head(configure: Configure, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: each rank quantizes its rows; padding becomes zeros."""
    configure("moe,lm_head")
    module = "vllm.model_executor.layers.vocab_parallel_embedding"
    monkeypatch.setattr(f"{module}.get_tensor_model_parallel_rank", lambda: rank)
    monkeypatch.setattr(f"{module}.get_tensor_model_parallel_world_size", lambda: 2)
    layer, weight = head(200), random(200, HIDDEN, seed=8).bfloat16()
    load(layer, weight=weight)
    padded = torch.zeros(256, HIDDEN, dtype=weight.dtype)
    padded[:200] = weight
    check(layer.quant_method.apply(layer, states(HIDDEN)), nearest(padded[128 * rank : 128 * (rank + 1)]))


def test_a_tied_head_is_refused(configure: Configure) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: the embeddings are not quantized by way of the head."""
    configure("moe,lm_head", tie_word_embeddings=True)
    with pytest.raises(ValueError, match="weight is that of the embeddings"):
        head()


def test_embeddings_are_never_quantized(configure: Configure) -> None:
    """quantize-the-head-of-an-mxfp4-checkpoint-at-load.patch: a head is an embedding by class; embeddings are no heads."""
    configure("moe,qkv,o")
    embeddings = VocabParallelEmbedding(256, HIDDEN, quant_config=Mxfp4Config(), prefix="model.embedding")
    assert isinstance(embeddings.quant_method, UnquantizedEmbeddingMethod)
