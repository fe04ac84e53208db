# SPDX-License-Identifier: Apache-2.0
"""Compare our formats bit for bit with other libraries: ml_dtypes, torch, compressed-tensors, transformers.

All codes are tried. Numbers are tried at every value, every tie, their float32 neighbours, beyond both ends, and 2^18 at random. Where
another library defines a case differently (overflow to NaN where we saturate), it gets the saturated number, and a comment says so.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.blocks import MXFP4, MXFP8, NVFP4, Blocks, Rounding, nibbles_swapped, quantize
from stack.validation.numerics.formats import (
    E2M1,
    E4M3,
    E8M0_NAN,
    Minifloat,
    Single,
    bfloat16,
    decode,
    decode_e8m0,
    encode,
    magnitudes,
    pack,
    unpack,
)
from stack.validation.numerics.kernels.environment import missing

Bits = npt.NDArray[Any]
"""Integers to compare."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Our result, the other library's result, and the results of wrong implementations."""

    ours: Bits
    theirs: Bits
    mutants: Mapping[str, Bits]


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison with `package`. `without` returns a reason if it is not available; `needs`: features that a machine must have."""

    name: str
    package: str
    compare: Callable[[], Compared]
    without: Callable[[], str] | None = None
    needs: tuple[str, ...] = ("cpu",)

    def lacks(self) -> str:
        """Return why there is nothing to compare with; empty if there is."""
        return self.without() if self.without is not None else missing(self.package)


def differing(ours: Bits, theirs: Bits) -> int:
    """Count the differing elements; all of them differ if the shapes do."""
    if ours.shape != theirs.shape:
        return max(ours.size, theirs.size)
    return int(np.count_nonzero(ours != theirs))


def bits(numbers: npt.ArrayLike) -> Bits:
    """View float64 as integers, so that -0 differs from 0 and NaN equals NaN. All NaNs get the same bits."""
    given = np.array(numbers, np.float64)
    given[np.isnan(given)] = np.nan
    return given.view(np.uint64)


def sample(form: Minifloat) -> Single:
    """Draw numbers that test a format's rounding."""
    known = magnitudes(form)
    exact = np.concatenate([known, (known[:-1] + known[1:]) / 2, [2 * known[-1], 1.25 * known[-1], np.inf]]).astype(np.float32)
    near = np.concatenate([exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(0))])
    draw = np.random.default_rng(0)
    spread = draw.uniform(np.log2(known[1]) - 3, np.log2(known[-1]) + 1, 2**18)
    both = np.concatenate([near, np.exp2(spread).astype(np.float32)])
    return np.concatenate([both, -both])


def _matrix(size: int) -> Single:
    """Draw rows of many magnitudes, with a block of zeros and blocks of one value: float32 [64, 32 x size]."""
    draw = np.random.default_rng(1)
    numbers = draw.standard_normal((64, 32 * size)) * np.exp2(draw.integers(-12, 12, (64, 32))).repeat(size, axis=1)
    numbers[0, :size] = 0
    numbers[1] = 1.75  # a tie when the scale is rounded
    return numbers.astype(np.float32)


def _rounded_wrongly(form: Minifloat, numbers: Single) -> Iterator[tuple[str, Bits]]:
    yield "rounded towards zero", encode(form, numbers, cut=True)
    # Ties away from zero: slightly enlarging each number rounds every tie up.
    yield "ties away from zero", encode(form, numbers.astype(np.float64) * (1 + 2.0**-40))
    wrapped = encode(form, numbers)
    wrapped[np.abs(numbers) > form.largest] = 0
    yield "not saturated", wrapped


def _read_wrongly(form: Minifloat) -> Iterator[tuple[str, Bits]]:
    codes = np.arange(2 * form.sign, dtype=np.uint8)
    values = decode(form, codes)
    smallest = 2.0 ** (1 - form.bias)
    yield "subnormal numbers as zero", bits(np.where(np.abs(values) < smallest, np.copysign(0, values), values))
    yield "another bias", bits(values * 2)
    yield "without a sign", bits(np.abs(values))


