# SPDX-License-Identifier: Apache-2.0
"""Which processors' programs this machine runs."""

import platform
from pathlib import Path

from stack.images.system import MACHINES

_EMULATORS = Path("/proc/sys/fs/binfmt_misc")
"""Where the kernel lists the programs with which it starts those of other processors."""


def own() -> str:
    """Return this machine's processor as images name it."""
    machine = platform.machine()
    return next((name for name, kernel in MACHINES.items() if kernel == machine), machine)


def platform_of(text: str) -> str:
    """Return a platform as images name it: `linux/arm64` for `arm64`, `aarch64` and `linux/aarch64`, too.

    Other text is returned as it is, for whoever knows the platform.
    """
    system, slash, architecture = text.partition("/")
    name = architecture if slash else system
    known = next((image for image, kernel in MACHINES.items() if name in (image, kernel)), None)
    return text if known is None else f"{system if slash else 'linux'}/{known}"


def runs(architecture: str) -> bool:
    """Return whether an engine can run programs for a processor: this machine's own, or one that the kernel has an emulator for."""
    if architecture == own():
        return True
    entry = _EMULATORS / f"qemu-{MACHINES.get(architecture, architecture)}"
    try:
        return entry.read_text().startswith("enabled")
    except OSError:
        return False
