# SPDX-License-Identifier: Apache-2.0
"""Run FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 on SM90, from a library that `compiling` makes."""

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics import SM120_ON_SM90
from stack.validation.numerics.formats import Bytes
from stack.validation.numerics.grouped import Grouped
from stack.validation.numerics.tiles import Tile

ROWS = 4
"""FlashInfer needs a multiple of four rows per group. The added rows are zeros, and are dropped from the output."""
_DEPTH = 128
"""SM120's TMA loads FP4 in units of 128 inputs, so vLLM pads the weights with zeros (2880 to 2944)."""
_SCALED = 32
"""Number of values that share a scale."""
_ATOM = (128, 4)
"""Rows and columns of a tile of scales, which is stored as 32 x 4 x 4."""
_NOT_USED = 0xFF
"""The scale of rows beyond the last, a NaN: if it were used, the output would show it."""
_WORKSPACE = 32 * 2**20
"""Bytes of each of FlashInfer's two workspaces: FlashInfer's own default."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """The arguments of FlashInfer's launcher, in host memory.

    `a`: e4m3 [rows, depth]. `b`: e2m1, two per byte, 8 bytes and 8 of padding for 16 values: [groups, outputs, depth]. Scales are
    e8m0, swizzled: `a_scale` [rows of scales, depth / 32], where each group begins at a multiple of 128 rows, and `b_scale`
    [groups, outputs rounded up to 128, depth / 32]. `starts`: int32 [groups + 1]. `kept`: the rows that are tokens.
    """

    a: Bytes
    b: Bytes
    a_scale: Bytes
    b_scale: Bytes
    starts: npt.NDArray[np.int32]
    kept: npt.NDArray[np.intp]


def packed(problem: Grouped) -> Packed:
    """Lay out a problem for the launcher."""
    depth = _up(problem.inputs, _DEPTH)
    counts = [_up(tokens, ROWS) for tokens in problem.groups]
    starts = np.cumsum([0, *counts]).astype(np.int32)
    groups = range(len(counts))
    first = [int(starts[group] + group * (_ATOM[0] - 1)) // _ATOM[0] * _ATOM[0] for group in groups]
    a = np.zeros((int(starts[-1]), depth), np.uint8)
    a_scale = np.full((first[-1] + _up(counts[-1], _ATOM[0]), depth // _SCALED), _NOT_USED, np.uint8)
    b = np.zeros((len(counts), problem.outputs, depth), np.uint8)
    b_scale = np.full((len(counts), _up(problem.outputs, _ATOM[0]), depth // _SCALED), _NOT_USED, np.uint8)
    for group in groups:
        tokens, weight = problem.activations(group), problem.weight(group)
        here = slice(int(starts[group]), int(starts[group]) + problem.groups[group])
        a[here, : problem.inputs] = tokens.codes
        a_scale[first[group] : first[group] + len(tokens.scales)] = _widened(tokens.scales, depth // _SCALED)
        b[group] = spaced(_widened(weight.codes, depth // 2))
        b_scale[group, : problem.outputs] = _widened(weight.scales, depth // _SCALED)
    kept = np.concatenate([starts[group] + np.arange(problem.groups[group]) for group in groups])
    return Packed(a, b, swizzled(a_scale), np.stack([swizzled(scales) for scales in b_scale]), starts, kept.astype(np.intp))


def swizzled(scales: Bytes) -> Bytes:
    """Reorder scales [rows, columns], multiples of 128 and 4, into the tensor cores' layout of the same shape."""
    rows, columns = scales.shape
    tiled = scales.reshape(rows // 128, 4, 32, columns // 4, 4)  # (tile, quarter, row in it, tile, column in it)
    return np.ascontiguousarray(tiled.transpose(0, 3, 2, 1, 4)).reshape(rows, columns)


def spaced(codes: Bytes) -> Bytes:
    """Add 8 bytes of padding after every 8 bytes of packed e2m1 [rows, bytes], as SM120's TMA does while loading."""
    rows, width = codes.shape
    wide = np.zeros((rows, width // 8, 16), np.uint8)
    wide[..., :8] = codes.reshape(rows, width // 8, 8)
    return wide.reshape(rows, 2 * width)


def _widened(codes: Bytes, width: int) -> Bytes:
    return np.pad(codes, ((0, 0), (0, width - codes.shape[1])))


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


class _Asked(ctypes.Structure):
    """`Asked` of entry.cpp, with the same fields."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("ints", "floats", "a", "b", "sfa", "sfb", "out", "m_indptr")),
        *((name, ctypes.c_size_t) for name in ("int_bytes", "float_bytes")),
        *((name, ctypes.c_int) for name in ("n", "k", "groups", "device")),
        ("stream", ctypes.c_void_p),
    )


def grouped(tile: Tile, problem: Grouped) -> npt.ArrayLike:
    """Compute the grouped GEMM with one tile."""
    import torch  # noqa: PLC0415

    given = packed(problem)
    tensors = {
        name: torch.from_numpy(array).cuda()
        for name, array in (
            ("a", given.a), ("b", given.b), ("sfa", given.a_scale), ("sfb", given.b_scale), ("m_indptr", given.starts),
            ("ints", np.zeros(_WORKSPACE, np.uint8)), ("floats", np.zeros(_WORKSPACE, np.uint8)),
        )
    }  # fmt: skip
    output = torch.full((len(given.a), problem.outputs), torch.nan, dtype=torch.bfloat16, device="cuda")
    asked = _Asked(
        **{name: tensor.data_ptr() for name, tensor in tensors.items()}, out=output.data_ptr(),
        int_bytes=_WORKSPACE, float_bytes=_WORKSPACE, n=problem.outputs, k=given.a.shape[1], groups=len(problem.groups),
        device=output.device.index, stream=torch.cuda.current_stream().cuda_stream,
    )  # fmt: skip
    library = _library()
    code = library.sm120_group_gemm(tile.columns, tile.swapped, ctypes.byref(asked))
    if code:
        raise RuntimeError(f"FlashInfer's launcher returned CUDA error {code}: {library.sm120_problem().decode()}")
    torch.cuda.synchronize()
    kept: npt.NDArray[Any] = output.float().cpu().numpy()[given.kept]
    return kept


def _library() -> Any:
    # The library is not linked to CUDA's runtime: it uses the one that torch has loaded.
    ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(os.environ[SM120_ON_SM90])
    library.sm120_problem.restype = ctypes.c_char_p
    if library.sm120_asked_bytes() != ctypes.sizeof(_Asked):
        raise RuntimeError("the library takes other arguments: it was built by another version of this validation")
    return library
