# SPDX-License-Identifier: Apache-2.0
"""Bytes of weights, caches and states, by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints, formats, model_memory
from stack.deploy.model_memory import Needs

from .shapes.configs import GLM, LLAMA, QWEN3_NEXT

BF16, FP8 = formats.BF16, formats.CACHED["fp8"]
SHAPED = [name for name in checkpoints.known() if checkpoints.load(name).shape is not None or checkpoints.config(name)]


def of(folder: Path, config: dict[str, Any]) -> Needs:
    (folder / "config.json").write_text(json.dumps(config))
    found = model_memory.of_folder(folder, "12.1")
    assert found is not None
    return found


def test_weights_of_a_folder_are_counted_from_its_files_or_else_from_its_shape(tmp_path: Path) -> None:
    # Two layers of 256 x 256 twice, 64 x 256 twice, and three of 512 x 256; the head and the embedding of 1024 x 256 words.
    counted = 2 * (2 * (2 * 256 * 256 + 2 * 64 * 256 + 3 * 512 * 256) + 2 * 1024 * 256)
    assert of(tmp_path, LLAMA).weights == counted
    assert of(tmp_path, LLAMA | {"tie_word_embeddings": True}).weights == counted - 2 * 1024 * 256
    for name in ("model-1.safetensors", "model-2.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(b"x" * 1000)
    assert of(tmp_path, LLAMA).weights == 2000
    for shard in tmp_path.glob("model-*"):
        shard.unlink()
    assert of(tmp_path, LLAMA).weights == 1000


def test_requests_of_each_kind_of_attention(tmp_path: Path) -> None:
    llama = of(tmp_path, LLAMA)  # 2 layers, keys and values of 2 heads of 32
    assert llama.request(BF16, 100, 1) == 100 * 2 * 2 * 2 * 32 * 2
    assert llama.request(FP8, 100, 2) == 100 * 2 * 2 * 1 * 32
    latent = of(tmp_path, GLM)  # 3 layers of 64 + 16 values, on every node
    assert latent.request(BF16, 10, 2) == latent.request(BF16, 10, 1) == 10 * 3 * 80 * 2
    hybrid = of(tmp_path, QWEN3_NEXT)  # 1 layer of attention, 3 of linear attention
    state = 3 * ((2 * 4 * 32 + 8 * 32) * 3 * 2 + 8 * 32 * 32 * 2)
    assert hybrid.state(1) == state
    assert hybrid.request(BF16, 10, 1) == 10 * 2 * 2 * 64 * 2 + state
    assert hybrid.request(BF16, 0, 2) == state / 2


@pytest.mark.parametrize("name", SHAPED)
def test_the_longest_request_that_fits(name: str) -> None:
    needs = model_memory.of_checkpoint(checkpoints.load(name), "12.1")
    assert needs is not None
    for size in (0.0, 1e6, 1e8, 1e9):
        tokens = needs.fitting(BF16, size, 1)
        assert tokens == 0 or needs.request(BF16, tokens, 1) <= size
        assert tokens == needs.longest or needs.request(BF16, tokens + 1, 1) > size


def test_every_recipes_checkpoint_is_known_and_weighs_what_is_published() -> None:
    assert [*checkpoints.known()] == SHAPED
    published = {"glm-4-7-flash-nvfp4": 20.4e9 - 1.04e9, "qwen3-coder-next-fp8": 80e9}
    for name, size in published.items():
        needs = model_memory.of_checkpoint(checkpoints.load(name), "12.1")
        assert needs is not None
        assert needs.weights == pytest.approx(size, rel=0.01)


def test_the_cache_of_a_checkpoint_that_names_its_format() -> None:
    named = model_memory.of_checkpoint(checkpoints.load("qwen3-6-27b-nvfp4"), "12.1")
    plain = model_memory.of_checkpoint(checkpoints.load("qwen3-coder-next-fp8"), "12.1")
    assert named is not None
    assert plain is not None
    assert [named.cache(kind) for kind in ("auto", "bfloat16", "what")] == [FP8, BF16, None]
    assert plain.cache("auto") == BF16


def test_folders_without_a_configuration_or_with_a_bad_one(tmp_path: Path) -> None:
    assert model_memory.of_folder(tmp_path, "12.1") is None
    with pytest.raises(StackError, match="is not supported yet"):
        of(tmp_path, {"model_type": "what"})
    with pytest.raises(StackError, match="cannot be divided among 3 nodes"):
        of(tmp_path, LLAMA).request(BF16, 1, 3)
