# SPDX-License-Identifier: Apache-2.0
"""The goals of speed of the decode kernels (docs/decode-kernels.md), which verdicts are judged by. The laboratory measures them."""

from collections.abc import Iterator
from dataclasses import dataclass

MOE, SATURATED, QKV_O, LM_HEAD = "moe", "moe, all experts", "qkv + o", "lm_head"
"""The parts of a model that are measured."""
SHARE = 0.85


@dataclass(frozen=True, slots=True)
class DecodeGoal:
    """A goal for our kernel on one part of the model, with `tokens` tokens.

    `least` is how many times as fast as the fastest of `others` it must be; without others, its share of the bandwidth of a copy.
    """

    name: str
    part: str
    tokens: int
    others: tuple[str, ...]
    least: float


def _goals() -> Iterator[DecodeGoal]:
    yield DecodeGoal("MoE, all 128 experts touched, of the copy's bandwidth", SATURATED, 16, (), SHARE)
    yield DecodeGoal("lm_head, of the copy's bandwidth", LM_HEAD, 1, (), SHARE)
    for tokens in (1, 2, 4, 8):
        for other, least in (("marlin", 1.6), ("triton", 1.6), ("flashinfer-sm90", 1.0)):
            yield DecodeGoal(f"MoE, M = {tokens}, times as fast as {other}", MOE, tokens, (other,), least)
        for other, least in (("marlin", 2.0), ("cublas-bf16", 1.8)):
            yield DecodeGoal(f"qkv + o, M = {tokens}, times as fast as {other}", QKV_O, tokens, (other,), least)
    for part, others in ((MOE, ("marlin", "triton")), (QKV_O, ("marlin", "cublas-bf16"))):
        yield DecodeGoal(f"{part}, M = 16, times as fast as the better of {' and '.join(others)}", part, 16, others, 1.0)


GOALS = tuple(_goals())
