# SPDX-License-Identifier: Apache-2.0
"""Each step that took long gets one line on stderr, also in a pipe."""

import re

import pytest

from stack.cli.owner import starting
from stack.cli.rendering import settings


def steps(words: list[str]) -> None:
    with starting._steps() as tell:
        for word in words:
            for place in range(3):
                tell(word, place, 3)


def test_a_line_for_each_long_step(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_LONG", 0.0)
    steps(["downloading maker/model", "loading the weights", "compiling"])
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [re.sub(r"[0-9]+ s$", "N s", line).partition(": ")[2] for line in printed.err.splitlines()]
    assert lines == ["downloading maker/model: N s", "loading the weights: N s", "compiling: N s"]


def test_short_steps_and_quiet_ones_have_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    steps(["starting the container"])
    monkeypatch.setattr(starting, "_LONG", 0.0)
    settings.use(quiet=True)
    try:
        steps(["compiling"])
    finally:
        settings.reset()
    assert capsys.readouterr().err == ""
