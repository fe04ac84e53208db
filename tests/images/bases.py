# SPDX-License-Identifier: Apache-2.0
"""A small real base image, a Debian with Python, as an OCI layout in the cache; and a storage of its own for the engine."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.images import skopeo
from stack.store import cache

_UNREAD = ("doc", "info", "locale", "man")
_DEBIAN = [
    *("mmdebstrap", "--variant=essential", "--include=python3", "--quiet"),
    *(f"--dpkgopt=path-exclude=/usr/share/{one}/*" for one in _UNREAD),
    "bookworm",
]
PROGRAMS = ("buildah", "skopeo", "runc", "mmdebstrap")


def small() -> str:
    """The base image with its digest, as `--base` takes it; made on the first call (half a minute)."""
    folder = cache.root() / "images" / f"base-{hashlib.sha256(' '.join(_DEBIAN).encode()).hexdigest()[:12]}"
    with cache.lock(folder):
        if not folder.is_dir():
            part = folder.with_name(f"{folder.name}{cache.PART}")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            subprocess.run([*_DEBIAN, str(part / "system.tar")], check=True, capture_output=True)
            container = _said("buildah", "from", "scratch")
            _said("buildah", "add", "--quiet", container, str(part / "system.tar"), "/")
            _said("buildah", "commit", "--quiet", "--timestamp=0", "--rm", container, f"oci:{part / 'layout'}")
            (part / "layout").rename(folder)
            shutil.rmtree(part)
    return f"oci:{folder}@{skopeo.digest(skopeo.raw(f'oci:{folder}'))}"


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def storage(place: Path) -> Iterator[dict[str, str]]:
    """The variables of an engine with a storage of its own, which goes with the block."""
    place.mkdir(parents=True)
    (place / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\nrunroot = "{place / "run"}"\ngraphroot = "{place / "graph"}"\n'
    )
    try:
        yield {"CONTAINERS_STORAGE_CONF": str(place / "storage.conf")}
    finally:
        # A failed build leaves a file system mounted, and a storage is mounted onto itself.
        for mounted in _mounted(place):
            subprocess.run(["umount", mounted], check=True)
        shutil.rmtree(place)


def _mounted(place: Path) -> list[str]:
    """What is mounted below a folder, inner ones first."""
    places = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    return sorted((one for one in places if Path(one).is_relative_to(place)), reverse=True)
