# SPDX-License-Identifier: Apache-2.0
"""`stack serve --image`: a server in a container, with a model of this machine, that is gone when the command is."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from stack.images import engine as engines
from stack.images.reference import Reference

from .. import system
from ..cli.conftest import SCRIPT
from . import bases

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    system.demand(*bases.PROGRAMS)
    with bases.serving(tmp_path_factory.mktemp("serve"), (ROOT / "tests/serving/front_end.py").read_text()) as layout:
        yield layout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The folder of a model, which everybody may read."""
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "tests/deploy/logs", folder)
    (folder / "config.json").write_text("{}")
    for one in (tmp_path, folder):
        one.chmod(0o755)
    return folder


def command(made: Reference, model: Path, cache: Path, *arguments: str) -> list[str]:
    own = ["--image", str(made), "--model", str(model), "--port", str(_free_port()), *arguments]
    return [sys.executable, "-c", SCRIPT, "--root", str(ROOT), "--cache", str(cache), "serve", "cpu-fp32", *own]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/health", timeout=5).status_code == 200
    except requests.RequestException:
        return False


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_it_serves_from_an_image(made: Reference, model: Path, tmp_path: Path, kind: signal.Signals) -> None:
    own = command(made, model, tmp_path / "cache", "--server-log", str(tmp_path / "log"))
    serving = subprocess.Popen(own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert serving.stdout is not None
    line = serving.stdout.readline()
    assert line.startswith("MoE CPU · "), line + str(serving.stderr and serving.stderr.read())
    url = line.rstrip().rpartition(" ")[2]
    assert _answers(url)
    assert "entered" in (tmp_path / "log").read_text()
    serving.send_signal(kind)
    serving.communicate(timeout=60)
    assert serving.returncode == (0 if kind is signal.SIGINT else -kind)
    until = time.monotonic() + 30
    while _answers(url) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _answers(url)


def test_what_would_run_in_an_image(made: Reference, model: Path, tmp_path: Path) -> None:
    own = command(made, model, tmp_path / "cache", "--dry-run")
    done = subprocess.run(own, capture_output=True, text=True, check=True)
    load, create, serve = done.stdout.splitlines()
    engine = engines.found().name
    assert shlex.split(load)[0] == "skopeo"
    assert shlex.split(create)[0] == shlex.split(serve)[0] == engine
    # Copied, it runs: with a server that says at once what is wrong with it.
    for line in (load, create, f"{serve} --how dies"):
        last = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert last.returncode == 1
    assert "Using CPU Unquantized MoE backend" in last.stdout


def test_what_an_image_cannot_serve(made: Reference, model: Path, tmp_path: Path) -> None:
    for arguments, problem in (
        (["gpt-oss-120b-spark", "--image", str(made), "--dry-run"], "an image is served without network: name the folder"),
        (
            ["cpu-fp32", "--image", "host.invalid/name:1", "--model", str(model), "--dry-run"],
            "host.invalid/name:1 is not here yet",
        ),
        (
            ["cpu-fp32", "--image", str(made), "--model", str(model), "--host", "0.0.0.0"],
            "0.0.0.0 can be reached from other machines",
        ),
    ):
        own = [sys.executable, "-c", SCRIPT, "--root", str(ROOT), "--cache", str(tmp_path / "cache"), "serve", *arguments]
        done = subprocess.run(own, capture_output=True, text=True, check=False, env={**os.environ, "VLLM_API_KEY": "x"})
        assert done.returncode == 2
        assert done.stderr.startswith(f"stack: {problem}")
