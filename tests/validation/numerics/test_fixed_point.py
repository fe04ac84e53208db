# SPDX-License-Identifier: Apache-2.0
"""The decode kernels' fixed point by its definition: 14 bits below a block's largest number, and a sign."""

import numpy as np
import pytest

from stack.validation.numerics.fixed_point import BITS, LOWEST, fixed_point


def block(*numbers: float) -> np.ndarray:
    return np.array([*numbers, *[0.0] * (32 - len(numbers))])


def test_the_largest_number_has_all_bits_and_the_others_its_step() -> None:
    found = fixed_point(block(300.0, 0.1, -0.1, 2.0**-6, 2.0**-6 * 1.01))
    step = 2.0 ** (8 - 13)  # 300 is at least 2^8
    assert found[:5].tolist() == [300.0, 3 * step, -3 * step, 0.0, step]


def test_a_number_just_below_a_power_of_two_becomes_that_power() -> None:
    assert fixed_point(block(2.0 - 2.0**-20))[0] == 2.0
    assert fixed_point(block(2.0 - 2.0**-20), cut=True)[0] == 2.0 - 2.0**-13


def test_blocks_have_steps_of_their_own() -> None:
    both = np.concatenate([block(1000.0, 0.01), block(1.0, 0.01)])
    found = fixed_point(both)
    assert found[1] == 0
    assert found[33] == pytest.approx(0.01, abs=2.0**-14)


def test_fewer_bits_are_coarser() -> None:
    numbers = np.random.default_rng(0).standard_normal((50, 64))
    errors = [np.abs(fixed_point(numbers, bits) - numbers).mean() for bits in (BITS, BITS - 1, BITS - 2)]
    assert errors[1] / errors[0] == pytest.approx(2, rel=0.05)
    assert errors[2] / errors[0] == pytest.approx(4, rel=0.05)


def test_what_is_no_number_spoils_its_block_only() -> None:
    for spoiler in (np.nan, np.inf, -np.inf):
        found = fixed_point(np.stack([np.concatenate([block(spoiler, 1.0), block(1.0)]), np.ones(64)]))
        assert np.isnan(found[0, :32]).all()
        assert np.isfinite(found[0, 32:]).all() and np.isfinite(found[1]).all()


def test_the_step_ends_where_scales_would_be_subnormal() -> None:
    smallest = 2.0 ** (LOWEST - 13)
    assert fixed_point(block(2.0**-120, smallest / 4)).tolist() == block(2.0**-120, 0).tolist()
    assert fixed_point(block(0.0)).tolist() == block().tolist()


def test_columns_are_whole_blocks() -> None:
    with pytest.raises(ValueError, match="33 columns are not a multiple of 32"):
        fixed_point(np.zeros(33))
