# SPDX-License-Identifier: Apache-2.0
"""In a log of another release that started and answered nothing is wrong."""

import pytest

from stack.doctor import logs
from stack.doctor.finding import Severity

from .healthy import HEALTHY


@pytest.mark.parametrize("version", HEALTHY)
def test_nothing_is_wrong(version: str) -> None:
    subject = logs.of(HEALTHY[version], None, "0.32.0")
    found = [*logs.look(subject, "log")]
    assert [(one.check, one.found.what) for one in found if one.severity is Severity.WRONG] == []
    assert subject.reading.version == version
    assert subject.reading.ready
    assert (f"it is of vLLM {version}, the stack stands on 0.32.0" in {one.found.what for one in found}) is True


def test_an_error_in_such_a_log_is_found() -> None:
    line = "(EngineCore pid=77) ERROR 07-14 16:41:16 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.\n"
    before, _, after = HEALTHY["0.26.0"].partition("(EngineCore pid=77) 2026-07-14")
    found = [one for one in logs.look(logs.of(f"{before}{line}{after}"), "log") if one.severity is Severity.WRONG]
    assert {one.found.rule for one in found if one.check == "errors"} == {"out-of-memory"}
