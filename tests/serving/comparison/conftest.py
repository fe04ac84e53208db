# SPDX-License-Identifier: Apache-2.0
"""A stand-in for vLLM as `stack serve --python` starts it, with a model's folder."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.base import addresses

from ...validation.bench.server import tokenizer
from ...validation.serve.test_server import gone_pids

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, slots=True)
class Standing:
    """The stand-in: its folder, with the model in `model`, and a free port."""

    folder: Path
    port: int

    @property
    def model(self) -> Path:
        """The checkpoint's folder."""
        return self.folder / "model"

    def starts(self) -> list[str]:
        """The types of the servers that were started, in order."""
        return (self.folder / "starts").read_text().split()

    def gone(self) -> bool:
        """Whether no server and no engine is left."""
        return gone_pids([int(pid) for pid in (self.folder / "pids").read_text().split()])


@pytest.fixture
def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standing:
    package = tmp_path / "packages/vllm/entrypoints/cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text((Path(__file__).parent / "front_end.py").read_text())
    shutil.copytree(ROOT / "tests/deploy/logs", tmp_path / "model")
    (tmp_path / "model/config.json").write_text("{}")
    tokenizer(tmp_path / "model")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "packages"), str(ROOT / "tools"), str(ROOT)]))
    monkeypatch.setenv("NOTE", str(tmp_path / "starts"))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    return Standing(tmp_path, addresses.free_port())
