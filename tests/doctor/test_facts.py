# SPDX-License-Identifier: Apache-2.0
"""Facts are gathered from this machine: real interpreters, and programs that say what they are told to."""

import hashlib
import sys
from pathlib import Path

import pytest

from stack.doctor import facts, finding, machine
from stack.model.pins import load
from stack.model.verdict import Gpu

ROOT = Path(__file__).parents[2]
PINS = load(ROOT / "pins.toml")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_interpreter_that_says_something_else_first(tmp_path: Path) -> None:
    python = program(tmp_path / "python", f'echo "hello {{"; exec {sys.executable} "$@"')
    assert facts.gather(python, PINS).python.version("click") is not None


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    found = facts.gather(Path(sys.executable), PINS)
    assert found.python.problem == ""
    assert found.python.version("click") is not None
    assert "python_version" in found.python.marks
    assert found.available > 0
    assert found.pins == {"vllm": "0.32.0", "flashinfer-python": "0.7.0.post1"}
    assert found.environment["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert "secret" not in repr(found.environment)
    assert [*finding.run(machine.CHECKS, found, "here")]


@pytest.mark.parametrize("text", ["exit 3", "echo hello", "echo '{}'", "echo '[1]'"])
def test_an_interpreter_that_is_none(tmp_path: Path, text: str) -> None:
    python = program(tmp_path / "python", text)
    assert facts.gather(python, PINS).python.problem == "it does not answer as a Python"
    assert facts.gather(tmp_path / "none", PINS).python.problem.startswith("it cannot be run")


@pytest.mark.parametrize(
    ("text", "knows"),
    [
        ("exit 0", True),
        ("echo \"ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\" >&2; exit 255", False),
        ("exit 127", None),
    ],
)
def test_ptxas_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, knows: bool | None) -> None:
    program(tmp_path / "bin/ptxas", text)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (found,) = facts.gather(Path(sys.executable), PINS).ptxas
    assert (found.owner, found.path, found.knows) == ("CUDA's", str(tmp_path / "bin/ptxas"), knows)


def test_a_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "NVIDIA GB10, 12.1, [N/A], 580.95.05"
    program(tmp_path / "nvidia-smi", f'case "$*" in *query*) echo "{said}";; *) echo "CUDA Version: 13.0";; esac')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = facts.gather(Path(sys.executable), PINS)
    assert found.machine.gpus == (Gpu("NVIDIA GB10", "12.1", None, "580.95.05"),)
    assert (found.machine.cuda, found.capability, found.is_sm12x, found.is_unified) == ("13.0", "12.1", True, True)


def test_the_vocabulary_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / facts.CACHED).write_bytes(b"words")
    monkeypatch.setenv("TIKTOKEN_RS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(tmp_path))
    found = facts.gather(Path(sys.executable), PINS)
    assert found.hashes == {"TIKTOKEN_RS_CACHE_DIR": hashlib.sha256(b"words").hexdigest()}


def test_the_interpreter_beside_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "vllm", "exit 0")
    python = program(tmp_path / "python", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert facts.interpreter() == python
