# SPDX-License-Identifier: Apache-2.0
"""Run FlashInfer's MXFP4 decode kernels thread by thread on a CPU.

Each problem runs twice: with threads in their own order and in a random one, and with and without an early launch. All outputs must be
the same to the bit. Padding beyond the real sizes is large here, where vLLM has zeros: a kernel must not read it.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from laboratory.emulated import SHARED_LIMIT, BufferKind, LaunchShape, Machine, bfloat16_bits, from_bfloat16_bits
from stack.validation.numerics import EMULATED
from stack.validation.numerics.agreement import Bits, Compared
from stack.validation.numerics.blocks import MXFP4, Blocks, Rounding, quantize
from stack.validation.numerics.experts import Expert, Experts, Sizes
from stack.validation.numerics.formats import Bytes, Single, bfloat16, decode_e8m0
from stack.validation.numerics.kernels.decode import UNREAD_SCALE, tiled
from stack.validation.numerics.kernels.emulated import PROCESSORS
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.routes import Many

_UNKNOWN = 5
"""Number of logits beyond the experts that the map knows."""
LAUNCHES = 2
"""Most launches of a mixture of experts."""
_ACTIVATED_STAGE = 272
"""Bytes for 128 columns of an entry's intermediate result, which the first launch passes to the second."""
_UNREAD_CODES = 0x77
_PARTS = 6
"""Arrays of an expert."""
_NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE, which Python 3.11 does not name."""
_ORDERS = ((0, True), (7, False))
"""Pairs of the seed of the threads' order, and whether a kernel may begin before its predecessor has ended."""

_FEW_PROCESSORS = 3
"""Multiprocessors for the experts' kernels: with few of them a warp has several pieces of work instead of one."""


def machine() -> Machine:
    """Load the emulated machine with the kernels."""
    return Machine.load(Path(os.environ[EMULATED]))


@dataclass(frozen=True, slots=True)
class Stored:
    """The weights of the local experts, one expert after the other: bytes, and bfloat16 as bits."""

    up: Bytes
    up_scales: Bytes
    up_bias: npt.NDArray[np.uint16] | None
    down: Bytes
    down_scales: Bytes
    down_bias: npt.NDArray[np.uint16] | None
    places: npt.NDArray[np.int32]
    """Index of each of all experts in these arrays; -1 if it is not local."""


def stored(layer: Experts, sizes: Sizes) -> Stored:
    """Lay out the weights of a layer as vLLM passes them to the kernels: up's rows before gate's, scales tiled, padded to `sizes`."""
    here = range(layer.experts - 1, layer.elsewhere - 1, -1)  # reversed, so that places differ from ids
    places = np.full(layer.experts, -1, np.int32)
    places[here] = np.arange(len(here))
    if isinstance(layer, Many):
        experts = {int(places[number]): _laid_out(layer.expert(int(number)), sizes) for number in np.unique(layer.route[0])}
        parts = [_sparse(len(here), {place: expert[each] for place, expert in experts.items()}) for each in range(_PARTS)]
    else:
        parts = [np.stack(each) for each in zip(*(_laid_out(layer.expert(number), sizes) for number in here), strict=True)]
    up, up_scales, up_bias, down, down_scales, down_bias = parts
    return Stored(up, up_scales, up_bias if layer.bias else None, down, down_scales, down_bias if layer.bias else None, places)


def _laid_out(expert: Expert, sizes: Sizes) -> tuple[npt.NDArray[Any], ...]:
    """Lay out an expert: codes, scales and biases of the first weight, then of the second."""
    hidden, intermediate = sizes
    first = [_half(expert.gate_up, half, intermediate, hidden) for half in (1, 0)]
    second = _padded(expert.down, hidden, intermediate)
    biases = [_wide(expert.gate_up_bias[half::2], intermediate) for half in (1, 0)]
    return (
        np.concatenate([half.codes for half in first]),
        tiled(np.concatenate([half.scales for half in first])),
        bfloat16_bits(np.concatenate(biases)),
        second.codes,
        tiled(second.scales),
        bfloat16_bits(_wide(expert.down_bias, hidden)),
    )


