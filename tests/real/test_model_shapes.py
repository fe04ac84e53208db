# SPDX-License-Identifier: Apache-2.0
"""The keys of a configuration that are read are those that the pinned vLLM reads for that kind of model."""

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.deploy.shapes import config_file, families, quantization
from stack.deploy.shapes.keys import Keys
from stack.model.stack import load
from stack.serving import layout
from stack.store import cache

from ..deploy.shapes.configs import ALL

ROOT = Path(__file__).parents[2]
MODELS = "vllm/model_executor/models"
SOURCES = {
    "llama": ("llama",),
    "qwen3_moe": ("qwen3_moe",),
    "qwen3_next": ("qwen3_next", "qwen3_next_mtp", "../layers/mamba/gdn/qwen_gdn_linear_attn"),
    "qwen3_5": ("qwen3_5", "qwen3_next", "qwen3_5_mtp", "config", "../layers/mamba/gdn/qwen_gdn_linear_attn"),
    "glm4_moe_lite": ("glm4_moe_lite", "glm4_moe", "glm4_moe_lite_mtp"),
    "nemotron_h": ("nemotron_h", "nemotron_h_mtp", "config"),
}
"""The modules of each kind, below vLLM's models."""
OF_TRANSFORMERS = {
    *(
        "model_type",
        "layer_types",
        "layers_block_type",
        "mtp_layers_block_type",
        "full_attention_interval",
        "use_sliding_window",
    ),
    *("sliding_window", "tie_word_embeddings", "max_position_embeddings", "dtype", "torch_dtype", "head_dim", "moe_layer_freq"),
    *("qk_head_dim", "num_key_value_heads"),
}
"""Keys that transformers' or vLLM's own configuration classes handle, or that are read to be refused or left out."""


@pytest.fixture(name="stores", scope="module")
def _stores() -> Iterator[Stores]:
    with Stores(load(ROOT), Place(cache.root())) as stores:
        yield stores


def tree(stores: Stores, path: str) -> ast.Module:
    objects = stores.objects("vllm")
    found = objects.entry(objects.tree_of(stores.base("vllm")), path)
    assert found is not None, path
    return ast.parse(objects.read(found.id))


def named(module: ast.Module) -> set[str]:
    """Attributes of a module's objects, and names in its calls of getattr."""
    attributes = {one.attr for one in ast.walk(module) if isinstance(one, ast.Attribute)}
    return attributes | {one.value for one in ast.walk(module) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


@pytest.mark.parametrize("config", ALL, ids=lambda config: str(config["model_type"]))
def test_keys_are_those_of_vllm(stores: Stores, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()
    given = Keys.given

    def noted(keys: Keys, key: str) -> bool:
        read.add(key)
        return given(keys, key)

    monkeypatch.setattr(Keys, "given", noted)
    config_file.model(copy.deepcopy(config), "config.json", "12.1")
    paths = [Path(f"{MODELS}/{name}.py") for name in SOURCES[config["model_type"]]]
    known = set().union(*(named(tree(stores, str(Path(*_plain(path))))) for path in paths))
    assert read - known - OF_TRANSFORMERS == set()
    assert len(read) > 6


def _plain(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def test_kinds_of_models_are_those_of_vllm(stores: Stores) -> None:
    registry = named(tree(stores, f"{MODELS}/registry.py"))
    modules = {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "glm4_moe_lite", "nemotron_h"}
    assert modules <= registry
    assert {name.removesuffix("_text").replace("_moe", "") for name in families.BUILDERS if "qwen3_5" in name} == {"qwen3_5"}


def test_algorithms_of_modelopt_are_those_of_vllm(stores: Stores) -> None:
    module = tree(stores, "vllm/model_executor/layers/quantization/modelopt.py")
    [table] = [
        one.value
        for one in module.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id == "LINEAR_ALGOS"
    ]
    assert isinstance(table, ast.Dict)
    assert {ast.literal_eval(key) for key in table.keys if key is not None} == {*quantization._MODELOPT}


def test_options_that_are_refused_exist(stores: Stores) -> None:
    known = named(tree(stores, "vllm/engine/arg_utils.py"))
    assert {name for name in layout._REFUSED if name not in known} == set()
