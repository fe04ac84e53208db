# SPDX-License-Identifier: Apache-2.0
"""How large a pull request may be, how many may be open, and what it stands on."""

from dataclasses import replace

import pytest

from stack.upstreaming.linting import extent

from .factories import FLASHINFER, VLLM, Making, proposal, said


def lines(count: int) -> str:
    return "".join(f"line_{number} = {number}\n" for number in range(count))


@pytest.mark.parametrize(
    ("path", "count", "title", "expected"),
    [
        ("vllm/a.py", 100, "[Bugfix] x", []),
        ("vllm/a.py", 250, "[Bugfix] x", []),
        ("vllm/a.py", 251, "[Bugfix] x", [("size", "error", "change")]),
        ("vllm/a.py", 251, "[Feature] x", [("size", "warning", "change")]),
        ("tests/a.py", 900, "[Bugfix] x", []),
        ("docs/a.md", 900, "[Bugfix] x", [("rfc", "error", "change")]),
        ("csrc/a.cu", 900, "[Feature] x", [("size", "warning", "change")]),
        ("vllm/a.py", 501, "[Feature] x", [("size", "warning", "change"), ("rfc", "error", "change")]),
        ("vllm/a.py", 2, "[Bugfix] x", [("size", "warning", "change")]),
    ],
)
def test_size(making: Making, path: str, count: int, title: str, expected: list[tuple[str, str, str]]) -> None:
    change = making.change({"x": "x"}, {"x": "x", path: lines(count)})
    assert said(extent.size(VLLM, change, title, ["Because."])) == expected
    assert said(extent.size(FLASHINFER, change, title, ["Because."])) == []


@pytest.mark.parametrize("text", ["See RFC #1234.", "rfc: https://github.com/o/r/issues/12", "#77 is the RFC"])
def test_an_issue_first(making: Making, text: str) -> None:
    change = making.change({"x": "x"}, {"x": "x", "vllm/a.py": lines(501)})
    assert said(extent.size(VLLM, change, "[Feature] x", ["Because.", text])) == [("size", "warning", "change")]


def test_what_is_removed_counts(making: Making) -> None:
    change = making.change({"x": "x", "vllm/a.py": lines(300)}, {"x": "x"})
    assert said(extent.size(VLLM, change, "[Bugfix] x", [])) == [("size", "error", "change")]


def test_so_many_may_be_open() -> None:
    some = [proposal()] * 6
    assert said(extent.at_once(VLLM, some, 0)) == []
    assert said(extent.at_once(VLLM, some, 1)) == [("open", "warning", "vllm")]
    assert said(extent.at_once(VLLM, some[:1], 6)) == [("open", "error", "vllm")]
    assert said(extent.at_once(VLLM, [], 7)) == []
    assert said(extent.at_once(FLASHINFER, some * 9, 9)) == []


def test_what_it_stands_on() -> None:
    assert said(extent.standing(proposal(), 0)) == []
    assert said(extent.standing(proposal(), 3)) == [("base", "error", "base")]
    assert said(extent.standing(proposal(), None)) == [("base", "warning", "base")]
    assert said(extent.standing(replace(proposal(), real=False), 3)) == [("base", "warning", "base")]
