# SPDX-License-Identifier: Apache-2.0
"""A small real base image, a Debian with Python, as an OCI layout in the cache; and a storage of its own for the engine."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.images import engine as engines
from stack.images import skopeo
from stack.images.reference import Reference
from stack.store import cache

_UNREAD = ("doc", "info", "locale", "man")
_DEBIAN = (
    *("mmdebstrap", "--variant=essential", "--quiet"),
    *(f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in _UNREAD),
    "bookworm",
)
# podman's own limits are higher than those of small virtual machines, and it wants systemd.
_CONTAINERS = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
PROGRAMS = ("buildah", "podman", "skopeo", "runc", "mmdebstrap")


def small(*packages: str) -> str:
    """A base image with its digest, as `--base` takes it, with Python or other packages; made on the first call (half a minute)."""
    command = [*_DEBIAN, f"--include={','.join(packages or ('python3',))}"]
    folder = cache.root() / "images" / f"base-{hashlib.sha256(' '.join(command).encode()).hexdigest()[:12]}"
    with cache.lock(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{folder.name}{cache.PART}")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            subprocess.run([*command, str(part / "system.tar")], check=True, capture_output=True)
            container = _said("buildah", "from", "scratch")
            _said("buildah", "add", "--quiet", container, str(part / "system.tar"), "/")
            _said("buildah", "commit", "--quiet", "--timestamp=0", "--rm", container, f"oci:{part / 'layout'}")
            (part / "layout").rename(folder)
            shutil.rmtree(part)
    return f"oci:{folder}@{skopeo.digest(skopeo.raw(f'oci:{folder}'))}"


ENTRY = '#!/bin/sh\necho entered >&2\nexec "$@"\n'


@contextmanager
def serving(place: Path, server: str) -> Iterator[Reference]:
    """A small image with a Python, an entry point and a server where ours has them, and a storage for the engine."""
    base = small().rpartition("@")[0]
    with storage(place / "engine") as variables, pytest.MonkeyPatch.context() as patched:
        for name, value in variables.items():
            patched.setenv(name, value)
        container = _said("buildah", "from", "--pull-never", engines.found().load(base, "localhost/base:1", None))
        for name, text in {"entry": ENTRY, "vllm": server}.items():
            (place / name).write_text(text)
            _said("buildah", "copy", "--chmod=755", container, str(place / name), f"/opt/stack/bin/{name}")
        _said("buildah", "copy", "--chmod=755", container, shutil.which("true") or "", "/opt/stack/bin/true")
        link = ("ln", "-s", "/usr/bin/python3", "/opt/stack/bin/python")
        _said("buildah", "run", "--isolation=oci", "--runtime=runc", container, *link)
        path = "PATH=/opt/stack/bin:/usr/bin:/bin"
        _said("buildah", "config", "--user=10001", "--env", path, '--entrypoint=["/opt/stack/bin/entry"]', container)
        _said("buildah", "commit", "--quiet", "--rm", container, f"oci:{place / 'image'}")
        yield Reference(str(place / "image"), layout=True)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def storage(place: Path) -> Iterator[dict[str, str]]:
    """The variables of an engine with a storage of its own, which goes with the block."""
    place.mkdir(parents=True)
    # podman hears of a container's end through files here, and where their paths are long it waits for 20 seconds instead.
    run = Path(tempfile.mkdtemp(prefix="stack-run-", dir="/tmp"))
    (place / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{run}"\ngraphroot = "{place / "graph"}"\n')
    (place / "containers.conf").write_text(_CONTAINERS)
    try:
        yield {"CONTAINERS_STORAGE_CONF": str(place / "storage.conf"), "CONTAINERS_CONF": str(place / "containers.conf")}
    finally:
        for folder in (place, run):
            # A failed build leaves a file system mounted, and a storage is mounted onto itself.
            for mounted in _mounted(folder):
                subprocess.run(["umount", mounted], check=True)
            shutil.rmtree(folder)


def _mounted(place: Path) -> list[str]:
    """What is mounted below a folder, inner ones first."""
    places = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    return sorted((one for one in places if Path(one).is_relative_to(place)), reverse=True)
