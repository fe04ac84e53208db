# SPDX-License-Identifier: Apache-2.0
"""Read the files of an image in an engine's storage. As root nothing in it runs, so it may be for another processor."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.base.errors import StackError
from stack.images.engine import Engine, Podman


def read(engine: Engine, image: str, path: str) -> bytes:
    """Read a file of an image by its absolute path.

    Raises:
        StackError: There is no such file, or the image is for another processor and you are not root.

    """
    if os.geteuid():  # only root can mount an image outside of a namespace of its own
        return engine.ask(image, "cat", path).encode()
    with mounted(engine, image) as root:
        try:
            return _inside(root, path).read_bytes()
        except OSError as missing:
            raise StackError(f"the image has no readable {path} ({missing.strerror})", "name another image") from missing


@contextmanager
def mounted(engine: Engine, image: str) -> Iterator[Path]:
    """Provide the folder with an image's files while the block runs, which must not change them. Needs root.

    Raises:
        StackError: The engine cannot mount it.

    """
    if isinstance(engine, Podman):
        place = Path(_run("podman", "image", "mount", "--", image))
        try:
            yield place
        finally:
            _run("podman", "image", "unmount", "--", image)
        return
    container = _run("buildah", "from", "--pull-never", "--", image)
    try:
        yield Path(_run("buildah", "mount", "--", container))
    finally:
        _run("buildah", "rm", "--", container)


def _inside(root: Path, path: str) -> Path:
    """Resolve a path of an image without leaving the image's root: a link in it could name a file of this machine."""
    found = root.joinpath(path.lstrip("/")).resolve()
    if not found.is_relative_to(root.resolve()):
        raise StackError(f"the image's {path} is a link to outside of it", "do not use this image")
    return found


def _run(*command: str) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise StackError(f"{command[0]} cannot read the image: {done.stderr.strip()[-300:]}", "check disk space and rights")
    return done.stdout.strip()
