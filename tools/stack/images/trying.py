# SPDX-License-Identifier: Apache-2.0
"""Run a command in an image of any processor, as the image's user: to try what was built for another machine."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.images import container_env, emulation, layout, reading
from stack.images.engine import Engine
from stack.images.image import Platform
from stack.images.reference import Reference

_ID = 10001
"""The user of images, as the Dockerfile has it."""
_HOME = "/home/stack"
_PRIVATE = (_HOME, "/tmp")  # noqa: S108, folders of the image
"""Folders of the image that the command may write to; they are empty, and removed afterwards."""


def run(
    engine: Engine,
    source: Reference,
    platform: Platform,
    command: Sequence[str],
    lent: Sequence[str],
    place: Path,
    tell: Progress,
) -> int:
    """Run a command in an image, after its entry point if it is empty, and return its exit status.

    It is a process of this machine with the rights of an unprivileged user, sees its network, and no other of its files than `lent`
    (`PATH` or `PATH:INSIDE`). Needs root.

    Raises:
        StackError: You are not root, the image cannot be loaded, or proot or the emulator is missing.

    """
    if os.geteuid():
        raise StackError("an image is mounted as root only", "run the command with sudo")
    config = json.loads(layout.blob(Path(source.place), platform.config))["config"]
    tell("loading the image into the engine's storage")
    name = container_env.planned(engine, platform, place).container.image
    engine.load(str(source), name, platform.name)
    with reading.mounted(engine, name) as root, _bound(root) as work:
        variables = {**_variables(config), "PROOT_TMP_DIR": str(work / "proot")}
        bound = [*lent, *(f"{work / str(number)}:{folder}" for number, folder in enumerate(_PRIVATE))]
        architecture = platform.name.partition("/")[2]
        words = tuple(command) or (*platform.entry, *(config.get("Cmd") or ()))
        rights = ("setpriv", f"--reuid={_ID}", f"--regid={_ID}", "--clear-groups", "--no-new-privs", "--")
        inside = emulation.command(work / "root", architecture, words, variables, folder=_HOME, lent=bound, rights=rights)
        return subprocess.run(inside, stdin=subprocess.DEVNULL, check=False).returncode


def _variables(config: Mapping[str, object]) -> dict[str, str]:
    """Return the image's environment variables."""
    words = config.get("Env") or []
    assert isinstance(words, list)
    return dict(word.split("=", 1) for word in words if isinstance(word, str) and "=" in word)


@contextmanager
def _bound(root: Path) -> Iterator[Path]:
    """Provide a folder with the image in `root`, where its user may go: the engine's own folders are closed to all but root."""
    with tempfile.TemporaryDirectory(prefix="stack-try-") as name:
        work = Path(name)
        work.chmod(0o755)
        for folder in ("root", "proot", *(str(number) for number in range(len(_PRIVATE)))):
            (work / folder).mkdir()
            os.chown(work / folder, _ID, _ID)
        subprocess.run(["mount", "--bind", str(root), str(work / "root")], check=True)
        try:
            yield work
        finally:
            subprocess.run(["umount", "--lazy", str(work / "root")], check=True)
