# SPDX-License-Identifier: Apache-2.0
"""Write a SkyPilot task that runs the archive of `stack validate pack` on a rented GPU."""

from pathlib import Path

from stack.base.errors import StackError
from stack.store import cache

_ACCELERATORS = {"sm90": "H100"}
"""SkyPilot's names of GPUs, by the name that `stack validate pack` has for them."""
_TEXT = """\
# Written by `stack matrix init --sky`: validates the stack on a rented {accelerator}. See docs/matrix.md of git-carry.
#
#   stack validate pack --gpu {gpu}            # makes the archive
#   sky launch --cluster {name} FILE        # in the stack's folder
#   scp {name}:{name}.json .stack/verdicts/  # the verdict
#   sky down {name}
#
# The cluster also ends by itself, {idle} minutes after the last command. Servers need nvcc: choose an image that has it.
name: {name}
resources:
  accelerators: {accelerator}:1
  cpus: 8+
  memory: 64+
  disk_size: 256
  autostop:
    idle_minutes: {idle}
    down: true
file_mounts:
  ~/pack-{gpu}.tar.xz: .stack/pack-{gpu}.tar.xz
setup: |
  set -e
  python3 -m pip install --quiet uv
  python3 -m uv venv --quiet --allow-existing --python 3.12 ~/stack-python
  python3 -m uv pip install --quiet --python ~/stack-python/bin/python 'torch>=2.11' transformers
run: |
  set -e
  tar xf ~/pack-{gpu}.tar.xz -C ~
  ~/stack-python/bin/python ~/pack-{gpu}/validate.py --resume --out ~/{name}.json
"""
_IDLE = 30
"""Minutes after which an idle machine is given back: time enough to fetch the verdict."""


def task(gpu: str) -> str:
    """Return the task for a GPU, such as `sm90`.

    Raises:
        StackError: No archive is made for it, or nobody rents it.

    """
    if gpu not in _ACCELERATORS:
        raise StackError(f"no GPU {gpu!r:.100} is known that can be rented", f"choose one of {', '.join(_ACCELERATORS)}")
    return _TEXT.format(gpu=gpu, accelerator=_ACCELERATORS[gpu], name=f"validate-{gpu}", idle=_IDLE)


def write(root: Path, gpu: str, *, force: bool) -> tuple[Path, bool]:
    """Write the task into the stack's folder; return its path, and whether it is new or differs from what was there.

    Raises:
        StackError: The file is there and differs and `force` is not set, or as for `task`.

    """
    made, path = task(gpu).encode(), root / f"validate-{gpu}.sky.yaml"
    before = path.read_bytes() if path.is_file() else None
    if before is not None and before != made and not force:
        raise StackError(f"{path} is there and differs", "look at it, then use --force to replace it")
    if before != made:
        cache.put(path, made)
    return path, before != made
