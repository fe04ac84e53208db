# SPDX-License-Identifier: Apache-2.0
"""Find modules in FlashInfer's JIT cache that were not built from the installed sources.

FlashInfer lets ninja decide whether a module must be compiled again (jit/core.py, 0.7). So ninja is asked here, too, by a dry run that
changes nothing. It compares file times: if a package was installed with old times, it sees no change. FlashInfer generates a module's
own source again when it loads the module, and compares that text itself.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_WAIT = 60.0


class ModuleState(StrEnum):
    """State of a module, which determines what happens when it is loaded next."""

    WHOLE = "whole"
    CHANGED = "changed"  # ninja compiles it again
    HIDDEN = "hidden"  # FlashInfer was installed later, with file times that ninja takes for old
    ORPHANED = "orphaned"  # its sources are gone: it is of another environment
    OTHER = "other"  # of another version: never loaded
    UNFINISHED = "unfinished"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Module:
    """A module in the cache: FlashInfer's version, the architectures that it was compiled for, and its state."""

    name: str
    folder: Path
    version: str
    architectures: str
    state: ModuleState
    why: str = ""


def modules(environment: Mapping[str, str], python: Path, site: Path | None) -> Iterator[Module]:
    """Yield the modules in this user's cache, as the FlashInfer in `site` would find them."""
    base = Path(environment.get("FLASHINFER_WORKSPACE_BASE") or environment.get("HOME") or Path.home())
    installed = _installed(site)
    ninja = shutil.which(str(python.parent / "ninja")) or shutil.which("ninja")
    for folder in sorted((base / ".cache/flashinfer").glob("*/*/cached_ops/*/")):
        version, architectures = folder.parts[-4], folder.parts[-3]
        if installed is not None and installed[0] != version:
            state, why = ModuleState.OTHER, f"FlashInfer {installed[0]} is installed"
        else:
            state, why = _state(folder, ninja, installed[1] if installed else None)
        yield Module(folder.name, folder, version, architectures, state, why)


def _installed(site: Path | None) -> tuple[str, float] | None:
    """Return the version of the installed FlashInfer, and the time of its installation."""
    records = sorted(site.glob("flashinfer_python-*.dist-info")) if site is not None else []
    if not records:
        return None
    return records[-1].name.removeprefix("flashinfer_python-").removesuffix(".dist-info"), records[-1].stat().st_mtime


def _state(folder: Path, ninja: str | None, installed: float | None) -> tuple[ModuleState, str]:
    library = folder / f"{folder.name}.so"
    if not (folder / "build.ninja").is_file() or not library.is_file():
        return ModuleState.UNFINISHED, f"it has no {library.name}"
    if ninja is None:
        return ModuleState.UNKNOWN, "ninja is not installed"
    try:
        command = [ninja, "-n", "-d", "explain", "-C", str(folder), "-f", "build.ninja"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_WAIT)
    except (OSError, subprocess.TimeoutExpired):
        return ModuleState.UNKNOWN, "ninja does not answer"
    output = done.stdout + done.stderr
    if done.returncode == 0 and "no work to do" in output:
        if installed is not None and installed > library.stat().st_mtime:
            return ModuleState.HIDDEN, "FlashInfer was installed later, with older file times"
        return ModuleState.WHOLE, ""
    return _told(output)


def _told(output: str) -> tuple[ModuleState, str]:
    """Read ninja's output about a module that must be compiled again, or cannot be."""
    lines = output.splitlines()
    for words, mark, state in (
        ("missing and no known rule", "ninja: error: ", ModuleState.ORPHANED),
        ("", "ninja: error: ", ModuleState.UNKNOWN),
        ("", "ninja explain: ", ModuleState.CHANGED),
    ):
        found = next((line for line in lines if line.startswith(mark) and words in line), None)
        if found is not None:
            return state, found.removeprefix(mark)
    return ModuleState.UNKNOWN, " ".join(output.split())[-200:]
