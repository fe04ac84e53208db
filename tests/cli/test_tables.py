# SPDX-License-Identifier: Apache-2.0
"""Tables, names and sentences in terminals of several widths, and in a pipe."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.cli.rendering import settings, table, terminal, text

NAME = "sm121-gating/vllm/refuse-flashinfer-mxfp4-linear-kernel-on-sm12x"
HEADER = ("patch", "outcome", "")
ROWS = [
    (NAME, "clean", ""),
    (
        "mxfp4-moe/vllm/round-marlin-experts",
        "moved",
        "now at vllm/model_executor/layers/fused_moe/oracle/mxfp4.py:867, was 846",
    ),
    ("", "", "a sentence of many words that no narrow terminal can show in one line, so it is wrapped between its words"),
]

WORD = re.compile(r"[A-Za-z0-9]+")
Printed = Callable[[int | None], list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    def at(columns: int | None) -> list[str]:
        monkeypatch.delenv(terminal.WIDTH, raising=False)
        if columns is not None:
            monkeypatch.setenv(terminal.WIDTH, str(columns))
        table.print_table(HEADER, ROWS)
        return capsys.readouterr().out.splitlines()

    return at


def test_in_a_pipe_nothing_is_cut(printed: Printed) -> None:
    lines = printed(None)
    assert len(lines) == 2 + len(ROWS)
    for line, row in zip(lines[2:], ROWS, strict=True):
        assert line.split("   ")[0].strip() == row[0]
        assert line.endswith(row[2] or row[1])


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_no_line_is_too_wide_and_no_word_is_cut(printed: Printed, columns: int) -> None:
    lines = printed(columns)
    assert max(map(len, lines)) <= columns
    whole = {word for row in (HEADER, *ROWS) for cell in row for word in WORD.findall(cell)}
    assert {word for line in lines for word in WORD.findall(line)} <= whole


def test_verbose_shortens_nothing(printed: Printed) -> None:
    settings.reset()
    settings.use(verbose=True)
    try:
        assert NAME in "\n".join(printed(80))
    finally:
        settings.reset()
    assert NAME not in "\n".join(printed(60))


@pytest.mark.parametrize(
    ("name", "most", "short"),
    [
        ("short", 10, "short"),
        ("take-fp8-or-none-for-each-projection", 24, "take-fp8-…each-projection"),
        ("vllm/config/kernel.py", 16, "vllm/…/kernel.py"),
    ],
)
def test_names_lose_their_middle(name: str, most: int, short: str) -> None:
    assert len(text.shortened(name, most)) <= most
    if short:
        assert text.shortened(name, most).startswith(short[:5])
        assert text.shortened(name, most).endswith(short[-7:])


@given(st.text("ab-/_", max_size=40), st.integers(5, 40))
def test_a_shortened_name_fits(name: str, most: int) -> None:
    short = text.shortened(name, most)
    assert len(short) <= most
    assert short == name or "…" in short or "..." in short


@given(st.text("ab /_", max_size=60), st.integers(10, 30))
def test_wrapping_loses_nothing(sentence: str, width: int) -> None:
    lines = table.wrap(sentence, width)
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(sentence.split())
