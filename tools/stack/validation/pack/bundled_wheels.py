# SPDX-License-Identifier: Apache-2.0
"""The wheels that an archive carries beside those of the stack, from the registry by hash, kept in the cache."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from stack.base.errors import StackError
from stack.proof import environment
from stack.store import cache as places
from stack.validation.pack.targets import Target

_COMPLETE = "complete"
_MANYLINUX = ("1", "2010", "2014", *(f"_2_{minor}" for minor in (17, 24, 26, 27, 28, 31, 34)))
"""Tags of wheels for a Linux of 2024 (glibc 2.39) as they are published; pip takes a tag by its name only."""


def wheels(target: Target, cache: Path, tell: Callable[[str], None]) -> tuple[Path, ...]:
    """The wheels that the target's list names; fetched on the first call.

    Raises:
        StackError: pip could not have one, or one is another than the list says.

    """
    requirements = Path(__file__).with_name(target.requirements)
    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = cache / "wheels" / f"pack-{target.name}-{key}"
    with places.lock(folder):
        if not (folder / _COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            tell("fetching what the archive carries")
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
