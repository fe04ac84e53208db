# SPDX-License-Identifier: Apache-2.0
"""The GPU's clock while a server is measured."""

import time
from pathlib import Path

import pytest

from stack.owner.checking import clock_watch
from stack.owner.checking.clock_watch import ClockWatch
from stack.owner.readiness.gpu import Clocks

from ..readiness import spark


def test_only_what_is_seen_under_load_counts() -> None:
    idle, slow, fast = Clocks(208, 3003, 0, 4, 36, 1), Clocks(611, 3003, 96, 18, 50, 0x20), Clocks(2400, 3003, 95, 60, 60, 0)
    assert ClockWatch().under_load() is None
    assert ClockWatch([idle, idle]).under_load() is None
    found = ClockWatch([idle, slow, slow, fast, slow]).under_load()
    assert found is not None
    assert (found.now, found.reasons) == (611, 0x20)


def test_it_looks_at_the_driver_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = spark.made(tmp_path, monkeypatch)
    machine.nvidia_smi(clocks="611, 3003, 96, 18.00, 50, 0x0")
    with clock_watch.watching(0.01) as watch:
        until = time.monotonic() + 10
        while len(watch.seen) < 3 and time.monotonic() < until:
            time.sleep(0.01)
    found = watch.under_load()
    assert found is not None
    assert found.now == 611
    machine.without("nvidia-smi")
    with clock_watch.watching(0.01) as watch:
        pass
    assert watch.seen == []
