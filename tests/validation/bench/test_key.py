# SPDX-License-Identifier: Apache-2.0
"""An API key reaches llama-benchy, and stands on no command line."""

import json
import sys
from pathlib import Path

import pytest

from stack.validation.bench import benchy
from stack.validation.bench.benchy import Size, Target, UnmeasuredError

_SAYS = """
import json, os, pathlib, sys
said = {"argv": sys.argv, "line": pathlib.Path("/proc/self/cmdline").read_text(), "environment": dict(os.environ)}
pathlib.Path(os.environ["SAID"]).write_text(json.dumps(said))
"""


@pytest.mark.parametrize("key", [None, "secret-of-the-owner"], ids=["without", "with"])
def test_the_key_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None) -> None:
    (tmp_path / "llama_benchy.py").write_text(_SAYS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SAID", str(tmp_path / "said.json"))
    target = Target("http://127.0.0.1:9/v1", "gpt-oss-120b", tmp_path / "tokenizer.json", key=key)
    with pytest.raises(UnmeasuredError):  # nothing was measured
        benchy.measure(Path(sys.executable), target, Size(512, 32, 1), lambda _: None, 60)
    said = json.loads((tmp_path / "said.json").read_text())
    assert said["argv"][:3] == ["llama-benchy", "--base-url", "http://127.0.0.1:9/v1"]
    assert said["argv"][-2:] == (["--api-key", key] if key is not None else said["argv"][-2:])
    assert ("--api-key" in said["argv"]) == (key is not None)
    assert "secret" not in said["line"] + json.dumps(said["environment"])
    assert "secret" not in repr(target)
