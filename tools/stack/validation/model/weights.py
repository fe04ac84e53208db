# SPDX-License-Identifier: Apache-2.0
"""Generate the weights of a tiny gpt-oss with two layers: a few set by hand, so that its answers are known, the others random.

It speaks harmony: it thinks a sentence, then answers. Asked to echo letters ("echo q x m"), it answers with these. Given tools, it
calls `get_weather`. The circuit is the smallest that can do so. In the first layer, one head looks at the previous token. In the
second layer, one head finds an earlier occurrence of the present token and copies the token that followed it, and two heads detect
whether it has thought already, and whether there are tools. Everything random (embeddings, experts, other heads) changes only the
log-probabilities, so that a fault in any part of the model is visible there.

A hidden state has a dimension for each token of the circuit, one for each as the previous token, one for each letter to echo, and two
flags. The rest is random.
"""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from stack.validation.model import expected_replies, mxfp4, vocabulary
from stack.validation.model.config import COMMON, MXFP4, THETA, VOCABULARY

HIDDEN, INTERMEDIATE, LAYERS = 256, 128, 2
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
EXPERTS, TOP = 8, 4
CONFIG: dict[str, Any] = COMMON | {
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": TOP,
    "layer_types": ["sliding_attention", "full_attention"],
    "swiglu_alpha": 1.702,
}

LETTERS = tuple(f" {letter}" for letter in expected_replies.LETTERS)

Weights = dict[str, torch.Tensor]


class _Circuit:
    """The tokens of the circuit, with their dimensions in a hidden state."""

    def __init__(self) -> None:
        words = [*LETTERS, " echo", expected_replies.echo(()), expected_replies.call(), "namespace"]
        self.tokens = list(dict.fromkeys(token for word in words for token in vocabulary.encode(word)))
        assert len(self.tokens) <= HEAD_DIM

    def now(self, word: str) -> int:
        """Return the dimension of a token as the present one."""
        (token,) = vocabulary.encode(word)
        return self.tokens.index(token)

    def before(self, word: str) -> int:
        """Return the dimension of a token as the previous one."""
        return HEAD_DIM + self.now(word)


ECHOED = 2 * HEAD_DIM
"""First dimension of the letters to echo."""
THOUGHT_FLAG = ECHOED + len(LETTERS)
TOOLS_FLAG = THOUGHT_FLAG + 1
FREE = 160
"""First random dimension."""

_LOUD = 8.0
"""Magnitude of a circuit token in its embedding."""
_SLOW = tuple(range(18, 32))
"""Dimension pairs of a head that YaRN rotates so slowly that distance hardly matters (at most 3.8e-5 rad per token)."""
_FAST = tuple(range(8))
"""Dimension pairs that YaRN leaves unchanged."""