def _ml_type(form: Minifloat) -> Any:
    import ml_dtypes  # noqa: PLC0415

    return ml_dtypes.float4_e2m1fn if form is E2M1 else ml_dtypes.float8_e4m3fn


def _ml_decode(form: Minifloat) -> Compared:
    codes = np.arange(2 * form.sign, dtype=np.uint8)
    return Compared(bits(decode(form, codes)), bits(codes.view(_ml_type(form))), dict(_read_wrongly(form)))


def _ml_encode(form: Minifloat) -> Compared:
    numbers = sample(form)
    within = np.clip(numbers, -form.largest, form.largest)  # ml_dtypes overflows to NaN in E4M3
    theirs = within.astype(_ml_type(form)).view(np.uint8)
    return Compared(encode(form, numbers), theirs, dict(_rounded_wrongly(form, numbers)))


def _ml_scale() -> Compared:
    import ml_dtypes  # noqa: PLC0415

    codes = np.arange(256, dtype=np.uint8)
    theirs = bits(codes.view(ml_dtypes.float8_e8m0fnu))
    ours = decode_e8m0(codes)
    return Compared(
        bits(ours), theirs, {"another bias": bits(ours / 2), "255 as a number": bits(np.ldexp(1.0, codes.astype(int) - 127))}
    )


