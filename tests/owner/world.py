# SPDX-License-Identifier: Apache-2.0
"""An owner's machine: a stand-in engine on PATH with images that behave as a test says, a home and a model of its own."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stack.base import addresses
from stack.cli import owner
from stack.deploy import available_memory
from stack.deploy.available_memory import Memory
from stack.owner import state_file
from stack.owner.state import State

from ..cli.conftest import Ran

ROOT = Path(__file__).parents[2]
SCRIPT = "import sys; sys.argv[0] = 'spark-stack'; from stack.cli.owner import main; main()"
NAME = "registry.example/stack"
ONE, TWO, BAD, OTHER = f"{NAME}:1", f"{NAME}:2", f"{NAME}:bad", f"{NAME}:other"
"""Images: two that serve, one whose server dies, one that runs other kernels than the recipe expects."""
RECIPE = "cpu-fp32"


def plenty(*_: object) -> Memory:
    """Memory for every server: what else runs on this machine is not the tests' business."""
    return Memory(total=10**12, free=10**12, available=10**12, cache=0, shared=0, swap=10**12, swap_free=10**12)


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def images() -> dict[str, dict[str, str]]:
    """The images of the stand-in registry."""
    ways: dict[str, dict[str, str]] = {ONE: {}, TWO: {}, BAD: {"how": "dies"}, OTHER: {"says": "h200-default"}}
    return {name: {"digest": digest(f"digest {name}"), "id": digest(f"id {name}"), **way} for name, way in ways.items()}


@dataclass(frozen=True, slots=True)
class World:
    """The machine: its folder, the variables of its user, and a free port."""

    folder: Path
    environment: dict[str, str]
    port: int

    @property
    def file(self) -> Path:
        return self.folder / "state/stack/server.json"

    @property
    def engine(self) -> Path:
        return self.folder / "engine"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def known(self) -> State:
        """The state, which has to be there."""
        known = state_file.read(self.file)
        assert known is not None
        return known

    def up(self, image: str | None = ONE, *more: object) -> list[str]:
        """The words of `up` with an image."""
        named = ["--image", image] if image is not None else []
        return ["up", RECIPE, *named, "--model", str(self.model), "--port", str(self.port), *map(str, more)]

    def run(self, *words: object) -> Ran:
        """Run `spark-stack WORDS` in this process."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patched:
            for name, value in self.environment.items():
                patched.setenv(name, value)
            patched.setattr(sys, "argv", ["spark-stack", *map(str, words)])
            patched.chdir(self.folder)
            patched.setattr(available_memory, "read", plenty)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
                owner.main()
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, out.getvalue(), err.getvalue())

    def start(self, *words: object) -> "subprocess.Popen[str]":
        """Start `spark-stack WORDS` as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *map(str, words)],
            env={**os.environ, **self.environment},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def containers(self) -> dict[str, dict[str, Any]]:
        """The containers that the engine has, by name."""
        return {file.stem: json.loads(file.read_text()) for file in (self.engine / "containers").glob("[!.]*.json")}

    def running(self) -> str | None:
        """The name of the image whose server runs; None: none does."""
        for name, held in self.containers().items():
            if self.pid(name) is not None:
                return next(name for name, one in images().items() if one["id"] == held["image"])
        return None

    def pid(self, name: str) -> int | None:
        """The process of a container's server, if it runs."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.engine / f"containers/{name}.pid").read_text())
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                return pid
        return None

    def calls(self) -> list[list[str]]:
        """The engine's commands so far."""
        return [json.loads(line) for line in (self.engine / "calls").read_text().splitlines()]


def end_servers(engine: Path) -> None:
    """End the servers that a stand-in engine has started."""
    for file in (engine / "containers").glob("*.pid"):
        with contextlib.suppress(OSError, ValueError):
            os.killpg(int(file.read_text()), signal.SIGTERM if (engine / "guard").exists() else signal.SIGKILL)


@contextlib.contextmanager
def made(folder: Path) -> Iterator[World]:
    """A machine in a folder; its servers end with the block."""
    for name in ("engine/pulled", "engine/containers", "engine/volumes", "bin", "home"):
        (folder / name).mkdir(parents=True)
    (folder / "engine/images.json").write_text(json.dumps(images()))
    docker = folder / "bin/docker"
    docker.write_text(f'#!/bin/sh\nexec {sys.executable} -S {ROOT / "tests/owner/fake_engine.py"} "$@"\n')
    docker.chmod(0o755)
    shutil.copytree(ROOT / "tests/deploy/logs", folder / "model")
    (folder / "model/config.json").write_text("{}")
    for each in (folder, folder / "model"):
        each.chmod(0o755)
    environment = {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
        "STACK_CACHE": str(folder / "cache"),
        "FAKE_ENGINE": str(folder / "engine"),
        "PYTHONPATH": str(ROOT / "tools"),
        "STACK_IMAGE": "",
        "STACK_KEY": "",
        "VLLM_API_KEY": "",
    }
    world = World(folder, environment, addresses.free_port())
    try:
        yield world
    finally:
        end_servers(folder / "engine")
