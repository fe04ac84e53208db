# SPDX-License-Identifier: Apache-2.0
"""Write the lock files: exact versions with hashes, for all Pythons from 3.11 on and all machines.

`make lock` keeps the pinned versions that still fit; `make lock UPGRADE=1` takes the newest ones. uv resolves, in a temporary
environment of its own; its configuration names the package index. Either all locks are replaced or none.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = {"requirements/dev.txt": "dev", "requirements/docs.txt": "docs"}
"""Locks of this project with one of its extras."""
LISTS = (
    "tests/upstream/requirements.txt",
    "examples/fork-v0.17.1/tests/requirements.txt",
    "tools/stack/validation/requirements.txt",
    "tools/stack/validation/bench/requirements.txt",
    "tools/stack/owner/checking/requirements.txt",
    "tools/stack/images/requirements.txt",
)
"""The lock of a list is the file `requirements.lock` in the same folder."""

_OPTIONS = (
    "--universal",
    "--python-version=3.11",
    "--only-binary=:all:",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-header",
    "--quiet",
)


def main() -> None:
    """Resolve every lock in a temporary folder, then put all of them in place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions, not the pinned ones")
    upgrade = parser.parse_args().upgrade
    with tempfile.TemporaryDirectory() as work:
        uv = _uv(Path(work))
        wanted = {lock: ["pyproject.toml", f"--extra={extra}"] for lock, extra in EXTRAS.items()}
        wanted |= {str(Path(file).with_suffix(".lock")): [file] for file in LISTS}
        locks = {Path(lock): _resolved(uv, Path(work), lock, given, upgrade) for lock, given in wanted.items()}
        for lock, resolved in locks.items():
            part = ROOT / lock.with_suffix(".part")
            shutil.copyfile(resolved, part)
            part.replace(ROOT / lock)


def _uv(work: Path) -> Path:
    """Install the uv that image builds resolve with."""
    subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
    constraint = ROOT / "tools/stack/images/requirements.txt"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", constraint, "uv"]
    subprocess.run([work / "venv/bin/python", *install], check=True)
    return work / "venv/bin/uv"


def _resolved(uv: Path, work: Path, lock: str, given: list[str], upgrade: bool) -> Path:
    """Resolve one lock.

    The first run includes torch, so that the versions fit it. The second one keeps these versions and leaves out torch and
    what only torch needs: proofs install torch first, in the version that the upstream names, from whichever index has it.
    """
    print(lock, flush=True)
    out = work / lock.replace("/", "-")
    if not upgrade and (ROOT / lock).is_file():
        shutil.copyfile(ROOT / lock, out)
    without = work / "without.txt"
    without.write_text("torch\n", encoding="utf-8")
    for more in ([], [f"--excludes={without}"]):
        command = [uv, "pip", "compile", *given, *_OPTIONS, *more, f"--output-file={out}"]
        env = {name: value for name, value in os.environ.items() if name != "UV_FIND_LINKS"}
        subprocess.run(command, cwd=ROOT, env=env, check=True)
    return out


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"lock: `{' '.join(map(str, failed.cmd[1:4]))} …` failed: nothing was changed: see the message above")
