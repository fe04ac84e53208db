# SPDX-License-Identifier: Apache-2.0
"""A layer of experts on a GPU, the carried prefill kernels bound to it, and what both should compute in float32."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

ALPHA, BETA, LIMIT = 1.702, 1.0, 7.0
PARTS = {"plan": 1, "gather": 2, "up": 4, "down": 8, "combine": 16}
"""The launches, and their bits in the library's `parts`."""
_ALL = sum(PARTS.values())
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_SCALES = (118, 122)
"""Range of e8m0 codes, the end excluded, for which outputs are of the order of one."""
_ALIGNED, _PLANE = 4, 64


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Weights of experts: rows of up before those of gate, scales in rows and in the kernels' tiles."""

    w13: Any
    w13_scale: Any
    w13_bias: Any
    w2: Any
    w2_scale: Any
    w2_bias: Any

    @property
    def experts(self) -> int:
        """Number of experts."""
        return len(self.w13)


def drawn(experts: int, hidden: int, intermediate: int, seed: int) -> Layer:
    """Draw a layer."""
    draw = torch.Generator("cuda").manual_seed(seed)
    parts: list[Any] = []
    for rows, columns in ((2 * intermediate, hidden), (hidden, intermediate)):
        byte = {"generator": draw, "device": "cuda", "dtype": torch.uint8}
        parts.append(torch.randint(256, (experts, rows, columns // 2), **byte))
        parts.append(torch.randint(*_SCALES, (experts, rows, columns // 32), **byte))
        parts.append(torch.randn(experts, rows, generator=draw, device="cuda").bfloat16())
    return Layer(*parts)


def routed(tokens: int, experts: int, choices: int, seed: int, skew: float) -> tuple[Any, Any, Any]:
    """Draw logits, ids and weights. `skew` is the standard deviation by which experts differ in their logits."""
    draw = torch.Generator("cuda").manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=draw, device="cuda")
    logits = (logits + skew * torch.randn(experts, generator=draw, device="cuda")).bfloat16()
    best, ids = logits.float().topk(choices, -1)
    return logits, ids.int().contiguous(), best.softmax(-1).contiguous()


def reference(layer: Layer, x: Any, ids: Any, weights: Any, *, rounds: bool = False) -> Any:
    """Compute the experts in float32; `rounds`: as an ideal kernel does, which rounds the intermediate and the output to bfloat16."""
    out = torch.zeros(x.shape, device="cuda")
    for expert in range(layer.experts):
        rows, places = torch.nonzero(ids == expert, as_tuple=True)
        if not len(rows):
            continue
        both = x[rows].float() @ _values(layer.w13[expert], layer.w13_scale[expert]).T + layer.w13_bias[expert].float()
        up, gate = both.chunk(2, dim=1)
        up, gate = up.clamp(-LIMIT, LIMIT), gate.clamp(max=LIMIT)
        act = (up + BETA) * gate * torch.sigmoid(ALPHA * gate)
        act = act.bfloat16().float() if rounds else act
        down = act @ _values(layer.w2[expert], layer.w2_scale[expert]).T + layer.w2_bias[expert].float()
        out.index_add_(0, rows, weights[rows, places, None] * down)
    return out.bfloat16().float() if rounds else out


def bound(library: Path, layer: Layer, x: Any, ids: Any, weights: Any) -> Callable[..., Any]:
    """Bind the kernels to their arguments. The function takes `parts`, the launches that are wanted, and returns the output."""
    kernels = ctypes.CDLL(str(library))
    tokens, choices = ids.shape
    hidden, intermediate = x.shape[1], layer.w2.shape[2] * 2
    rows = kernels.prefill_rows(ids.numel(), layer.experts)
    words = {"dtype": torch.int32, "device": "cuda"}
    tiles = torch.empty(kernels.prefill_tiles(ids.numel(), layer.experts), 4, **words)
    count, row_of = torch.empty(_ALIGNED, **words), torch.empty(ids.numel(), **words)
    gathered, activated = (_planes(columns, rows) for columns in (hidden, intermediate))
    out = torch.full_like(x, torch.nan)
    scales = [_tiled(scale) for scale in (layer.w13_scale, layer.w2_scale)]
    kept = [x, layer.w13, scales[0], layer.w13_bias, layer.w2, scales[1], layer.w2_bias, ids, weights, None]
    kept += [tiles, count, row_of, gathered, activated, gathered, out]
    pointers = (ctypes.c_void_p * len(kept))(*(None if tensor is None else tensor.data_ptr() for tensor in kept))
    sizes = (ctypes.c_int * 10)(0, tokens, choices, layer.experts, rows, hidden, intermediate, hidden, intermediate, 0)

    def run(parts: int = _ALL) -> Any:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        numbers = (ctypes.c_float(number) for number in (ALPHA, BETA, LIMIT))
        if failed := kernels.prefill(pointers, sizes, *numbers, parts, stream):
            raise RuntimeError(f"CUDA error {failed}")
        return kept[-1]

    return run


def _planes(columns: int, rows: int) -> Any:
    return torch.full((-(-columns // _PLANE) * _PLANE * rows,), torch.nan, dtype=torch.bfloat16, device="cuda")


def _tiled(scales: Any) -> Any:
    rows, columns = scales.shape[1:]
    padded = torch.nn.functional.pad(scales, (0, -columns % 4, 0, -rows % 128))
    return padded.unflatten(2, (-1, 4)).unflatten(1, (-1, 4, 32)).permute(0, 1, 4, 3, 2, 5).contiguous()


def _values(codes: Any, scales: Any) -> Any:
    table = torch.tensor([*_E2M1, *(-value for value in _E2M1)], device="cuda")
    values = table[torch.stack([codes & 15, codes >> 4], -1).int()].flatten(-2)
    return (values.view(*scales.shape, 32) * torch.exp2(scales.float() - 127)[..., None]).flatten(-2)
