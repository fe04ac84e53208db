# SPDX-License-Identifier: Apache-2.0
"""Run `spark-stack ARGS` in this process, with a state folder of the test's own."""

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.cli import owner
from stack.owner import state, state_file
from stack.owner.state import Image, Model, Setup, State

from ..conftest import Ran

SparkStack = Callable[..., Ran]
DIGEST = f"sha256:{'1' * 64}"
ID = f"sha256:{'2' * 64}"


def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkStack:
    """Return the function that runs `spark-stack ARGS`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("STACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STACK_COLUMNS", "80")
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["spark-stack", *map(str, args)])
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            owner.main()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, out.getvalue(), err.getvalue())

    return run


def refused(ran: Ran) -> str:
    """The one line of an error."""
    assert ran.code == 2, ran
    line = ran.err.splitlines()[-1]
    assert line.startswith("spark-stack: ")
    return line.removeprefix("spark-stack: ")


def up(port: int, recipe: str = "gpt-oss-120b-spark", folder: str = "/models/gpt-oss-120b") -> None:
    """Write the state of a server that runs."""
    setup = Setup(
        recipe, Image("registry.example/stack:1", DIGEST, ID, None), Model(folder, "openai/gpt-oss-120b", "a" * 40), port
    )
    state_file.write(state.path(), State("docker", now=setup))