def _halves() -> Single:
    """Draw float32 of every exponent, and ties between neighbouring bfloat16 numbers."""
    draw = np.random.default_rng(2)
    drawn = draw.integers(0, 2**32, 2**20, dtype=np.uint32)
    ties = (draw.integers(0, 2**16, 2**16, dtype=np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    numbers = np.concatenate([drawn, ties]).view(np.float32)
    return numbers[np.isfinite(numbers)]


def _ml_bfloat16() -> Compared:
    import ml_dtypes  # noqa: PLC0415

    numbers = _halves()
    with np.errstate(over="ignore"):
        theirs = numbers.astype(ml_dtypes.bfloat16).astype(np.float32)
    cut = (numbers.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    away = ((numbers.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
    wrong = {"rounded towards zero": bits(cut), "ties away from zero": bits(away)}
    return Compared(bits(bfloat16(numbers)), bits(theirs), wrong)


def _torch_e4m3() -> Compared:
    import torch  # noqa: PLC0415

    numbers = sample(E4M3)
    within = torch.from_numpy(np.clip(numbers, -E4M3.largest, E4M3.largest))
    theirs = within.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return Compared(encode(E4M3, numbers), theirs, dict(_rounded_wrongly(E4M3, numbers)))


def _torch_decode() -> Compared:
    import torch  # noqa: PLC0415

    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes).view(torch.float8_e4m3fn).double().numpy()
    return Compared(bits(decode(E4M3, codes)), bits(theirs), dict(_read_wrongly(E4M3)))


def _torch_scale() -> Compared:
    import torch  # noqa: PLC0415

    codes = np.arange(256, dtype=np.uint8)
    theirs = torch.from_numpy(codes).view(torch.float8_e8m0fnu).double().numpy()
    ours = decode_e8m0(codes)
    return Compared(bits(ours), bits(theirs), {"another bias": bits(ours * 2)})


def _compressed_e2m1() -> Compared:
    import torch  # noqa: PLC0415
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8  # noqa: PLC0415
    from compressed_tensors.quantization.quant_args import FP4_E2M1_DATA  # noqa: PLC0415

    numbers = sample(E2M1)
    numbers = numbers[numbers != 0]  # compressed-tensors loses the sign of an exact zero
    rows = numbers[: len(numbers) // 2 * 2].reshape(1, -1)
    theirs = pack_fp4_to_uint8(FP4_E2M1_DATA.cast_to_fp4(torch.from_numpy(rows.copy()))).numpy()
    wrong = {name: pack(codes) for name, codes in _rounded_wrongly(E2M1, rows)}
    ours = encode(E2M1, rows)
    swapped = pack(ours.reshape(-1, 2)[:, ::-1].reshape(ours.shape))
    return Compared(pack(ours), theirs, wrong | {"halves of a byte swapped": swapped})


def _compressed_unpack() -> Compared:
    import torch  # noqa: PLC0415
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8  # noqa: PLC0415

    packed = np.arange(256, dtype=np.uint8)[None, :]
    theirs = unpack_fp4_from_uint8(torch.from_numpy(packed), 1, 512, torch.float64).numpy()
    swapped = decode(E2M1, unpack(nibbles_swapped(packed)))
    return Compared(bits(decode(E2M1, unpack(packed))), bits(theirs), {"halves of a byte swapped": bits(swapped)})


def _compressed_mxfp4() -> Compared:
    """Compare the scales and elements of a matrix together."""
    import torch  # noqa: PLC0415
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8  # noqa: PLC0415
    from compressed_tensors.quantization.quant_args import FP4_E2M1_DATA  # noqa: PLC0415
    from compressed_tensors.quantization.utils.mxfp_utils import generate_mx_scales  # noqa: PLC0415

    numbers = _matrix(MXFP4.size)[1:]  # compressed-tensors gives a block of zeros another scale
    blocked = torch.from_numpy(numbers).view(len(numbers), -1, MXFP4.size)
    scales = generate_mx_scales(blocked.abs().amax(dim=2))
    scaled = (blocked / torch.exp2(scales - 127)[..., None]).view(len(numbers), -1)
    packed = pack_fp4_to_uint8(FP4_E2M1_DATA.cast_to_fp4(scaled.clamp(-6, 6)))
    theirs = _both(packed.numpy(), scales.to(torch.uint8).numpy())
    ours = quantize(MXFP4, numbers, Rounding.EVEN)
    others = {rounding: quantize(MXFP4, numbers, rounding) for rounding in (Rounding.FLOOR, Rounding.UP)}
    wrong = {f"scales rounded {rounding}": _both(other.codes, other.scales) for rounding, other in others.items()}
    return Compared(_both(ours.codes, ours.scales), theirs, wrong | _layouts(ours))


def _compressed_nvfp4() -> Compared:
    import torch  # noqa: PLC0415
    from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8  # noqa: PLC0415
    from compressed_tensors.quantization.quant_args import FP4_E2M1_DATA  # noqa: PLC0415
    from compressed_tensors.quantization.utils.helpers import generate_gparam  # noqa: PLC0415

    numbers = _matrix(NVFP4.size)[1:]
    blocked = torch.from_numpy(numbers).view(len(numbers), -1, NVFP4.size)
    overall = generate_gparam(blocked.amin(), blocked.amax())  # the inverse of our tensor scale
    scales = (blocked.abs().amax(dim=2) / 6 * overall).clamp(max=448).to(torch.float8_e4m3fn)
    factor = scales.float() / overall
    usable = torch.where(factor > 0, factor, torch.inf)  # blocks far below the largest round to a scale of zero
    scaled = (blocked / usable[..., None]).view(len(numbers), -1)
    packed = pack_fp4_to_uint8(FP4_E2M1_DATA.cast_to_fp4(scaled.clamp(-6, 6)))
    theirs = _both(packed.numpy(), scales.view(torch.uint8).numpy())
    ours = quantize(NVFP4, numbers, tensor_scale=float(1 / overall))
    return Compared(_positive(ours), _positive_bits(theirs, ours), _layouts(ours))


def _positive(ours: Blocks) -> Bits:
    """Return the codes with zeros made positive: compressed-tensors loses some of their signs."""
    codes = unpack(ours.codes)
    return _both(pack(np.where(codes == E2M1.sign, 0, codes)), ours.scales)


def _positive_bits(theirs: Bits, ours: Blocks) -> Bits:
    half = ours.codes.size
    codes = unpack(theirs[:half].reshape(ours.codes.shape))
    return np.concatenate([pack(np.where(codes == E2M1.sign, 0, codes)).ravel(), theirs[half:]])


def _transformers_mxfp4() -> Compared:
    """Compare every byte under every scale that bfloat16 and float32 can represent."""
    import torch  # noqa: PLC0415
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # noqa: PLC0415

    scales = np.arange(3, 252, dtype=np.uint8)  # within float32's normal numbers
    codes = np.broadcast_to(np.arange(256, dtype=np.uint8), (len(scales), 256))
    blocks = Blocks(MXFP4, codes, np.broadcast_to(scales[:, None], (len(scales), 16)).copy())
    packed = torch.from_numpy(codes.copy()).view(1, len(scales), 16, 16)
    theirs = convert_moe_packed_tensors(packed, torch.from_numpy(blocks.scales)[None], dtype=torch.float32)
    theirs = theirs.double().numpy()[0].T  # transformers returns the transposed matrix
    wrong = {
        "nibbles swapped": bits(blocks.nibbles_swapped().values()),
        "another bias": bits(blocks.values() * 2),
    }
    return Compared(bits(blocks.values()), bits(theirs), wrong)


def _ml_mxfp8() -> Compared:
    """Compare MXFP8 elements with ml_dtypes under our scales, with a block of zeros and one with a NaN."""
    import ml_dtypes  # noqa: PLC0415

    numbers = _matrix(MXFP8.size)
    numbers[2, 5] = np.nan
    ours = quantize(MXFP8, numbers, Rounding.UP)
    factor = ours.scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    blocked = numbers.reshape(*ours.scales.shape, -1)
    whole = ours.scales != E8M0_NAN
    theirs = np.where(whole[..., None], blocked, 0) / np.where(whole, factor, 1)[..., None]
    codes = theirs.astype(ml_dtypes.float8_e4m3fn).view(np.uint8).reshape(ours.codes.shape)
    floor = quantize(MXFP8, numbers, Rounding.FLOOR)
    return Compared(
        ours.codes, codes, {"scales rounded down": floor.codes, "scales shifted by a block": np.roll(ours.codes, 32, axis=1)}
    )


def _layouts(ours: Blocks) -> dict[str, Bits]:
    shifted = ours.scales_shifted()
    swapped = ours.nibbles_swapped()
    return {
        "scales shifted by a block": _both(shifted.codes, shifted.scales),
        "nibbles swapped": _both(swapped.codes, swapped.scales),
    }


def _both(codes: Bits, scales: Bits) -> Bits:
    return np.concatenate([codes.ravel(), scales.ravel()])


AGREEMENTS = (
    Agreement("e2m1-decode/ml_dtypes", "ml_dtypes", lambda: _ml_decode(E2M1)),
    Agreement("e2m1-decode/compressed-tensors", "compressed_tensors", _compressed_unpack),
    Agreement("e2m1-encode/ml_dtypes", "ml_dtypes", lambda: _ml_encode(E2M1)),
    Agreement("e2m1-encode/compressed-tensors", "compressed_tensors", _compressed_e2m1),
    Agreement("e4m3-decode/ml_dtypes", "ml_dtypes", lambda: _ml_decode(E4M3)),
    Agreement("e4m3-decode/torch", "torch", _torch_decode),
    Agreement("e4m3-encode/ml_dtypes", "ml_dtypes", lambda: _ml_encode(E4M3)),
    Agreement("e4m3-encode/torch", "torch", _torch_e4m3),
    Agreement("e8m0-decode/ml_dtypes", "ml_dtypes", _ml_scale),
    Agreement("e8m0-decode/torch", "torch", _torch_scale),
    Agreement("bfloat16/ml_dtypes", "ml_dtypes", _ml_bfloat16),
    Agreement("mxfp4-quantize/compressed-tensors", "compressed_tensors", _compressed_mxfp4),
    Agreement("mxfp4-dequantize/transformers", "transformers", _transformers_mxfp4),
    Agreement("mxfp8-quantize/ml_dtypes", "ml_dtypes", _ml_mxfp8),
    Agreement("nvfp4-quantize/compressed-tensors", "compressed_tensors", _compressed_nvfp4),
)
