# SPDX-License-Identifier: Apache-2.0
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints

OURS = checkpoints.load("gpt-oss-120b").shape
assert OURS is not None
SHAPE = asdict(OURS)
GPT_OSS = [name for name in checkpoints.known() if checkpoints.load(name).shape is not None]


@pytest.mark.parametrize("name", sorted(SHAPE))
@pytest.mark.parametrize("value", [10**9, 10**30])
def test_a_configuration_cannot_ask_for_a_billion_layers(tmp_path: Path, name: str, value: int) -> None:
    """Each layer has a cache of its own, for which memory is taken."""
    with pytest.raises(StackError, match=f"{name} is (too large|10)"):
        checkpoints.shape_of(SHAPE | {name: value}, tmp_path / "config.json")


def test_what_nobody_has_seen_is_left_out() -> None:
    found = [checkpoints.load(name) for name in checkpoints.known()]
    assert GPT_OSS == ["gpt-oss-120b", "gpt-oss-20b"]
    assert {one.name for one in found if one.revision is None} == {
        "qwen3-6-27b-nvfp4",
        "nemotron-3-super-nvfp4",
        "glm-4-7-flash-nvfp4",
        "nemotron-3-nano-nvfp4",
        "qwen3-coder-next-fp8",
    }
    assert {one.name for one in found if one.size is None} == {one.name for one in found if one.revision is None} - {
        "qwen3-6-27b-nvfp4"
    }


@pytest.mark.parametrize("name", GPT_OSS)
def test_all_can_be_read_and_have_the_parameters_that_their_names_say(name: str) -> None:
    shape = checkpoints.load(name).shape
    assert shape is not None
    layers, heads = shape.num_hidden_layers, shape.num_attention_heads
    experts = layers * shape.num_local_experts * 3 * shape.hidden_size * shape.intermediate_size
    attention = layers * (2 * heads + 2 * shape.num_key_value_heads) * shape.head_dim * shape.hidden_size
    dense = attention + 2 * shape.vocab_size * shape.hidden_size
    named = {"gpt-oss-120b": 116.8e9, "gpt-oss-20b": 20.9e9}[name]  # as their model card says
    assert experts + dense == pytest.approx(named, rel=0.005)
    # Experts have 4.25 bits, all else 16.
    assert checkpoints.load(name).size == pytest.approx(experts * 4.25 / 8 + dense * 2, rel=0.005)


def test_unknown() -> None:
    with pytest.raises(StackError, match=r"unknown checkpoint 'gpt-4'.*gpt-oss-120b, gpt-oss-20b"):
        checkpoints.load("gpt-4")


def test_a_configuration_of_somebodys_own(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SHAPE | {"hidden_size": 512, "model_type": "gpt_oss", "rope_scaling": {"factor": 32.0}}))
    assert asdict(checkpoints.shape(file)) == SHAPE | {"hidden_size": 512}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "is not a JSON object"),
        (json.dumps(SHAPE | {"head_dim": 0}), "head_dim is 0"),
        (json.dumps(SHAPE | {"head_dim": "64"}), "head_dim is '64'"),
        (json.dumps({"hidden_size": 1}), "intermediate_size is missing"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(StackError, match=said):
        checkpoints.shape(file)


def test_a_configuration_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"x\.json is missing: name the config\.json of a checkpoint"):
        checkpoints.shape(tmp_path / "x.json")
