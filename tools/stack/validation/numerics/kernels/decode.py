# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's small-M kernels of the series mxfp4-decode: BF16 activations, MXFP4 weights.

They need no instruction of one GPU only: any from SM80 on can run them. Outputs are filled with NaN before each run, and computed
twenty times. This finds elements that are never written, and sums whose order changes.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.agreement import Agreement, Compared, bits
from stack.validation.numerics.blocks import MXFP4, Blocks, Rounding, nibbles_swapped, quantize
from stack.validation.numerics.experts import Experts
from stack.validation.numerics.formats import Bytes, bfloat16, encode, pack
from stack.validation.numerics.judging import wrongly_padded
from stack.validation.numerics.kernels import Kernel, cuda
from stack.validation.numerics.kernels.environment import gpu, missing
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.routes import Padded

CAPABLE = ("sm80", "sm90", "sm100", "sm120", "sm121")
MOST = 16
"""Largest number of tokens."""
RUNS = ContextVar("runs", default=20)
"""Number of runs of each kernel."""
UNREAD_SCALE = 0xFF
"""The scale of padding, which a kernel must not read."""
_CUTLASS = "FLASHINFER_CUTLASS_MXFP4_MXFP8"
"""The vLLM backend whose weight layout the kernel reads unchanged."""


class Unsteady(Exception):
    """Raised when the same inputs gave different bits."""


def steady(compute: Callable[[], npt.NDArray[np.float32]], runs: int | None = None) -> npt.NDArray[np.float32]:
    """Compute an output several times (`RUNS` by default), and return it if it is always the same.

    Raises:
        Unsteady: a run differs from the first in its bits; -0 differs from 0.

    """
    runs = RUNS.get() if runs is None else runs
    first = compute()
    for number in range(2, runs + 1):
        other = compute()
        if differ := int(np.count_nonzero(first.view(np.uint32) != other.view(np.uint32))):
            raise Unsteady(f"run {number} of {runs} differs from the first in {differ} of {first.size} outputs")
    return first


