# SPDX-License-Identifier: Apache-2.0
"""A server is started, waited for and ended, with all its processes, however its owner ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests

from stack.validation.python_env import Installed
from stack.validation.serve import server
from stack.validation.serve.server import NotServing, Running

# In place of vLLM's command line: a front end with an engine, a process of its own.
FRONT_END = """
import http.server, os, pathlib, subprocess, sys
pathlib.Path(os.environ["NOTE"]).write_text(" ".join(sys.argv[1:]))
pathlib.Path(os.environ["NOTE"] + ".env").write_text("\\n".join(sorted(os.environ)))
how = sys.argv[sys.argv.index("serve") + 1]
if how.endswith("dies"):
    print("RuntimeError: Engine core initialization failed")
    print("and then some")
    sys.exit(3)
engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(os.environ["NOTE"] + ".pids").write_text(f"{os.getpid()} {engine.pid}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if how.endswith("never") else 200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
OWNER = """
import sys, time
from pathlib import Path
from stack.validation import python_env
from stack.validation.serve import server
installed = python_env.Installed(Path(sys.executable), (Path(sys.argv[1]),))
with server.serving(installed, Path("model"), [], {"NOTE": sys.argv[2]}, Path(sys.argv[3]), 60):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    package = tmp_path / "packages/vllm/entrypoints/cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text(FRONT_END)
    return Installed(Path(sys.executable), (tmp_path / "packages",))


@pytest.fixture
def note(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "note"


def gone(note: Path) -> bool:
    return gone_pids([int(pid) for pid in note.with_name("note.pids").read_text().split()])


def gone_pids(pids: Sequence[int]) -> bool:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start(installed: Installed, note: Path, how: str = "model", longest: float = 60) -> AbstractContextManager[Running]:
    return server.serving(installed, Path(how), ["--dtype", "float32"], {"NOTE": str(note)}, note.parent / "work", longest)


def test_it_serves_and_is_gone_afterwards(installed: Installed, note: Path) -> None:
    with start(installed, note) as running:
        assert requests.get(f"{running.url}/health", timeout=5).status_code == 200
        assert running.started > 0
        assert not gone_now(note)
    assert gone(note)
    said = note.read_text()
    assert said.startswith("serve model --served-model-name")
    assert said.endswith("--dtype float32")


def gone_now(note: Path) -> bool:
    return not any(_alive(int(pid)) for pid in note.with_name("note.pids").read_text().split())


def test_it_is_gone_after_an_error(installed: Installed, note: Path) -> None:
    with pytest.raises(ZeroDivisionError), start(installed, note):
        raise ZeroDivisionError
    assert gone(note)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGTERM])
def test_it_is_gone_when_its_owner_is_killed(installed: Installed, note: Path, kind: signal.Signals) -> None:
    command = [sys.executable, "-c", OWNER, str(installed.folders[0]), str(note), str(note.parent / "work")]
    root = str(Path(__file__).parents[3])
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": f"{root}/tools"})
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"ready\n"
    assert not gone_now(note)
    owner.send_signal(kind)
    owner.wait()
    owner.stdout.close()
    assert gone(note)


def test_one_that_dies_says_why(installed: Installed, note: Path) -> None:
    with pytest.raises(NotServing) as failed, start(installed, note, "dies"):
        pass
    first = str(failed.value).partition("\n")[0]
    assert first.startswith("the server ended with 3 after ")
    assert first.endswith(f" s: {failed.value.cause}")
    assert "Engine core initialization failed" in str(failed.value)
    assert failed.value.cause == "RuntimeError: Engine core initialization failed"
    assert str(NotServing("it ended", "some\nand then some")) == "it ended: and then some\nsome\nand then some"
    assert NotServing("it ended", "").cause == "it printed nothing"


def test_one_that_is_never_ready_is_given_up(installed: Installed, note: Path) -> None:
    with pytest.raises(NotServing, match="not ready after 2 s"), start(installed, note, "never", longest=2):
        pass
    assert gone(note)


def test_what_the_user_has_set_for_vllm_does_not_count(
    installed: Installed, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MXFP4_USE_MARLIN", "1")
    with start(installed, note):
        pass
    names = note.with_name("note.env").read_text().splitlines()
    assert "VLLM_MXFP4_USE_MARLIN" not in names
    assert "HF_HUB_OFFLINE" in names
