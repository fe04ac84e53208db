# SPDX-License-Identifier: Apache-2.0
"""The way from what a release makes of a gpt-oss checkpoint to a recipe, one change at a time."""

from dataclasses import replace
from typing import Any

from stack.serving import layout
from stack.serving.layout import Layout


def way(laid_out: Layout) -> tuple[tuple[str, Layout], ...]:
    """List the layouts from the pinned release's to the given one, one change at a time, each with its description."""
    plain = (laid_out.dense,) * laid_out.shape.num_hidden_layers
    start = replace(
        laid_out,
        qkv=plain,
        o=plain,
        lm_head=laid_out.dense,
        kv=laid_out.dense,
        rounding=layout.rounding(laid_out.moe, released=True),
    )
    changes = (
        _dense_change(laid_out),
        (f"lm_head in {laid_out.lm_head.name}", {"lm_head": laid_out.lm_head}),
        *_paddings(start, laid_out),
        (f"KV in {laid_out.kv.name}", {"kv": laid_out.kv}),
    )
    found = [(f"as released: dense layers in {laid_out.dense.name}, {_experts(start)}", start)]
    for title, change in changes:
        after = replace(found[-1][1], **change)
        if after != found[-1][1]:
            found.append((title, after))
    return tuple(found)


def _dense_change(laid_out: Layout) -> tuple[str, dict[str, Any]]:
    qkv, o = (", ".join(dict.fromkeys(form.name for form in each)) for each in (laid_out.qkv, laid_out.o))
    title = f"qkv and o in {qkv}" if qkv == o else f"qkv in {qkv}, o in {o}"
    return title, {"qkv": laid_out.qkv, "o": laid_out.o}


def _paddings(start: Layout, laid_out: Layout) -> list[tuple[str, dict[str, Any]]]:
    """List paddings that shrink step by step; CUTLASS's lies between the release's Marlin and this stack's."""
    found: list[tuple[str, dict[str, Any]]] = []
    least = start.hidden
    for multiples in (layout.rounding("FLASHINFER_CUTLASS"), laid_out.rounding):
        padded = replace(start, rounding=multiples)
        if laid_out.hidden <= padded.hidden < least:
            found.append((_experts(padded), {"rounding": multiples}))
            least = padded.hidden
    return found


def _experts(laid_out: Layout) -> str:
    return f"experts {laid_out.hidden} x {laid_out.intermediate}"
