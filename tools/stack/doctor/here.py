# SPDX-License-Identifier: Apache-2.0
"""Gather facts of this machine as `inputs` reads them from files: memory, kernel, /dev/shm and limits."""

import os
import platform
import resource
from collections.abc import Mapping
from pathlib import Path

from stack.doctor import inputs


def gather() -> Mapping[str, str]:
    """Return the facts of this machine; those that may not be read are left out."""
    facts = dict(inputs.of(_text(Path("/proc/meminfo"))))
    facts["kernel.release"] = platform.release()
    if command := _text(Path("/proc/cmdline")).strip():
        facts["kernel.cmdline"] = command
    try:
        shm = os.statvfs("/dev/shm")  # noqa: S108 - it is what is looked at
        facts["shm.size"] = str(shm.f_frsize * shm.f_blocks)
    except OSError:
        pass
    lock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    facts["limit.memlock"] = "unlimited" if lock == resource.RLIM_INFINITY else str(lock)
    limit = _text(Path("/sys/fs/cgroup/memory.max")).strip()
    if limit.isdigit():
        facts["container.memory"] = limit
    return facts


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
