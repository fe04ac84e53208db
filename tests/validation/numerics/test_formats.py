# SPDX-License-Identifier: Apache-2.0
"""Formats by their definition, by ml_dtypes, and at their ends."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.validation.numerics.blocks import MXFP4, MXFP8, NVFP4, BlockFormat, Blocks, Rounding, drawn, quantize
from stack.validation.numerics.formats import (
    E2M1,
    E4M3,
    E8M0_NAN,
    Minifloat,
    bfloat16,
    decode,
    decode_e8m0,
    encode,
    magnitudes,
    pack,
    unpack,
    values,
)

OTHERS = {E2M1: ml_dtypes.float4_e2m1fn, E4M3: ml_dtypes.float8_e4m3fn}
BOTH = pytest.mark.parametrize("form", [E2M1, E4M3], ids=lambda form: form.name)
ALL = pytest.mark.parametrize("form", [MXFP4, MXFP8, NVFP4], ids=lambda form: form.name)
NUMBERS = st.floats(allow_nan=False, width=32)


def test_e2m1_is_the_table_of_the_specification() -> None:
    assert magnitudes(E2M1).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert (len(magnitudes(E4M3)), E4M3.largest, magnitudes(E4M3)[1]) == (127, 448, 2.0**-9)


@BOTH
def test_every_code_decodes_as_ml_dtypes_has_it(form: Minifloat) -> None:
    codes = np.arange(2 * form.sign, dtype=np.uint8)
    np.testing.assert_array_equal(values(form), codes.view(OTHERS[form]).astype(np.float64))
    assert np.array_equal(np.signbit(values(form)), codes >= form.sign)


@BOTH
def test_every_code_comes_back_from_its_value(form: Minifloat) -> None:
    codes = np.arange(2 * form.sign, dtype=np.uint8)
    if form.nan is not None:
        codes = codes[codes != form.nan | form.sign]  # one NaN is enough
    assert np.array_equal(encode(form, decode(form, codes)), codes)


@BOTH
@given(number=NUMBERS)
def test_any_number_rounds_as_ml_dtypes_has_it(form: Minifloat, number: float) -> None:
    within = np.clip(np.float32(number), -form.largest, form.largest).astype(np.float32)
    assert int(encode(form, number)) == int(within.astype(OTHERS[form]).view(np.uint8))


@BOTH
def test_ties_go_to_the_even_code_and_their_neighbours_do_not(form: Minifloat) -> None:
    known = magnitudes(form)
    ties = (known[:-1] + known[1:]) / 2
    assert not (encode(form, ties) % 2).any()
    assert np.array_equal(encode(form, np.nextafter(ties, np.inf)), np.arange(1, len(known)))
    assert np.array_equal(encode(form, np.nextafter(ties, 0)), np.arange(len(known) - 1))


@BOTH
def test_what_is_too_large_saturates_and_keeps_its_sign(form: Minifloat) -> None:
    assert decode(form, encode(form, [1e30, -1e30, np.inf, -np.inf])).tolist() == [form.largest, -form.largest] * 2
    assert np.signbit(decode(form, encode(form, -0.0)))


def test_nan_is_a_code_where_there_is_one() -> None:
    assert int(encode(E4M3, np.nan)) & 0x7F == 0x7F
    with pytest.raises(ValueError, match="e2m1 has no NaN"):
        encode(E2M1, np.nan)


def test_cut_is_never_larger() -> None:
    numbers = np.random.default_rng(0).standard_normal(10_000)
    cut = np.abs(decode(E4M3, encode(E4M3, numbers, cut=True)))
    assert (cut <= np.abs(numbers)).all()
    assert (cut < np.abs(decode(E4M3, encode(E4M3, numbers)))).any()


def test_e8m0_is_powers_of_two_with_a_nan_at_the_end() -> None:
    decoded = decode_e8m0(np.arange(256, dtype=np.uint8))
    assert (decoded[0], decoded[127], decoded[254]) == (2.0**-127, 1, 2.0**127)
    assert np.isnan(decoded[E8M0_NAN])
    assert np.isfinite(decoded[:255]).all()


def test_the_first_of_two_codes_stands_in_the_low_half() -> None:
    assert pack(np.array([[0x1, 0xA, 0xF, 0x0]], np.uint8)).tolist() == [[0xA1, 0x0F]]
    every = np.arange(256, dtype=np.uint8)[:, None]
    assert np.array_equal(pack(unpack(every)), every)


def test_codes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="an odd number"):
        pack(np.zeros((2, 3), np.uint8))
    with pytest.raises(ValueError, match="0x10 has more than four bits"):
        pack(np.array([[0x10, 0]], np.uint8))
    with pytest.raises(ValueError, match="e2m1 has no code 0x10"):
        decode(E2M1, np.array([0x10], np.uint8))


@given(number=st.floats(width=32))
def test_bfloat16_rounds_as_ml_dtypes_has_it(number: float) -> None:
    with np.errstate(over="ignore"):
        other = np.float32(number).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(bfloat16(number), other)


@ALL
def test_what_is_in_the_format_comes_back_exactly(form: BlockFormat) -> None:
    blocks = drawn(form, (8, 4 * form.size), np.random.default_rng(0), (-5, 5))
    # Every block has its format's largest value, so that its scale is no other one.
    codes = blocks.codes.copy()
    codes[:, :: codes.shape[1] // 4] = 0x77 if form.packed else 0x7E
    blocks = replace(blocks, codes=codes)
    again = quantize(form, blocks.values(), Rounding.UP, tensor_scale=1.0)
    np.testing.assert_array_equal(again.values(), blocks.values())


@ALL
def test_a_drawn_matrix_has_every_code_and_no_nan(form: BlockFormat) -> None:
    blocks = drawn(form, (64, 8 * form.size), np.random.default_rng(0), (-2, 2))
    assert np.isfinite(blocks.values()).all()
    codes = unpack(blocks.codes) if form.packed else blocks.codes
    assert len(np.unique(codes)) == 2 * len(magnitudes(form.element))
    assert blocks.shape == (64, 8 * form.size)


@pytest.mark.parametrize("form", [MXFP4, MXFP8], ids=lambda form: form.name)
@given(largest=st.floats(2.0**-100, 2.0**100))
def test_scales_are_the_powers_that_their_rounding_means(form: BlockFormat, largest: float) -> None:
    row = np.zeros((1, 32))
    row[0, 7] = -largest
    up, floor = (float(quantize(form, row, rounding).factors()[0, 0]) for rounding in (Rounding.UP, Rounding.FLOOR))
    assert up / 2 * form.element.largest < largest <= up * form.element.largest
    emax = int(np.log2(form.element.largest))
    assert floor * 2.0**emax <= largest < floor * 2.0 ** (emax + 1)


@ALL
def test_a_block_of_zeros_stays_zeros(form: BlockFormat) -> None:
    row = np.zeros((2, 2 * form.size))
    row[0, -1] = 3.0
    blocks = quantize(form, row)
    np.testing.assert_allclose(blocks.values()[0], row[0], rtol=1e-6)
    assert (blocks.scales[1] == 0).all()
    assert not blocks.values()[1].any()


@pytest.mark.filterwarnings("ignore:invalid value")
@ALL
def test_a_nan_makes_its_block_nan_and_no_other(form: BlockFormat) -> None:
    row = np.ones((1, 2 * form.size))
    row[0, 3] = np.nan
    back = quantize(form, row).values()[0]
    assert np.isnan(back[: form.size]).all()
    assert np.isfinite(back[form.size :]).all()


def test_scales_end_at_the_smallest_and_the_largest_power() -> None:
    tiny = np.full((1, 32), 2.0**-129)
    blocks = quantize(MXFP4, tiny)
    assert blocks.scales.tolist() == [[0]]
    assert (blocks.values() == 0).all()  # a quarter of the smallest scale is half of the smallest element: a tie, to even
    assert (quantize(MXFP4, 2 * tiny).values() == 2.0**-128).all()  # subnormal in float32, and exact
    huge = quantize(MXFP8, np.full((1, 32), np.inf))
    assert (huge.scales.tolist(), huge.values().max()) == ([[254]], 448 * 2.0**127)


def test_nvfp4_keeps_small_blocks_by_subnormal_scales() -> None:
    row = np.ones((1, 32))
    row[0, 16:] = 2.0**-17  # 448 * 6 times smaller would be below the smallest normal scale
    blocks = quantize(NVFP4, row)
    assert 0 < float(blocks.factors()[0, 1]) < 2.0**-6
    assert (np.abs(blocks.values() - row) <= 0.25 * row).all()


def test_columns_that_fill_no_block_are_refused() -> None:
    with pytest.raises(ValueError, match="33 columns are not a multiple of 32"):
        quantize(MXFP4, np.zeros((1, 33)))


@ALL
def test_wrong_layouts_are_other_matrices(form: BlockFormat) -> None:
    blocks = drawn(form, (4, 8 * form.size), np.random.default_rng(0), (-3, 3))
    wrong = [blocks.scales_shifted(), blocks.scales_averaged(), *([blocks.nibbles_swapped()] if form.packed else [])]
    for one in wrong:
        assert isinstance(one, Blocks)
        assert (one.values() != blocks.values()).mean() > 0.3
