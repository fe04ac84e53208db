# SPDX-License-Identifier: Apache-2.0
"""Read the operating system: kernel, DGX OS release, power settings, firmware updates that wait."""

import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.owner.readiness import programs

_RELEASE = re.compile(r"^(DGX_\w{1,40})=\"?([^\"\n]{0,100})\"?$", re.MULTILINE)
_FIRMWARE = 60.0
"""Seconds for fwupd, which may have to start its daemon."""
_NONE = 2
"""Exit status of fwupdmgr if there is nothing to do (fwupd/fwupd#2572)."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the system is read; another machine's files in tests."""

    proc: Path = Path("/proc")
    etc: Path = Path("/etc")
    sys: Path = Path("/sys")
    run: Path = Path("/var/run")

    @property
    def devices(self) -> tuple[Path, ...]:
        """The folders with specifications of the Container Device Interface."""
        return self.etc / "cdi", self.run / "cdi"


@dataclass(frozen=True, slots=True)
class Update:
    """Firmware that can be updated: its device, the version that runs, and the one that waits."""

    device: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """The operating system.

    `dgx`: the settings of /etc/dgx-release by name, empty elsewhere. `cma`: bytes that the kernel counts as CMA memory and as free of it.
    `governor`: of the CPU's clock. `updates`: firmware that waits; None if fwupd could not be asked, with the `firmware_problem`.
    """

    kernel: str
    architecture: str
    command_line: str = ""
    dgx: Mapping[str, str] | None = None
    cma: tuple[int, int] | None = None
    governor: str = ""
    updates: tuple[Update, ...] | None = None
    firmware_problem: str = ""

    @property
    def dgx_version(self) -> str:
        """The version of DGX OS: of the last update over the air, else of the installation; empty elsewhere."""
        known = self.dgx or {}
        return known.get("DGX_OTA_VERSION") or known.get("DGX_SWBUILD_VERSION") or ""


def read(sources: Sources) -> SystemFacts:
    """Read the operating system of a machine."""
    updates, problem = _updates()
    return SystemFacts(
        kernel=_text(sources.proc / "sys/kernel/osrelease").strip() or platform.release(),
        architecture=platform.machine(),
        command_line=_text(sources.proc / "cmdline").strip(),
        dgx=dict(_RELEASE.findall(_text(sources.etc / "dgx-release"))),
        cma=_cma(_text(sources.proc / "meminfo")),
        governor=_text(sources.sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor").strip()[:_SHOWN],
        updates=updates,
        firmware_problem=problem,
    )


def _cma(meminfo: str) -> tuple[int, int] | None:
    found = {name: int(size) * 1024 for name, size in re.findall(r"^(Cma\w{4,5}):\s+([0-9]{1,15}) kB$", meminfo, re.MULTILINE)}
    return (found["CmaTotal"], found["CmaFree"]) if {"CmaTotal", "CmaFree"} <= found.keys() else None


def _updates() -> tuple[tuple[Update, ...] | None, str]:
    """Ask fwupd for updates that it knows of; it downloads nothing for this."""
    told = programs.run("fwupdmgr", "get-updates", "--json", "--no-metadata-check", "--no-unreported-check", wait=_FIRMWARE)
    if told.code == _NONE and not told.missing:
        return (), ""
    if not told.works:
        return None, told.problem
    try:
        # Some versions print a list for people behind the JSON (fwupd/fwupd#9997).
        content, _ = json.JSONDecoder().raw_decode(told.text.lstrip())
    except (ValueError, RecursionError):
        return None, "fwupdmgr does not answer with JSON"
    return tuple(_listed(content)), ""


def _listed(content: Any) -> Iterator[Update]:
    devices = content.get("Devices") if isinstance(content, dict) else None
    for device in devices if isinstance(devices, list) else ():
        releases = device.get("Releases") if isinstance(device, dict) else None
        newest = releases[0] if isinstance(releases, list) and releases and isinstance(releases[0], dict) else None
        if newest is not None:
            yield Update(*(_plain(each) for each in (device.get("Name"), device.get("Version"), newest.get("Version"))))


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else "?"
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:80]


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
