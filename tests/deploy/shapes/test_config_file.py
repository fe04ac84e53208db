# SPDX-License-Identifier: Apache-2.0
"""Configurations that are not understood, formats of checkpoints, and hostile files."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints, formats, hardware, recipes
from stack.deploy.formats import BF16, MXFP4, NVFP4, QUANTIZED
from stack.deploy.shapes import config_file, quantization
from stack.deploy.shapes.quantization import EXPERTS, HEAD, LINEAR, Quantization
from stack.serving import roofline

from .configs import ALL, GLM, LLAMA, NEMOTRON, QWEN3_MOE, QWEN35, changed

SPARK = hardware.load("spark")
GROUP = {"num_bits": 4, "type": "float", "group_size": 16}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel"}


def refused(config: object) -> str:
    with pytest.raises(StackError) as caught:
        config_file.model(config, "c.json", "12.1")  # type: ignore[arg-type]
    return str(caught.value)


WITHOUT_LOSS = {
    *("max_position_embeddings", "torch_dtype", "dtype", "tie_word_embeddings", "rope_scaling", "pretraining_tp"),
    *("sliding_window", "use_sliding_window", "max_window_layers", "decoder_sparse_step", "mlp_only_layers", "chunk_size"),
    *("attn_output_gate", "mamba_ssm_dtype", "mtp_num_hidden_layers", "expand"),
    *("n_group", "topk_group", "num_nextn_predict_layers", "mtp_hybrid_override_pattern", "moe_latent_size"),
}
"""Keys that vLLM, too, reads only where they are, or that change no bytes of a step without drafts."""
UNUSED = {"qwen3_moe": {"intermediate_size"}, "qwen3_next": {"intermediate_size"}, "glm4_moe_lite": {"num_key_value_heads"}}
UNUSED |= {"nemotron_h": {"num_hidden_layers"}, "qwen3_5": {"full_attention_interval", "layer_types"}}
"""Those of a kind that have no use there."""


@pytest.mark.parametrize("config", ALL, ids=lambda config: str(config["model_type"]))
def test_every_key_about_sizes_is_needed_or_known(config: dict[str, Any]) -> None:
    """A key that is taken away is missed by name; one that is added is named."""
    place = config.get("text_config", config)
    for key in place:
        if key not in WITHOUT_LOSS | UNUSED.get(config["model_type"], set()) and (place is config or key != "model_type"):
            assert key in refused(changed(config, **{key: None}))
        elif key != "model_type":
            config_file.model(changed(config, **{key: None}), "c.json", "12.1")
    assert "num_kv_shared_layers is unknown" in refused(changed(config, num_kv_shared_layers=3))
    assert "index_topk is unknown" in refused(changed(config, index_topk=2048))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "c.json: model_type is missing"),
        ({"model_type": 3}, "c.json: model_type is 3: it has to be a text"),
        (changed(LLAMA, model_type="glm4_moe"), "'glm4_moe' is not supported yet: the nearest supported kind is glm4_moe_lite"),
        (
            changed(LLAMA, model_type="mystery"),
            "model_type 'mystery' is not supported yet: supported are glm4_moe_lite, gpt_oss, llama, nemotron_h, qwen2, ",
        ),
        ({"model_type": "qwen3_5"}, "text_config is missing"),
        (changed(LLAMA, hidden_size="256"), "c.json: hidden_size is '256': it has to be a whole number"),
        (changed(LLAMA, hidden_size=True), "hidden_size is True"),
        (changed(LLAMA, hidden_size=0), "hidden_size is out of range"),
        (changed(LLAMA, vocab_size=10**5000), "vocab_size is out of range"),
        (changed(LLAMA, num_hidden_layers=10**6), "num_hidden_layers is out of range: it goes from 1 to 1000"),
        (changed(LLAMA, num_attention_heads=None), "num_attention_heads is missing"),
        (changed(LLAMA, torch_dtype="int3"), "dtype is 'int3'"),
        (changed(LLAMA, tie_word_embeddings="no"), "tie_word_embeddings is 'no'"),
        (changed(LLAMA, sliding_window=128), "layer_types is missing, and there is a sliding window"),
        (changed(LLAMA, layer_types=["full_attention"]), "layer_types has 1 entries for 2 layers"),
        (changed(LLAMA, layer_types=["full_attention", "chunked_attention"]), "layer_types has 'chunked_attention'"),
        (changed(LLAMA, layer_types=["full_attention"] * 5000), "layer_types has more than 1000 entries"),
        (changed(LLAMA, layer_types="full"), "layer_types is not a list"),
        (changed(QWEN3_MOE, num_experts_per_tok=17), "num_experts_per_tok is 17, and there are 16 experts"),
        (changed(QWEN3_MOE, sliding_window=64, use_sliding_window=True), "sliding_window is set"),
        (changed(QWEN3_MOE, mlp_only_layers=["0"]), "mlp_only_layers is not a list of whole numbers"),
        (changed(QWEN35, linear_num_key_heads=None), "c.json: text_config.linear_num_key_heads is missing"),
        (changed(QWEN35, mamba_ssm_dtype="int8"), "mamba_ssm_dtype is 'int8'"),
        (changed(GLM, kv_lora_rank=None), "kv_lora_rank is missing"),
        (changed(NEMOTRON, hybrid_override_pattern="MX*E-"), "hybrid_override_pattern has 'X'"),
        (changed(NEMOTRON, hybrid_override_pattern="ME"), "hybrid_override_pattern has 2 layers, num_hidden_layers says 5"),
        (changed(NEMOTRON, hybrid_override_pattern=None), "hybrid_override_pattern is missing"),
        (changed(NEMOTRON, hybrid_override_pattern=None, layers_block_type=["conv"]), "layers_block_type has 'conv'"),
        (changed(LLAMA, quantization_config=[1]), "quantization_config is not an object"),
        (changed(LLAMA, quantization_config={"bits": 4}), "quantization_config.quant_method is missing"),
        (changed(LLAMA, quantization_config={"quant_method": "awq"}), "quant_method is 'awq': known are compressed-tensors"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_key(config: dict[str, Any], said: str) -> None:
    assert said in refused(config)


def test_the_layers_of_nemotron_as_words() -> None:
    words = ["mamba", "moe", "attention", "moe", "mlp"]
    spelt = changed(NEMOTRON, hybrid_override_pattern=None, layers_block_type=words, num_hidden_layers=None)
    letters, other = (config_file.model(config, "c", "12.1") for config in (NEMOTRON, spelt))
    assert letters.matrices == other.matrices


def read(**config: Any) -> Quantization:
    return quantization.read(config, BF16, "q")


def test_modelopt() -> None:
    single = read(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head", "*.self_attn*", "model.layers.1.mlp.gate"])
    assert single.find(["model.layers.0.mlp.up_proj"], LINEAR) is NVFP4
    assert single.find(["model.layers.0.self_attn.q_proj"], LINEAR) is BF16
    assert single.find(["model.layers.1.mlp.gate"], LINEAR) is BF16
    assert single.find(["lm_head"], HEAD) is BF16
    layers = {"lm_head": {"quant_algo": "w4a16_nvfp4", "group_size": 16}, "a.b": {"quant_algo": "FP8"}}
    mixed = read(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)
    assert mixed.find(["lm_head"], HEAD) is NVFP4
    assert mixed.find(["x.b", "a.b"], LINEAR) is QUANTIZED["fp8_per_tensor"]
    assert mixed.find(["a.c"], LINEAR) is BF16
    # As a file of its own, and with the format of the cache.
    beside = read(producer={}, quantization={"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]})
    assert beside.kv == "fp8"
    assert beside.find(["lm_head"], HEAD) is BF16


def test_compressed_tensors() -> None:
    groups = {
        "a": {"targets": ["Linear"], "weights": GROUP},
        "b": {"targets": [r"re:.*self_attn\.[qkvo]_proj$", "lm_head"], "weights": FLOAT8},
        "c": {"targets": ["LlamaAttention"], "weights": FLOAT8},
    }
    found = read(quant_method="compressed-tensors", config_groups=groups, ignore=["re:.*mlp.gate$"])
    assert found.find(["model.layers.0.mlp.experts.0.up_proj"], EXPERTS) is NVFP4
    assert found.find(["model.layers.0.self_attn.q_proj"], LINEAR) is QUANTIZED["fp8"]
    assert found.find(["model.layers.0.mlp.gate"], LINEAR) is BF16
    assert found.find(["lm_head"], HEAD) is QUANTIZED["fp8"]
    # `Linear` is not the class of the output head.
    plain = read(quant_method="compressed-tensors", config_groups={"a": {"targets": ["Linear"], "weights": GROUP}})
    assert plain.find(["lm_head"], HEAD) is BF16
    four = {"targets": ["Linear"], "weights": {**GROUP, "group_size": 32}}
    assert read(quant_method="compressed-tensors", config_groups={"a": four}).find(["x"], LINEAR) is MXFP4


def test_fp8_and_mxfp4() -> None:
    fp8 = read(quant_method="fp8", weight_block_size=[128, 128], modules_to_not_convert=["lm_head", "model.layers.0.mlp.gate"])
    assert fp8.find(["model.layers.0.mlp.gate_proj"], LINEAR) == formats.blocks(128, 128)
    assert fp8.find(["model.layers.0.mlp.gate"], LINEAR) is BF16
    assert fp8.find(["x"], HEAD) is BF16
    mxfp4 = read(quant_method="mxfp4")
    assert (mxfp4.find(["x"], EXPERTS), mxfp4.find(["x"], LINEAR)) == (MXFP4, BF16)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"quant_method": "modelopt", "quant_algo": "W2A2"}, "quant_algo is 'W2A2'"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 32}, "group_size is not 16"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers is not an object"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 3}}, "has 'a' without an"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": "lm_head"}, "ignore is not a list"),
        ({"quant_method": "compressed-tensors"}, "config_groups is not an object"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, "config_groups has 'a' without an object"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Embedding"], "weights": GROUP}}},
            "targets has 'Embedding'",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 128}}},
            },
            "weights is 4 bits of int",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size is [128]"),
        ({"quant_method": "fp8", "store_dtype": "mxfp4"}, "store_dtype is unknown"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["re:(a+)+$"], "weights": GROUP}}},
            "the pattern '(a+)+$' is too complex",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["re:.*a.*b.*c.*d"]}, "the pattern '.*a.*b.*c.*d' is too"),
        ({"quant_method": "fp8", "ignored_layers": ["re:" + "a" * 301]}, "is too complex"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["re:a["], "weights": GROUP}}},
            "'a[' is not a regular expression",
        ),
    ],
)
def test_formats_that_are_not_known(config: dict[str, Any], said: str) -> None:
    with pytest.raises(StackError) as caught:
        quantization.read(config, BF16, "q")
    assert said in str(caught.value)


def test_hostile_patterns_take_little_time() -> None:
    slow = ["re:.*.*.*!", "*a*a*a*a*a*a*a*a*!", *(f"layer{number}" for number in range(2000))]
    groups = {"a": {"targets": ["Linear"], "weights": GROUP}}
    config = changed(LLAMA, num_hidden_layers=100)
    config["quantization_config"] = {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": slow}
    began = time.process_time()
    config_file.model(config, "c", "12.1")
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": slow[1:]}
    config_file.model(config, "c", "12.1")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "is not a JSON object"),
        ('{"a":' * 5000, "is not valid JSON"),
        ("\xff\xfe", "is not valid JSON"),
        (" " * (config_file.LARGEST + 1), "is larger than 8 MiB"),
    ],
    ids=["deep", "list", "deep objects", "no JSON", "large"],
)
def test_files_that_are_none(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(StackError, match=said):
        roofline.of(roofline.anonymous(), SPARK, config=tmp_path / "c.json")


def test_the_formats_beside_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    plain = roofline.of(roofline.anonymous(), SPARK, config=tmp_path / "config.json")
    assert "no quantization_config: all weights are counted in BF16" in plain.notes
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    )
    found = roofline.of(roofline.anonymous(), SPARK, config=tmp_path / "config.json")
    assert found.notes == ()
    assert found.points[0].size < 0.6 * plain.points[0].size
    assert found.points[0].components[-1].form == "FP8"


@pytest.mark.parametrize("name", sorted(file.stem for file in checkpoints.SHAPES.glob("*.json")))
def test_kept_shapes(name: str) -> None:
    """Each has a source and can be counted, and its recipes have a limit that time cannot be below."""
    kept = json.loads((checkpoints.SHAPES / f"{name}.json").read_text())
    assert kept["source"]
    assert config_file.model(kept["config"], name, "12.1").quantized
    assert name not in checkpoints.known() or checkpoints.load(name).shape is None
    for recipe in map(recipes.load, recipes.known()):
        if recipe.model == name:
            for point in roofline.of(recipe, SPARK, batches=(1, 8), acceptance=None).points:
                assert point.seconds == point.size / 232e9
                assert point.limit == point.batch / point.seconds