def tiled(scales: Bytes) -> Bytes:
    """Store scales [rows, blocks] in tiles of 128 rows by 4 blocks. In a tile, row r and block b are byte 16 (r % 32) + 4 (r / 32) + b.

    Scales that only fill the last tiles must not be read.
    """
    rows, blocks = -(-scales.shape[0] // 128), -(-scales.shape[1] // 4)
    whole = np.full((rows * 128, blocks * 4), UNREAD_SCALE, np.uint8)
    whole[: scales.shape[0], : scales.shape[1]] = scales
    return np.ascontiguousarray(whole.reshape(rows, 4, 32, blocks, 4).transpose(0, 3, 2, 1, 4)).ravel()


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out a checkpoint's weights for the CUTLASS path without its padding, by the kernel's argument names."""

    def halves(tensor: Any) -> Any:
        """Return the rows of up, then of gate; in the checkpoint they alternate, beginning with gate."""
        return tensor.reshape(len(tensor), -1, 2, *tensor.shape[2:]).movedim(2, 1).flip(1).flatten(1, 2).contiguous()

    def scales(tensor: Any) -> Any:
        return _gpu(np.concatenate([tiled(expert) for expert in tensor.cpu().numpy()]))

    return {
        "w13": halves(given["w13_weight"]),
        "w13_scale": scales(halves(given["w13_weight_scale"])),
        "w2": given["w2_weight"],
        "w2_scale": scales(given["w2_weight_scale"]),
        "w13_bias": halves(given["w13_bias"]),
        "w2_bias": given["w2_bias"],
    }


def padded(layer: Experts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Lay out a checkpoint's weights with vLLM's own code, which adds padding."""
    names = ("w13", "w2", "w13_scale", "w2_scale", "w13_bias", "w2_bias")
    with cuda.configured():
        return dict(zip(names, cuda.converted(_CUTLASS, layer, given), strict=True))


def experts(
    prepare: Callable[[Experts, Mapping[str, Any]], Mapping[str, Any]], layer: Experts, *, chooses: bool = False
) -> npt.ArrayLike:
    """Compute the experts of a layer. If only some of the experts are local, pass a map from all experts to these.

    `chooses`: the kernel selects the experts from the router's logits.

    Raises:
        RuntimeError: the outputs of tokens marked as padding are not zeros, or padding changes other tokens' outputs.
        Unsteady: the same inputs gave different bits.
        Unsteady: the same inputs gave other bits.

    """
    import torch  # noqa: PLC0415
    from flashinfer.fused_moe import mxfp4_moe_decode  # noqa: PLC0415

    here = slice(layer.elsewhere, None)
    weights = prepare(layer, {name: tensor[here].contiguous() for name, tensor in cuda.checkpoint(layer).items()})
    of_all = np.maximum(np.arange(layer.experts, dtype=np.int32) - layer.elsewhere, -1)
    x, (ids, shares) = _gpu(layer.inputs).bfloat16(), layer.route
    route: dict[str, Any] = {"topk_ids": _gpu(ids), "topk_weights": _gpu(shares)}
    if chooses:
        route = {"routing_logits": _gpu(layer.logits).bfloat16(), "top_k": layer.top}
    where = {"expert_map": _gpu(of_all)} if layer.elsewhere else {}
    if isinstance(layer, Padded):
        where["is_padding"] = _gpu(layer.padding != 0)

    def once(x: Any = x, **more: Any) -> npt.NDArray[np.float32]:
        out = torch.full_like(x, torch.nan)
        sizes = {"intermediate_size": layer.intermediate, **asdict(layer.glu)}
        mxfp4_moe_decode(x, **weights, **{**route, **where, **sizes, **more}, out=out)
        return _array(out)

    whole = steady(once)
    if chooses and not isinstance(layer, Padded):
        padding = np.arange(layer.tokens) % 3 == 1
        marked, logits = _gpu(padding), route["routing_logits"]
        spoiled = x.masked_fill(marked[:, None], torch.nan)
        chosen = torch.where(marked[:, None], logits.roll(1, dims=-1), logits)
        output = steady(partial(once, is_padding=marked))
        if wrong := wrongly_padded(output, once(spoiled, routing_logits=chosen, is_padding=marked), whole, padding):
            raise RuntimeError(wrong)
    return whole


def gemv(layer: Linear) -> npt.ArrayLike:
    """Compute a dense layer with its MXFP4 weight laid out as in a checkpoint."""
    import torch  # noqa: PLC0415
    from flashinfer.gemm import mxfp4_gemv  # noqa: PLC0415

    codes, scales, bias = cuda.four_bits(layer)
    x = _gpu(layer.x).bfloat16()

    def once() -> npt.NDArray[np.float32]:
        out = torch.full((layer.tokens, layer.outputs), torch.nan, dtype=torch.bfloat16, device="cuda")
        mxfp4_gemv(x, codes, scales, bias if layer.bias else None, out=out)
        return _array(out)

    return steady(once)


def difficult() -> npt.NDArray[np.float32]:
    """Draw bfloat16 numbers that are hard to quantize: [rows, 256], with every kind of block that the format treats specially."""
    draw = np.random.default_rng(3)
    numbers = draw.standard_normal((512, 256)) * np.exp2(draw.integers(-130, 125, (512, 8))).repeat(32, axis=1)
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0])
    numbers[0] = np.tile(np.concatenate([ties, -ties]), 16)
    numbers[1] = np.tile(np.concatenate([ties * (1 + 2.0**-7), ties * (1 - 2.0**-8)]), 16)  # their neighbours
    numbers[2] = 0.0
    numbers[3] = -0.0
    numbers[4, ::32] = np.nan
    numbers[5, 5::64] = np.inf
    numbers[6, 9::64] = -np.inf
    numbers[7] = 2.0**-130 * draw.integers(-8, 9, 256)  # subnormal numbers
    numbers[8] = np.where(draw.random(256) < 0.5, 1, -1) * 3.3895e38
    with np.errstate(over="ignore"):
        return bfloat16(numbers)


