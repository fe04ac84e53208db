# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

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


def test_a_measured_bandwidth_stands_beside_the_data_sheet_s() -> None:
    spark, h200 = (hardware.load(name) for name in ("spark", "h200"))
    assert (spark.bandwidth, spark.sheet, h200.sheet) == (232, 273, None)
    assert "antirez/ds4 issue 773" in spark.source


def test_a_data_sheet_below_what_was_measured_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "FILE", tmp_path / "hardware.toml")
    hardware.FILE.write_text(
        '[a]\ntitle = "A"\ncapability = "1.0"\nmemory = 1\nbandwidth = 2\nsheet = 1\nunified = false\nsource = "b"\n'
    )
    with pytest.raises(StackError, match="sheet is below the measured bandwidth"):
        hardware.load("a")
