# SPDX-License-Identifier: Apache-2.0
"""Names of GPU architectures, as nvcc spells them (`sm_90a`), and as the lists of an upstream's build do (`9.0a`)."""

import os
import re
import subprocess
from collections.abc import Iterable

from stack.base.errors import StackError
from stack.proof.compiling.toolkit import Toolkit

ARCHITECTURE = r"sm_([0-9]{2,3})([af]?)"
"""Matches a name; the suffix asks for instructions of this GPU (a) or its family (f) only."""
KNOWN = (75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
"""GPUs that nvcc 12.9 or 13 compiles for; it has the suffixes from 90 on, and `f` from 100 on."""
_SECONDS = 60


def number(name: str) -> str:
    """Return the compute capability of `sm_121a` as lists of architectures have it: `12.1a`."""
    match = re.fullmatch(ARCHITECTURE, name)
    assert match is not None
    return f"{match[1][:-1]}.{match[1][-1]}{match[2]}"


def is_known(name: str) -> bool:
    """Tell whether nvcc compiles for a GPU of this name."""
    match = re.fullmatch(ARCHITECTURE, name)
    least = {"": 0, "a": 90, "f": 100}
    return match is not None and int(match[1]) in KNOWN and int(match[1]) >= least[match[2]]


def check(toolkit: Toolkit, names: Iterable[str]) -> None:
    """Refuse an architecture that the compiler does not know.

    `nvcc --list-gpu-code` names no suffixes, so nvcc is asked to plan a compilation for each name.

    Raises:
        StackError: nvcc does not know one of the names.

    """
    for name in dict.fromkeys(names):
        virtual = name.replace("sm_", "compute_")
        asked = ["--dryrun", f"-gencode=arch={virtual},code={name}", "-c", "-x", "cu", os.devnull, "-o", os.devnull]
        if _ran(toolkit, asked).returncode:
            listed = re.findall(r"sm_\d+", _ran(toolkit, ["--list-gpu-code"]).stdout)
            known = ", ".join(sorted(set(listed), key=lambda one: int(one[3:])))
            also = "; newer ones also with the suffix a or f" if known else ""
            raise StackError(f"nvcc {toolkit.version} does not know {name}", f"it knows {known}{also}" if known else "")


def _ran(toolkit: Toolkit, arguments: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(toolkit.nvcc), *arguments],
        env=toolkit.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