def quantized(rounding: Rounding) -> Compared:
    """Compare codes and scales of difficult numbers."""
    from flashinfer.gemm import mxfp4_weight_quantize  # noqa: PLC0415

    numbers = difficult()
    given = _gpu(numbers).bfloat16()
    codes, scales = (part.cpu().numpy() for part in mxfp4_weight_quantize(given, scale_rounding=rounding.value))
    ours = _both(quantize(MXFP4, numbers, rounding))
    return Compared(ours, _both(Blocks(MXFP4, codes, scales)), wrongly_quantized(numbers, rounding))


def wrongly_quantized(numbers: npt.NDArray[np.float32], rounding: Rounding) -> dict[str, Bytes]:
    """Return the results of wrong quantizers."""
    right = quantize(MXFP4, numbers, rounding)
    usable = np.isfinite(right.factors()) & np.isfinite(numbers).reshape(*right.scales.shape, -1).all(axis=2)
    blocked = np.where(usable[..., None], numbers.reshape(*right.scales.shape, -1).astype(np.float64), 0)
    elements = (blocked / np.where(usable, right.factors(), 1)[..., None]).reshape(numbers.shape)
    away, cut = (pack(encode(MXFP4.element, elements * more, cut=cut)) for more, cut in ((1 + 2.0**-40, False), (1, True)))
    return {
        **{f"scales rounded {other}": _both(quantize(MXFP4, numbers, other)) for other in Rounding if other is not rounding},
        "ties away from zero": np.concatenate([away.ravel(), right.scales.ravel()]),
        "rounded towards zero": np.concatenate([cut.ravel(), right.scales.ravel()]),
        "nibbles swapped": _both(Blocks(MXFP4, nibbles_swapped(right.codes), right.scales)),
        "scales shifted by a block": _both(right.scales_shifted()),
    }


def dequantized() -> Compared:
    """Compare every byte of codes under every scale whose values are normal bfloat16 numbers."""
    from flashinfer.gemm import mxfp4_weight_dequantize  # noqa: PLC0415

    scales = np.arange(3, 252, dtype=np.uint8)
    codes = np.tile(np.arange(256, dtype=np.uint8), (len(scales), 1))
    blocks = Blocks(MXFP4, codes, scales[:, None].repeat(16, axis=1))
    theirs = _array(mxfp4_weight_dequantize(_gpu(blocks.codes), _gpu(blocks.scales)))
    wrong = {"nibbles swapped": blocks.nibbles_swapped().single(), "another bias": blocks.single() * 2}
    return Compared(bits(blocks.single()), bits(theirs), {name: bits(values) for name, values in wrong.items()})


def lacks(*packages: str) -> str:
    """Return why none of these kernels runs on this machine; empty if they do."""
    return gpu(*CAPABLE) or missing("flashinfer", *packages)


def _both(blocks: Blocks) -> Bytes:
    return np.concatenate([blocks.codes.ravel(), blocks.scales.ravel()])


def _gpu(array: npt.NDArray[Any]) -> Any:
    import torch  # noqa: PLC0415

    return torch.from_numpy(np.array(array)).cuda()


def _array(tensor: Any) -> npt.NDArray[np.float32]:
    return np.asarray(tensor.float().cpu().numpy())


EXPERTS = (
    Kernel("mxfp4-decode", CAPABLE, lacks, partial(experts, lambda _, given: plain(given))),
    Kernel("mxfp4-decode-choosing", CAPABLE, lacks, partial(experts, lambda _, given: plain(given), chooses=True)),
    Kernel("mxfp4-decode-padded", CAPABLE, lambda: lacks("vllm"), partial(experts, padded)),
)
LINEAR = (Kernel("mxfp4-gemv", CAPABLE, lacks, gemv),)
AGREEMENTS = (
    Agreement("mxfp4-quantize-floor/gpu", "flashinfer", partial(quantized, Rounding.FLOOR), lacks, CAPABLE),
    Agreement("mxfp4-quantize-even/gpu", "flashinfer", partial(quantized, Rounding.EVEN), lacks, CAPABLE),
    Agreement("mxfp4-dequantize/gpu", "flashinfer", dequantized, lacks, CAPABLE),
)
