# SPDX-License-Identifier: Apache-2.0
"""The garbage collector, off for a while."""

import gc

import pytest

from stack.base.garbage import uncollected


def test_it_is_off_in_the_block_and_on_again_after_it() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()
