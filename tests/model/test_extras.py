# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from stack.model import extras, pins
from stack.model.pins import Archive, Pins

from .factories import PINS, refusal

PROJECT = """\
[project.optional-dependencies]
# What the stack stands on.
serve = ["vllm==1.0.0", "flashinfer-python==0.5.0"] # see pins.toml
dev = ["vllm==0.1"]
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Pins:
    (tmp_path / "pins.toml").write_text(PINS)
    return pins.load(tmp_path / "pins.toml")


def disagreements(root: Path, text: str, loaded: Pins) -> list[str]:
    (root / "pyproject.toml").write_text(text)
    return list(extras.disagreements(root, loaded))


def test_agrees(tmp_path: Path, loaded: Pins) -> None:
    assert list(extras.disagreements(tmp_path, loaded)) == []
    assert disagreements(tmp_path, PROJECT, loaded) == []
    assert disagreements(tmp_path, "[project]\n", loaded) == []
    assert disagreements(tmp_path, PROJECT.replace("serve", "server"), loaded) == []


WAYS = [
    'serve = ["vllm==0.9"]',
    "serve = ['vllm==0.9']",
    'serve = ["other[a]==1", "vllm==0.9"]',
    'serve = ["vllm[audio]==0.9"]',
    'serve = ["vllm [audio] == 0.9"]',
    "serve = [\"VLLM==0.9; python_version > '3'\"]",
    "serve=[\n  # don't [mind] this\n  'x', # nor \"this\n  'vllm==0.9',\n]",
]


@pytest.mark.parametrize("text", WAYS)
def test_disagrees(tmp_path: Path, loaded: Pins, text: str) -> None:
    assert disagreements(tmp_path, f"{text}\n", loaded) == ["pyproject.toml: serve has vllm==0.9, the pin is 1.0.0"]
    assert extras.edited(text, loaded) == text.replace("0.9", "1.0.0")


def test_spelling_of_a_name(tmp_path: Path, loaded: Pins) -> None:
    text = 'serve = ["FlashInfer_Python==0.4", "flashinfer-python-extra==0.1"]\n'
    assert disagreements(tmp_path, text, loaded) == [
        "pyproject.toml: serve has flashinfer-python==0.4, the pin is 0.5.0",
    ]


@pytest.mark.parametrize(
    "text", ['serve = ["vllm>=0.9"]', 'serve = ["vllm"]', 'serve = ["my-vllm==0.9"]', 'dev = ["vllm==0.9"]', ""]
)
def test_says_nothing_of_others(tmp_path: Path, loaded: Pins, text: str) -> None:
    assert disagreements(tmp_path, text, loaded) == []
    assert extras.edited(text, loaded) == text


def test_edited(loaded: Pins) -> None:
    assert extras.edited(PROJECT, loaded) == PROJECT
    new = loaded.replaced(
        replace(loaded.get("vllm"), archive=Archive("vllm", "10.0.0rc1", None)),
        replace(loaded.get("flashinfer"), archive=Archive("flashinfer-python", "0.5.0.post1", None)),
    )
    assert extras.edited(PROJECT, new) == PROJECT.replace("1.0.0", "10.0.0rc1").replace("0.5.0", "0.5.0.post1")


def test_unreadable(tmp_path: Path, loaded: Pins) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    assert refusal(tmp_path, lambda: list(extras.disagreements(tmp_path, loaded))) == (
        "pyproject.toml is not UTF-8 (byte 0): save it as UTF-8"
    )
