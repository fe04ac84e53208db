# SPDX-License-Identifier: Apache-2.0
"""Small real images with a stand-in server in them, pushed to a real registry; and podman and docker with a storage of their own."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..images import bases
from ..images.registry import Registry

ROOT = Path(__file__).parents[2]
# Nothing here may set up networks for containers, as a machine of an owner does: they get the machine's own.
_NETWORK = '[containers]\nnetns = "host"\n'


@dataclass(frozen=True, slots=True)
class RealEngine:
    """An engine: its program, the variables that give it a storage of its own, the images' repository, and their digests by tag."""

    name: str
    environment: dict[str, str]
    repository: str
    digests: dict[str, str]


@contextlib.contextmanager
def podman(place: Path, registry: Registry) -> Iterator[RealEngine]:
    """Images `one`, `two` and `bad` (whose server dies) in a registry, and an engine that has none of them."""
    with images(place / "made", registry) as (repository, digests), bases.storage(place / "engine") as variables:
        file = Path(variables["CONTAINERS_CONF"])
        file.write_text(file.read_text().replace("[containers]\n", _NETWORK))
        try:
            yield RealEngine("podman", {**variables, **registry.environment}, repository, digests)
        finally:
            command = ["podman", "rm", "--all", "--force", "--time=0"]
            subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=False)


@contextlib.contextmanager
def images(place: Path, registry: Registry) -> Iterator[tuple[str, dict[str, str]]]:
    """Build and push the images; yield their repository and their digests by tag."""
    repository = f"{registry.host}/owner/stack"
    with bases.storage(place / "builder") as variables, pytest.MonkeyPatch.context() as patched:
        for name, value in {**variables, **registry.environment}.items():
            patched.setenv(name, value)
        base = bases.small().rpartition("@")[0]
        container = _said("buildah", "from", "--pull=never", _loaded(base))
        server = ROOT / "tests/serving/front_end.py"
        (place / "entry").write_text(bases.ENTRY)
        for file, name in ((server, "vllm"), (place / "entry", "entry")):
            _said("buildah", "copy", "--chmod=755", container, str(file), f"/opt/stack/bin/{name}")
        _said("buildah", "config", "--user=10001", "--env=PATH=/opt/stack/bin:/usr/bin:/bin", container)
        _said("buildah", "config", '--entrypoint=["/opt/stack/bin/entry"]', container)
        digests = {}
        for tag, how in (("one", ""), ("two", ""), ("bad", "dies")):
            _said("buildah", "config", f"--env=HOW={how}", f"--label=tag={tag}", container)
            _said("buildah", "commit", "--quiet", container, f"localhost/{tag}:1")
            file = place / f"{tag}.digest"
            _said("buildah", "push", "--quiet", f"--digestfile={file}", f"localhost/{tag}:1", f"docker://{repository}:{tag}")
            digests[tag] = file.read_text().strip()
        yield repository, digests


def _loaded(layout: str) -> str:
    _said("skopeo", "copy", "--quiet", layout, "containers-storage:localhost/base:1")
    return "localhost/base:1"


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout.strip()


def model(folder: Path) -> Path:
    """A model's folder, which everybody may read: what the stand-in server says lies in it."""
    shutil.copytree(ROOT / "tests/deploy/logs", folder)
    (folder / "config.json").write_text("{}")
    folder.chmod(0o755)
    return folder


_BRIDGE = Path("/sys/class/net/docker0")


@contextlib.contextmanager
def docker(place: Path, registry: Registry) -> Iterator[RealEngine]:
    """The same images, and a docker daemon of its own, whose containers have a network of their own as on an owner's machine."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("not run without root and a docker daemon: apt-get install docker.io")
    if _BRIDGE.exists():
        pytest.skip("not run beside another docker daemon, whose network it would use")
    folder = Path(tempfile.mkdtemp(prefix="stack-docker-", dir="/tmp"))  # the path of a socket is short
    address = f"unix://{folder}/socket"
    options = ("--iptables=false", "--ip6tables=false", f"--pidfile={folder}/pid", f"--host={address}")
    with images(place / "made", registry) as (repository, digests), (folder / "log").open("wb") as log:
        daemon = subprocess.Popen(
            ["dockerd", f"--data-root={folder}/data", f"--exec-root={folder}/exec", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            environment = {"DOCKER_HOST": address, **registry.environment}
            _wait_for(daemon, environment, folder / "log")
            yield RealEngine("docker", environment, repository, digests)
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)
            subprocess.run(["ip", "link", "delete", "docker0"], check=False)
            shutil.rmtree(folder)


def _wait_for(daemon: "subprocess.Popen[bytes]", environment: dict[str, str], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and daemon.poll() is None:
        done = subprocess.run(["docker", "version"], env={**os.environ, **environment}, capture_output=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.2)
    if "ermission denied" in log.read_text() or "not permitted" in log.read_text():
        pytest.skip("not run where a docker daemon may not set up containers")
    raise AssertionError(log.read_text())
