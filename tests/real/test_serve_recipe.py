# SPDX-License-Identifier: Apache-2.0
"""`stack serve` with this stack's own wheel in a real server on this machine's CPU, asked as a client does, and ended."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stack.validation.model import expected_replies
from stack.validation.serve import checks, prompts
from stack.validation.serve.client import Talk

from ..cli.conftest import SCRIPT

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.images
def test_a_recipe_s_server_says_what_runs_and_answers(tmp_path: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-c", SCRIPT, "--root", str(ROOT), "serve", "cpu-fp32", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        serving = subprocess.Popen(
            [*command, "--", "--served-model-name", "tiny"], stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert serving.stdout is not None
    try:
        line = serving.stdout.readline()
        assert line.startswith(
            "MoE CPU · linear not named · attention not named · KV float32 · graphs off (enforce_eager is set)"
        ), (tmp_path / "log").read_text()[-3000:]
        assert line.endswith(f" · http://127.0.0.1:{port}\n")
        body = prompts.echo(prompts.LETTERS).body
        answer = Talk(f"http://127.0.0.1:{port}", "tiny").ask(checks.CHAT, **body, temperature=0, max_tokens=64)
        assert answer.part("choices", 0, "message", "content") == expected_replies.content(prompts.LETTERS)
        assert _with(port)
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.communicate(timeout=60)
    assert serving.returncode == 0
    assert not _with(port)


def _with(port: int) -> list[str]:
    """The processes of a server, by the port in its command; those of its engine are its children, and end before it."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"vllm.entrypoints.cli.main" in words and str(port).encode() in words:
            found.append(file.parent.name)
    return found
