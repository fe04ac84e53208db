# SPDX-License-Identifier: Apache-2.0
"""Run programs of a system in a folder, of any processor: by proot, and under qemu where this machine does not run them.

The kernel starts foreign programs by itself only where binfmt_misc is set up, which needs rights that containers and small virtual
machines lack. proot needs none: it traces the program and starts qemu for every program that this one starts.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.images import older_calls, processors
from stack.images.system import MACHINES

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OWN = ("/dev", "/proc")
"""Folders of this machine that programs need. Not /sys: PyTorch for aarch64 ends with a segmentation fault when it reads an x86 processor there."""


def command(
    root: Path,
    architecture: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    folder: str = "/",
    lent: Sequence[str] = (),
    rights: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the command that runs another one in the system below `root`, with these variables only.

    `folder` is its working folder, `lent` are further folders or files of this machine, as proot binds them (`PATH` or `PATH:INSIDE`),
    and `rights` is a command that runs another one with fewer rights.

    Raises:
        StackError: proot or the emulator is missing.

    """
    emulator = (
        [] if architecture == processors.own() else ["-q", _program(f"qemu-{MACHINES.get(architecture, architecture)}-static")]
    )
    bound = [f"--bind={place}" for place in (*_OWN, *lent)]
    own = [f"{name}={value}" for name, value in {"PATH": PATH, "LC_ALL": "C.UTF-8", **variables}.items()]
    proot = (_program("proot"), *emulator, f"--rootfs={root}", f"--cwd={folder}", *bound)
    return (sys.executable, "-I", "-S", older_calls.__file__, *rights, "env", "-i", *own, *proot, *arguments)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise StackError(f"{name} is missing", "apt-get install proot qemu-user-static")
    return found