def _sparse(count: int, parts: Mapping[int, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Make an array of `count` parts. Only these take memory: the others read as zeros."""
    part = next(iter(parts.values()))
    room = mmap.mmap(-1, count * part.nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    whole = np.frombuffer(room, part.dtype).reshape(count, *part.shape)
    for place, given in parts.items():
        whole[place] = given
    return whole


def _half(gate_up: Blocks, half: int, rows: int, columns: int) -> Blocks:
    """Extract gate's rows (0) or up's (1)."""
    return _padded(Blocks(gate_up.form, gate_up.codes[half::2], gate_up.scales[half::2]), rows, columns)


def _padded(blocks: Blocks, rows: int, columns: int) -> Blocks:
    codes = np.full((rows, columns // 2), _UNREAD_CODES, np.uint8)
    scales = np.full((rows, columns // 32), UNREAD_SCALE, np.uint8)
    codes[: blocks.codes.shape[0], : blocks.codes.shape[1]] = blocks.codes
    scales[: blocks.scales.shape[0], : blocks.scales.shape[1]] = blocks.scales
    return Blocks(blocks.form, codes, scales)


def _wide(bias: Single, size: int) -> Single:
    """Extend a bias to the stored size, with large values that must not be read."""
    return np.concatenate([bias, np.full(size - len(bias), 2.0**100, np.float32)])


def decoded(
    cpu: Machine,
    layer: Experts,
    sizes: Sizes,
    *,
    chooses: bool = False,
    padding: npt.NDArray[np.bool_] | npt.NDArray[np.uint8] | None = None,
    instead: tuple[int, int] | None = None,
    shared_limit: int = SHARED_LIMIT,
) -> Single:
    """Do what `experts` does, on this machine, whose blocks have `shared_limit` bytes of shared memory.

    `padding`: tokens that choose no experts. `instead`: index of a choice, and the id that replaces this choice of every token.
    """
    weights = stored(layer, sizes)
    ids, shares = layer.route
    entries = layer.tokens * layer.top

    def once(early: bool) -> Bits:
        activated = np.empty((entries, -(-layer.intermediate // 128) * _ACTIVATED_STAGE), np.uint8)
        output = np.empty((layer.tokens, layer.hidden), np.uint16)
        inputs = bfloat16_bits(layer.inputs)
        given: list[tuple[str, npt.NDArray[Any] | None, BufferKind]] = [
            ("hidden_states", inputs, BufferKind.INPUT),
            ("w13", weights.up, BufferKind.CONSTANT),
            ("w13_scale", weights.up_scales, BufferKind.CONSTANT),
            ("w13_bias", weights.up_bias, BufferKind.CONSTANT),
            ("w2", weights.down, BufferKind.CONSTANT),
            ("w2_scale", weights.down_scales, BufferKind.CONSTANT),
            ("w2_bias", weights.down_bias, BufferKind.CONSTANT),
            ("topk_ids", None if chooses else local, BufferKind.INPUT),
            ("topk_weights", None if chooses else shares, BufferKind.INPUT),
            ("routing_logits", bfloat16_bits(logits) if chooses else None, BufferKind.INPUT),
            ("is_padding", padding, BufferKind.INPUT),
            ("expert_map", weights.places if layer.elsewhere else None, BufferKind.INPUT),
            ("activated", activated, BufferKind.OUTPUT),
            ("output", output, BufferKind.OUTPUT),
        ]
        addresses = [cpu.give(*argument, in_place=isinstance(layer, Many)) for argument in given]
        counts = (logits.shape[1], layer.experts, layer.tokens, layer.top, int(weights.places.max()) + 1)
        numbers = (*counts, layer.hidden, layer.intermediate, *sizes)
        limits = (ctypes.c_float(number) for number in astuple(layer.glu))
        cpu.call("emulated_moe_decode", *addresses, *numbers, *limits, _FEW_PROCESSORS, shared_limit, int(early))
        if (launches := len(cpu.kernels)) > LAUNCHES:
            raise RuntimeError(f"{launches} launches, {LAUNCHES} are allowed")
        return output

    # Without a map, ids are places already; unknown ones stay. With a map, there may be more logits than experts in it.
    known = (ids >= 0) & (ids < layer.experts)
    local = np.array(ids if layer.elsewhere else np.where(known, weights.places[np.where(known, ids, 0)], ids))
    if instead is not None:
        local[:, instead[0]] = instead[1]
    unknown = np.full((layer.tokens, _UNKNOWN), -np.inf, np.float32)
    logits = np.concatenate([layer.logits, unknown], axis=1) if layer.elsewhere else layer.logits[:, np.argsort(weights.places)]
    return from_bfloat16_bits(in_every_order(cpu, once, shared_limit))


def launches(cpu: Machine, layer: Experts, processors: int, shared_bytes: int) -> tuple[LaunchShape, ...]:
    """Return the sizes of both launches for a layer on a GPU with these limits. Nothing is run, so the layer may have any size."""
    cpu.begin(shared_limit=shared_bytes)
    cpu.record_only()
    nowhere = (ctypes.c_void_p(None),) * 14
    counts = (layer.experts, layer.experts, layer.tokens, layer.top, layer.experts)
    sizes = (layer.hidden, layer.intermediate) * 2
    limits = (ctypes.c_float(number) for number in astuple(layer.glu))
    cpu.call("emulated_moe_decode", *nowhere, *counts, *sizes, *limits, processors, shared_bytes, 0)
    return cpu.shapes


def multiplied(cpu: Machine, layer: Linear, processors: int = PROCESSORS, *, beyond: int = 0) -> Single:
    """Do what `dense` does on this machine; `processors`: multiprocessors, `beyond`: bytes from an aligned address to the scales."""
    parts = [part for _, part in layer.chunks() if isinstance(part, Blocks)]
    codes, scales = (np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "scales"))
    inputs, bias = bfloat16_bits(layer.x), bfloat16_bits(layer.added) if layer.bias else None
    room = np.empty(scales.size + 16 + beyond, np.uint8)
    room = room[-room.ctypes.data % 16 + beyond :][: scales.size]
    room[:] = scales.ravel()

    def once(early: bool) -> Bits:
        output = np.empty((layer.tokens, layer.outputs), np.uint16)
        addresses = [
            cpu.give("x", inputs, BufferKind.INPUT),
            cpu.give("weight", codes, BufferKind.CONSTANT),
            cpu.give("scale", room, BufferKind.CONSTANT),
            cpu.give("bias", bias, BufferKind.CONSTANT),
            cpu.give("output", output, BufferKind.OUTPUT),
        ]
        cpu.call("emulated_gemv", *addresses, layer.tokens, layer.outputs, layer.inputs, processors, SHARED_LIMIT, int(early))
        return output

    return from_bfloat16_bits(in_every_order(cpu, once))


def in_every_order(cpu: Machine, once: Callable[[bool], Bits], shared_limit: int = SHARED_LIMIT) -> Bits:
    """Run a kernel with several orders of its threads and return its output.

    Raises:
        RuntimeError: the outputs differ, or a part is not written.

    """
    outputs = []
    for seed, early in _ORDERS:
        cpu.begin(seed, shared_limit)
        outputs.append(once(early))
        if unwritten := cpu.unwritten("output"):
            raise RuntimeError(f"{unwritten} bytes of the output are not written")
    if not all(np.array_equal(outputs[0], other) for other in outputs[1:]):
        raise RuntimeError("other bits with threads in another order")
    return outputs[0]


def quantized(cpu: Machine, numbers: npt.NDArray[np.uint16], rounding: Rounding) -> Blocks:
    """Quantize bits of bfloat16 [rows, columns] to MXFP4 with FlashInfer's kernel, which supports `FLOOR` and `EVEN`."""
    rows, columns = numbers.shape
    codes, scales = np.empty((rows, columns // 2), np.uint8), np.empty((rows, columns // 32), np.uint8)
    cpu.begin()
    addresses = [cpu.give("numbers", numbers, BufferKind.INPUT)]
    addresses += [cpu.give("output", codes, BufferKind.OUTPUT), cpu.give("scales", scales, BufferKind.OUTPUT)]
    cpu.call("emulated_quantize", *addresses, ctypes.c_int64(scales.size), int(rounding is Rounding.EVEN))
    return Blocks(MXFP4, codes, scales)


def dequantized(cpu: Machine, blocks: Blocks) -> npt.NDArray[np.uint16]:
    """Decode an MXFP4 matrix with FlashInfer's kernel to bits of bfloat16: [rows, columns]."""
    output = np.empty(blocks.shape, np.uint16)
    cpu.begin()
    addresses = [
        cpu.give(name, array, BufferKind.INPUT) for name, array in (("codes", blocks.codes), ("scales", blocks.scales))
    ]
    cpu.call(
        "emulated_dequantize", *addresses, cpu.give("output", output, BufferKind.OUTPUT), ctypes.c_int64(blocks.scales.size)
    )
    return output


def every_number() -> npt.NDArray[np.uint16]:
    """List every bit pattern of bfloat16, in blocks of similar numbers and in blocks of various sizes: [2 x 2048, 32 x 32]."""
    patterns = np.arange(2**16, dtype=np.uint16)
    near = np.arange(2**16, dtype=np.uint32).reshape(-1, 32)  # blocks of one exponent, and those with infinities and NaN
    draw = np.random.default_rng(3)
    apart = draw.integers(-4, 5, (2**16, 31)) * 128 + draw.integers(0, 128, (2**16, 31))  # exponents near the pattern's
    beside = np.clip((patterns[:, None].astype(np.int64) & 0x7F80) + apart, 0, 0x7F7F) | draw.choice([0, 0x8000], (2**16, 31))
    mixed = draw.permuted(np.concatenate([patterns[:, None], beside.astype(np.uint16)], axis=1), axis=1)
    special = np.resize(np.array([0, 0x8000, 1, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x3F80], np.uint16), 32 * 32)
    zeros = np.repeat(np.array([0, 0x8000], np.uint16), 16)
    rows = [near.astype(np.uint16).reshape(-1, 1024), mixed.reshape(-1, 1024), special[None], np.resize(zeros, (1, 1024))]
    return np.ascontiguousarray(np.concatenate(rows))


def quantizes(rounding: Rounding) -> Compared:
    """Compare the quantizer with ours, for every number of bfloat16."""
    bits = every_number()
    ours = reference(bits, rounding)
    others = [other for other in Rounding if other is not rounding]
    wrong = {f"scales rounded {other}": both(reference(bits, other)) for other in others}
    wrong |= {"nibbles swapped": both(ours.nibbles_swapped()), "scales shifted by a block": both(ours.scales_shifted())}
    return Compared(both(ours), both(quantized(machine(), bits, rounding)), wrong)


def dequantizes() -> Compared:
    """Compare the values of every byte under every scale."""
    codes = np.ascontiguousarray(np.broadcast_to(np.arange(256, dtype=np.uint8), (256, 256)))
    scales = np.ascontiguousarray(np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None], (256, 16)))
    blocks = Blocks(MXFP4, codes, scales)
    wrong = {"nibbles swapped": _bits_of(blocks.nibbles_swapped()), "scales by two": _bits_of(Blocks(MXFP4, codes, scales + 1))}
    return Compared(_bits_of(blocks), dequantized(machine(), blocks), wrong)


def reference(bits: npt.NDArray[np.uint16], rounding: Rounding) -> Blocks:
    """Quantize bits of bfloat16 to MXFP4 by our own definition."""
    with np.errstate(invalid="ignore"):  # some are signalling NaNs
        numbers = from_bfloat16_bits(bits).astype(np.float64)
    return quantize(MXFP4, numbers, rounding)


def both(blocks: Blocks) -> Bits:
    """Concatenate codes and scales."""
    return np.concatenate([blocks.codes.ravel(), blocks.scales.ravel()])


def _bits_of(blocks: Blocks) -> npt.NDArray[np.uint16]:
    """Return the values as bits of bfloat16; all NaNs get the same bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = bfloat16(np.where(np.isnan(blocks.factors()).repeat(32, axis=1), 0, blocks.values()))
    bits = bfloat16_bits(numbers)
    return np.where(np.isnan(decode_e8m0(blocks.scales)).repeat(32, axis=1), np.uint16(0x7FC0), bits)
