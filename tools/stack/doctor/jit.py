# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's JIT cache: which of its modules are not of what is installed.

FlashInfer leaves it to ninja whether a module has to be compiled anew (jit/core.py, 0.7), so ninja is asked here, too: a dry run, which
changes nothing. It compares times: where a package was laid down with old times, it sees no change. What FlashInfer generates for a module
it generates anew when that is wanted: that text is compared then, by itself.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_WAIT = 60.0


class State(StrEnum):
    """What becomes of a module when it is wanted next."""

    WHOLE = "whole"
    CHANGED = "changed"  # ninja compiles it anew by itself
    HIDDEN = "hidden"  # installed anew since it was compiled, with times that ninja takes for old ones
    ORPHANED = "orphaned"  # its sources are gone: of another environment
    OTHER = "other"  # of another version: never loaded
    UNFINISHED = "unfinished"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Module:
    """A module in the cache: FlashInfer's version and the architectures it was compiled for, and its state."""

    name: str
    folder: Path
    version: str
    architectures: str
    state: State
    why: str = ""


def modules(environment: Mapping[str, str], python: Path, site: Path | None) -> Iterator[Module]:
    """The modules in the cache of this user, as FlashInfer in `site` would find them."""
    base = Path(environment.get("FLASHINFER_WORKSPACE_BASE") or environment.get("HOME") or Path.home())
    installed = _installed(site)
    ninja = shutil.which(str(python.parent / "ninja")) or shutil.which("ninja")
    for folder in sorted((base / ".cache/flashinfer").glob("*/*/cached_ops/*/")):
        version, architectures = folder.parts[-4], folder.parts[-3]
        if installed is not None and installed[0] != version:
            state, why = State.OTHER, f"FlashInfer {installed[0]} is installed"
        else:
            state, why = _state(folder, ninja, installed[1] if installed else None)
        yield Module(folder.name, folder, version, architectures, state, why)


def _installed(site: Path | None) -> tuple[str, float] | None:
    """Version of the installed FlashInfer, and when it was installed."""
    records = sorted(site.glob("flashinfer_python-*.dist-info")) if site is not None else []
    if not records:
        return None
    return records[-1].name.removeprefix("flashinfer_python-").removesuffix(".dist-info"), records[-1].stat().st_mtime


def _state(folder: Path, ninja: str | None, installed: float | None) -> tuple[State, str]:
    library = folder / f"{folder.name}.so"
    if not (folder / "build.ninja").is_file() or not library.is_file():
        return State.UNFINISHED, f"it has no {library.name}"
    if ninja is None:
        return State.UNKNOWN, "there is no ninja to ask"
    try:
        command = [ninja, "-n", "-d", "explain", "-C", str(folder), "-f", "build.ninja"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=_WAIT)
    except (OSError, subprocess.TimeoutExpired):
        return State.UNKNOWN, "ninja does not answer"
    said = done.stdout + done.stderr
    if done.returncode == 0 and "no work to do" in said:
        if installed is not None and installed > library.stat().st_mtime:
            return State.HIDDEN, "FlashInfer was installed anew since, with file times from before"
        return State.WHOLE, ""
    return _told(said)


def _told(said: str) -> tuple[State, str]:
    """What ninja says of a module that is not as it should be."""
    lines = said.splitlines()
    for words, mark, state in (
        ("missing and no known rule", "ninja: error: ", State.ORPHANED),
        ("", "ninja: error: ", State.UNKNOWN),
        ("", "ninja explain: ", State.CHANGED),
    ):
        found = next((line for line in lines if line.startswith(mark) and words in line), None)
        if found is not None:
            return state, found.removeprefix(mark)
    return State.UNKNOWN, " ".join(said.split())[-200:]