def write(folder: Path, *, packed: bool) -> None:
    """Write the checkpoint, with its experts in MXFP4 or decoded to BF16, which is exact."""
    config = CONFIG | ({"quantization_config": MXFP4} if packed else {})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    ends = {"eos_token_id": [200002, 200012, 199999], "pad_token_id": 199999}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    weights = made()
    if not packed:
        weights = dequantised(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the image's user has another id, and must be able to read it


def made() -> Weights:
    """Generate all weights as in the checkpoint: BF16, experts in MXFP4."""
    random = torch.Generator().manual_seed(6)

    def normal(*shape: int, spread: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * spread

    circuit = _Circuit()
    weights = {
        "model.embed_tokens.weight": _embeddings(circuit, normal),
        "model.norm.weight": 1 + normal(HIDDEN, spread=0.02),
        "lm_head.weight": _head(circuit, normal),
    }
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        weights |= {f"{place}.{name}_layernorm.weight": 1 + normal(HIDDEN, spread=0.02) for name in ("input", "post_attention")}
        attention = _random_attention(normal)
        if layer == 0:
            _look_back(attention)
        else:
            _look_up(circuit, attention)
        weights |= {f"{place}.self_attn.{name}": value for name, value in attention.items()}
        weights |= {f"{place}.mlp.{name}": value for name, value in _experts(normal, random).items()}
    return {name: value if value.dtype == torch.uint8 else value.bfloat16().contiguous() for name, value in weights.items()}


def dequantised(weights: Weights) -> Weights:
    """Convert the experts to BF16 in the layout of unquantized checkpoints (`[expert, in, out]`)."""
    converted = dict(weights)
    for name in [name for name in weights if name.endswith("_blocks")]:
        stem = name.removesuffix("_blocks")
        matrix = mxfp4.unpack(converted.pop(name), converted.pop(f"{stem}_scales"))
        converted[stem] = matrix.transpose(1, 2).bfloat16().contiguous()
        assert torch.equal(converted[stem].float(), matrix.transpose(1, 2))
    return converted


def _embeddings(circuit: _Circuit, normal: Any) -> torch.Tensor:
    table = normal(VOCABULARY, HIDDEN)
    table[:, :FREE] *= 0.02
    for place, token in enumerate(circuit.tokens):
        table[token, :FREE] = 0
        table[token, place] = _LOUD
    return table


def _head(circuit: _Circuit, normal: Any) -> torch.Tensor:
    """Set which token follows which. The largest logit wins; a margin of 6 or more is far above the random part."""
    table = normal(VOCABULARY, HIDDEN, spread=0.06)

    def follows(word: str, place: int, weight: float) -> None:
        (token,) = vocabulary.encode(word)
        table[token, place] += weight / 6

    for chain in (
        f"{expected_replies.THOUGHT}<|end|><|start|>assistant<|channel|>",
        expected_replies.SAID,
        f"{expected_replies.NOTHING}<|return|>",
        "<|constrain|>json<|message|>",
    ):
        _chain(circuit, table, vocabulary.encode(chain))
    call = vocabulary.encode(expected_replies.CALL)
    message = call.index(*vocabulary.encode("<|message|>"))
    _chain(circuit, table, call[:message])
    _chain(circuit, table, call[message + 1 :])
    for channel in ("analysis", "final"):
        follows("<|message|>", circuit.now(channel), 40)
    for channel, word in (("analysis", "User"), ("final", "I"), ("json", '{"')):
        follows(word, circuit.before(channel), 40)
    commentary = "comment"
    for word, always, thought, tools in (("analysis", 22, 0, 0), ("final", 16, 10, 0), (commentary, 6, 14, 10)):
        follows(word, circuit.now("<|channel|>"), always)
        follows(word, THOUGHT_FLAG, thought)
        follows(word, TOOLS_FLAG, tools)
    follows(expected_replies.NOTHING, circuit.now(" echo"), 24)
    for number, letter in enumerate(LETTERS):
        follows("<|return|>", circuit.now(letter), 36)
        follows(letter, ECHOED + number, 72)
    return table


def _chain(circuit: _Circuit, table: torch.Tensor, tokens: list[int]) -> None:
    for now, after in itertools.pairwise(tokens):
        table[after, circuit.tokens.index(now)] += 40 / 6


def _random_attention(normal: Any) -> Weights:
    attention = {}
    for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
        attention[f"{name}_proj.weight"] = normal(rows * HEAD_DIM, HIDDEN, spread=0.06)
        attention[f"{name}_proj.bias"] = normal(rows * HEAD_DIM, spread=0.1)
    attention["o_proj.weight"] = normal(HIDDEN, HEADS * HEAD_DIM, spread=0.06)
    attention["o_proj.weight"][:FREE] *= 0.05
    attention["o_proj.bias"] = normal(HIDDEN, spread=0.05)
    attention["sinks"] = 1 + normal(HEADS)
    return attention


def _plain(attention: Weights, name: str, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weight and bias of one head, set to zero."""
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    weight, bias = attention[f"{name}_proj.weight"][rows], attention[f"{name}_proj.bias"][rows]
    weight.zero_()
    bias.zero_()
    return weight, bias


def _look_back(attention: Weights) -> None:
    """Make the first head of the first layer attend to the previous token, by position only, and copy its dimension."""
    (_, q), (_, k), (v, _) = (_plain(attention, name, 0) for name in "qkv")
    for pair in _FAST:
        turn = THETA ** (-2 * pair / HEAD_DIM)
        k[pair] = 8.5
        q[pair], q[pair + HEAD_DIM // 2] = 8.5 * math.cos(turn), -8.5 * math.sin(turn)
    attention["sinks"][0] = 0
    out = attention["o_proj.weight"][:, :HEAD_DIM]
    out.zero_()
    for place in range(HEAD_DIM):
        v[place, place] = 1
        out[HEAD_DIM + place, place] = 1


def _look_up(circuit: _Circuit, attention: Weights) -> None:
    """Set three heads of the second layer: what followed an earlier occurrence; has it thought; are there tools."""
    slow = [pair + half for half in (0, HEAD_DIM // 2) for pair in _SLOW]
    (q, _), (k, _), (v, _) = (_plain(attention, name, 0) for name in "qkv")
    for dimension, word in zip(slow, (*LETTERS, " echo"), strict=False):
        q[dimension, circuit.now(word)] = 1.5
        k[dimension, circuit.before(word)] = 1.5
    out = attention["o_proj.weight"]
    out[:, :HEAD_DIM] = 0
    for number, letter in enumerate(LETTERS):
        v[number, circuit.now(letter)] = 1
        out[ECHOED + number, number] = 1
    attention["sinks"][0] = 10
    k, _ = _plain(attention, "k", 1)
    v, _ = _plain(attention, "v", 1)
    for head, word, flag in ((2, "analysis", THOUGHT_FLAG), (3, "namespace", TOOLS_FLAG)):
        _, bias = _plain(attention, "q", head)
        bias[slow[head]] = 8
        k[slow[head], circuit.now(word)] = 2.5
        v[head, circuit.now(word)] = 1
        out[:, head * HEAD_DIM : (head + 1) * HEAD_DIM] = 0
        out[flag, head * HEAD_DIM + head] = 0.8
        attention["sinks"][head] = 12


def _experts(normal: Any, random: torch.Generator) -> Weights:
    layer = {"router.weight": normal(EXPERTS, HIDDEN, spread=0.08), "router.bias": normal(EXPERTS, spread=0.1)}
    sizes = (("gate_up", 2 * INTERMEDIATE, HIDDEN, 122), ("down", HIDDEN, INTERMEDIATE, 115))
    for name, rows, columns, exponent in sizes:
        codes = torch.randint(0, 16, (EXPERTS, rows, columns), generator=random)
        scales = torch.randint(exponent, exponent + 3, (EXPERTS, rows, columns // mxfp4.BLOCK), generator=random)
        layer[f"experts.{name}_proj_blocks"] = mxfp4.pack(codes)
        layer[f"experts.{name}_proj_scales"] = scales.to(torch.uint8)
        layer[f"experts.{name}_proj_bias"] = normal(EXPERTS, rows, spread=0.3 if name == "gate_up" else 0.05)
    return layer
