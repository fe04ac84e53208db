# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.base.errors import StackError
from stack.deploy import hardware


def test_all_can_be_read() -> None:
    spark, h200 = (hardware.load(name) for name in ("spark", "h200"))
    assert (spark.capability, spark.unified, h200.capability, h200.unified) == ("12.1", True, "9.0", False)
    assert h200.bandwidth > spark.bandwidth
    assert set(hardware.known()) == {"spark", "h200"}


def test_unknown() -> None:
    with pytest.raises(StackError, match=r"unknown hardware 'toaster'.*spark, h200"):
        hardware.load("toaster")
