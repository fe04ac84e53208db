# SPDX-License-Identifier: Apache-2.0
"""Fetch the wheels that an archive carries besides those of the stack: from the registry by hash, kept in the cache."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.proof import environment
from stack.store import cache as places
from stack.validation.pack.targets import Target

_COMPLETE = "complete"
_MANYLINUX = ("1", "2010", "2014", *(f"_2_{minor}" for minor in (17, 24, 26, 27, 28, 31, 34)))
"""Published manylinux tags for a Linux of 2024 (glibc 2.39). pip compares tags by name only, so each has to be listed."""


def wheels(target: Target, cache: Path, tell: Progress) -> tuple[Path, ...]:
    """Return the wheels of the target's list; the first call fetches them.

    Raises:
        StackError: pip could not fetch a wheel, or it has another hash than the list.

    """
    requirements = Path(__file__).with_name(target.requirements)
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = cache / "wheels" / f"pack-{target.name}-{key}"
    with places.lock(folder):
        if not (folder / _COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            tell("fetching wheels for the archive")
            _download(target, requirements, folder)
            (folder / _COMPLETE).touch()
    return tuple(sorted(folder.glob("*.whl")))


def _download(target: Target, requirements: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", ".".join(map(str, target.python)), "--dest", str(folder)]
    for tag in _MANYLINUX:
        command += ["--platform", f"manylinux{tag}_{target.platform}"]
    done = subprocess.run([*command, "-r", str(requirements)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(
            f"pip cannot fetch {requirements.name}: {environment.first_error(done.stderr)}", "check the network and disk space"
        )
