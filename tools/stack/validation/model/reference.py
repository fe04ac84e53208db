# SPDX-License-Identifier: Apache-2.0
"""What transformers says of the same weights, computed plainly in float32; and what a wrong model would say.

A bound on how far a server may be off means something only if it would notice a fault. So the reference is run again with one
fault each, those that kernels and loaders have had, and says how far off every one of them is.
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
"""A sink that takes nothing."""


def load(folder: Path) -> Any:
    """The model of a folder with dequantised experts."""
    return GptOssForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def score(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """The log-probability of each token but the first, given those before it."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0, :-1]
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]


def answer(model: Any, tokens: Sequence[int], ends: Sequence[int], longest: int) -> tuple[list[int], list[float]]:
    """What follows, the likeliest token each time, and its log-probability."""
    found: list[int] = []
    likely: list[float] = []
    while len(found) < longest and not (found and found[-1] in ends):
        with torch.no_grad():
            best = model(torch.tensor([[*tokens, *found]]), logits_to_keep=1).logits[0, -1].log_softmax(-1).max(-1)
        found.append(int(best.indices))
        likely.append(float(best.values))
    return found, likely


def routed(model: Any, tokens: Sequence[int]) -> list[list[int]]:
    """How many of the tokens each expert of each layer gets."""
    counts: list[list[int]] = []

    def note(_: Any, __: Any, given: Any) -> None:
        counts.append(torch.bincount(given[2].flatten(), minlength=model.config.num_local_experts).tolist())

    hooks = [layer.mlp.router.register_forward_hook(note) for layer in model.model.layers]
    score(model, tokens)
    for hook in hooks:
        hook.remove()
    return counts


def faults(model: Any, tokens: Sequence[int]) -> Mapping[str, Fault]:
    """Faults by name. A doubled block is one of 32 values, in the expert of each layer that gets the fewest tokens."""
    least = [min(range(len(counts)), key=counts.__getitem__) for counts in routed(model, tokens)]
    longest = model.config.max_position_embeddings
    found: dict[str, Fault] = {
        "no sinks": lambda one: _layers(one, lambda layer: layer.self_attn.sinks.fill_(NEVER)),
        "no window": lambda one: setattr(one.config, "sliding_window", longest),
        "window off by one": lambda one: setattr(one.config, "sliding_window", one.config.sliding_window - 1),
        "no YaRN": _plain_rope,
        "alpha 1": lambda one: _layers(one, lambda layer: setattr(layer.mlp.experts, "alpha", 1.0)),
        "no clamp": lambda one: _layers(one, lambda layer: setattr(layer.mlp.experts, "limit", float("inf"))),
        "gate and up swapped": lambda one: _layers(one, _swap_gate_and_up),
        "nibbles swapped": lambda one: _layers(one, _swap_nibbles),
        "scales of the next block": lambda one: _layers(one, lambda layer: _shift(layer.mlp.experts.gate_up_proj)),
        "no bias after the experts": lambda one: _layers(one, lambda layer: layer.mlp.experts.down_proj_bias.zero_()),
        "an expert too few": lambda one: _layers(
            one, lambda layer: setattr(layer.mlp.router, "top_k", layer.mlp.router.top_k - 1)
        ),
        "an expert doubled": lambda one: one.model.layers[0].mlp.experts.down_proj[least[0]].mul_(2),
    }
    for layer, expert in enumerate(least):
        for name in ("gate_up_proj", "down_proj"):
            found[f"a block doubled in {name} of layer {layer}"] = _doubled(layer, expert, name)
    return found


@contextmanager
def wrong(model: Any, fault: Fault) -> Iterator[None]:
    """The model with a fault for as long as the block runs."""
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
        for one in experts:
            one.alpha, one.limit = alpha, limit
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
    """Exchange neighbours."""
    pairs = weight.unflatten(dimension, (-1, 2)).flip(dimension + 1).flatten(dimension, dimension + 1)
    weight.copy_(pairs)


def _shift(weight: torch.Tensor) -> None:
    """Give every block of inputs the largest value of the next one: what a wrong place of the scales does, nearly."""
    blocks = weight.unflatten(1, (-1, mxfp4.BLOCK))
    largest = blocks.abs().amax(2, keepdim=True).clamp(min=1e-30)
    weight.copy_((blocks / largest * largest.roll(1, 1)).flatten(1, 2))


def _doubled(layer: int, expert: int, name: str) -> Fault:
    def fault(model: Any) -> None:
        getattr(model.model.layers[layer].mlp.experts, name)[expert, : mxfp4.BLOCK, 0] *= 2

    return fault
