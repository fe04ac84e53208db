# SPDX-License-Identifier: Apache-2.0
"""Compute the outputs of the same weights with transformers, plainly in float32, and the outputs of faulty models.

A bound on a server's error means something only if it would notice a fault. So the reference also runs with one fault at a time, of
the kinds that kernels and loaders have had, and measures the error of each.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import GptOssForCausalLM

from stack.validation.model import mxfp4

Fault = Callable[[Any], object]
NEVER = -1e9
"""Value of a sink that has no effect."""


def load(folder: Path) -> Any:
    """Load the model of a folder with dequantized experts."""
    return GptOssForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def score(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """Compute the log-probability of each token except the first, given its predecessors."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


def answer(model: Any, tokens: Sequence[int], ends: Sequence[int], longest: int) -> tuple[list[int], list[float]]:
    """Generate the answer greedily; return its tokens and their log-probabilities."""
    tokens_out: list[int] = []
    likely: list[float] = []
    while len(tokens_out) < longest and not (tokens_out and tokens_out[-1] in ends):
        with torch.no_grad():
            best = model(torch.tensor([[*tokens, *tokens_out]]), logits_to_keep=1).logits[0, -1].log_softmax(-1).max(-1)
        tokens_out.append(int(best.indices))
        likely.append(float(best.values))
    return tokens_out, likely


def routed(model: Any, tokens: Sequence[int]) -> list[list[int]]:
    """Count the tokens that each expert of each layer gets."""
    counts: list[list[int]] = []

    def note(_: Any, __: Any, given: Any) -> None:
        counts.append(torch.bincount(given[2].flatten(), minlength=model.config.num_local_experts).tolist())

    hooks = [layer.mlp.router.register_forward_hook(note) for layer in model.model.layers]
    score(model, tokens)
    for hook in hooks:
        hook.remove()
    return counts


def faults(model: Any, tokens: Sequence[int]) -> Mapping[str, Fault]:
    """List faults by name. A doubled block is one of 32 values, in the expert of each layer that gets the fewest tokens."""
    least = [min(range(len(counts)), key=counts.__getitem__) for counts in routed(model, tokens)]
    longest = model.config.max_position_embeddings
    faults: dict[str, Fault] = {
        "no sinks": lambda faulty: _layers(faulty, lambda layer: layer.self_attn.sinks.fill_(NEVER)),
        "no window": lambda faulty: setattr(faulty.config, "sliding_window", longest),
        "window off by one": lambda faulty: setattr(faulty.config, "sliding_window", faulty.config.sliding_window - 1),
        "no YaRN": _plain_rope,
        "alpha 1": lambda faulty: _layers(faulty, lambda layer: setattr(layer.mlp.experts, "alpha", 1.0)),
        "no clamp": lambda faulty: _layers(faulty, lambda layer: setattr(layer.mlp.experts, "limit", float("inf"))),
        "gate and up swapped": lambda faulty: _layers(faulty, _swap_gate_and_up),
        "nibbles swapped": lambda faulty: _layers(faulty, _swap_nibbles),
        "scales of the next block": lambda faulty: _layers(faulty, lambda layer: _shift(layer.mlp.experts.gate_up_proj)),
        "no bias after the experts": lambda faulty: _layers(faulty, lambda layer: layer.mlp.experts.down_proj_bias.zero_()),
        "an expert too few": lambda faulty: _layers(
            faulty, lambda layer: setattr(layer.mlp.router, "top_k", layer.mlp.router.top_k - 1)
        ),
        "an expert doubled": lambda faulty: faulty.model.layers[0].mlp.experts.down_proj[least[0]].mul_(2),
    }
    for layer, expert in enumerate(least):
        for name in ("gate_up_proj", "down_proj"):
            faults[f"a block doubled in {name} of layer {layer}"] = _doubled(layer, expert, name)
    return faults


@contextmanager
def wrong(model: Any, fault: Fault) -> Iterator[None]:
    """Apply a fault to the model for the duration of the block."""
    weights = {
        name: value.clone() for name, value in model.state_dict().items() if "embed" not in name and "lm_head" not in name
    }
    rope, window = model.model.rotary_emb, model.config.sliding_window
    inverse, scaling = rope.inv_freq.clone(), rope.attention_scaling
    experts = [layer.mlp.experts for layer in model.model.layers]
    alpha, limit, top = experts[0].alpha, experts[0].limit, model.model.layers[0].mlp.router.top_k
    try:
        with torch.no_grad():
            fault(model)
        yield
    finally:
        model.load_state_dict(weights, strict=False)
        rope.inv_freq.copy_(inverse)
        rope.attention_scaling, model.config.sliding_window = scaling, window
        for each in experts:
            each.alpha, each.limit = alpha, limit
        for layer in model.model.layers:
            layer.mlp.router.top_k = top


def _layers(model: Any, fault: Callable[[Any], object]) -> None:
    for layer in model.model.layers:
        fault(layer)


def _plain_rope(model: Any) -> None:
    rope = model.model.rotary_emb
    inverse, _ = rope.compute_default_rope_parameters(model.config)
    rope.inv_freq.copy_(inverse)
    rope.attention_scaling = 1.0


def _swap_gate_and_up(layer: Any) -> None:
    _swap(layer.mlp.experts.gate_up_proj, 2)
    _swap(layer.mlp.experts.gate_up_proj_bias, 1)


def _swap_nibbles(layer: Any) -> None:
    _swap(layer.mlp.experts.gate_up_proj, 1)
    _swap(layer.mlp.experts.down_proj, 1)


def _swap(weight: torch.Tensor, dimension: int) -> None:
    """Swap neighbours along a dimension."""
    pairs = weight.unflatten(dimension, (-1, 2)).flip(dimension + 1).flatten(dimension, dimension + 1)
    weight.copy_(pairs)


def _shift(weight: torch.Tensor) -> None:
    """Give every block of inputs the largest value of the next one, which is nearly the effect of misplaced scales."""

    blocks = weight.unflatten(1, (-1, mxfp4.BLOCK))
    largest = blocks.abs().amax(2, keepdim=True).clamp(min=1e-30)
    weight.copy_((blocks / largest * largest.roll(1, 1)).flatten(1, 2))


def _doubled(layer: int, expert: int, name: str) -> Fault:
    def fault(model: Any) -> None:
        getattr(model.model.layers[layer].mlp.experts, name)[expert, : mxfp4.BLOCK, 0] *= 2

    return fault
