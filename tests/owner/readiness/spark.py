# SPDX-License-Identifier: Apache-2.0
"""A DGX Spark as its programs and files show it: nvidia-smi, docker, fwupdmgr, /proc, /etc and /sys, in a folder."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stack.deploy.available_memory import Memory
from stack.owner.readiness import facts
from stack.owner.readiness.engine import EngineFacts
from stack.owner.readiness.facts import MachineFacts
from stack.owner.readiness.gpu import Clocks, DriverFacts, GpuFacts
from stack.owner.readiness.places import DiskFacts, PortFacts
from stack.owner.readiness.system import Sources, SystemFacts

from ...deploy import machines

GB = 10**9
GPU = "NVIDIA GB10, 12.1, [N/A], 580.95.05"
IDLE = "208, 3003, 0, 4.31, 36, 0x0000000000000001"
"""As the driver answers on an idle GB10; it has no limit of power to tell."""
BANNER = "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |"
INFO = {
    "ServerVersion": "28.3.3",
    "Runtimes": {
        "io.containerd.runc.v2": {"path": "runc"},
        "nvidia": {"path": "nvidia-container-runtime"},
        "runc": {"path": "runc"},
    },
    "DockerRootDir": "/",
    "CDISpecDirs": [],
    "ServerErrors": None,
}
RELEASE = 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.4.0"\n'
UPDATES = {"Devices": [{"Name": "Embedded Controller", "Version": "0x02004b03", "Releases": [{"Version": "0x02004e18"}]}]}


@dataclass(frozen=True, slots=True)
class FakeSpark:
    """Its folder; `bin` is alone on PATH."""

    folder: Path

    def program(self, name: str, body: str) -> None:
        """Write a program as a script of sh."""
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    def without(self, *names: str) -> None:
        for name in names:
            (self.folder / "bin" / name).unlink()

    def nvidia_smi(self, gpu: str = GPU, clocks: str = IDLE, apps: str = "") -> None:
        self.program(
            "nvidia-smi",
            f'case "$1" in\n--query-gpu=name*) echo "{gpu}" ;;\n--query-gpu=clocks*) echo "{clocks}" ;;\n'
            f'--query-compute-apps*) echo "{apps}" ;;\n*) echo "{BANNER}" ;;\nesac',
        )

    def docker(self, info: dict[str, object] | None = None, run: str = 'echo "GPU 0: NVIDIA GB10 (UUID: GPU-1)"') -> None:
        text = json.dumps(INFO | {"DockerRootDir": str(self.folder)} | (info or {}))
        self.program("docker", f"case \"$1\" in\ninfo) echo '{text}' ;;\nrun) {run} ;;\n*) exit 1 ;;\nesac")

    def fwupdmgr(self, body: str = "exit 2") -> None:
        self.program("fwupdmgr", body)

    def file(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    @property
    def sources(self) -> Sources:
        return Sources(self.folder / "proc", self.folder / "etc", self.folder / "sys", self.folder / "run")


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    """Make a Spark that is in order, and let this process see it in place of its own machine."""
    spark = FakeSpark(folder)
    machines.made(folder)
    (folder / "bin").mkdir()
    spark.nvidia_smi()
    spark.docker()
    spark.fwupdmgr()
    # The Spark's kernel has ended nothing, whatever this machine's has.
    for name in ("dmesg", "journalctl"):
        spark.program(name, "exit 0")
    spark.file("etc/dgx-release", RELEASE)
    spark.file("proc/sys/kernel/osrelease", "6.17.0-1014-nvidia\n")
    spark.file("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz-6.17.0-1014-nvidia root=UUID=1\n")
    spark.file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    monkeypatch.setattr(facts, "HERE", spark.sources)
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))
    return spark


def memory(**values: int) -> Memory:
    """The memory of a Spark on which nothing runs."""
    usual = {
        "total": 128 * GB,
        "free": 110 * GB,
        "available": 120 * GB,
        "cache": 8 * GB,
        "shared": 0,
        "swap": 16 * GB,
        "swap_free": 16 * GB,
    }
    return Memory(**(usual | values))


def facts_of(**changes: object) -> MachineFacts:
    """The facts of a Spark that is in order, with some of them changed."""
    good = MachineFacts(
        driver=DriverFacts(
            (GpuFacts("NVIDIA GB10", "12.1", "580.95.05", None, Clocks(208, 3003, 0, 4.3, 36, 1)),), "13.0", has_device=True
        ),
        engine=EngineFacts("docker", "28.3.3", runtimes=("nvidia", "runc"), toolkit=True, storage=Path("/var/lib/docker")),
        memory=memory(),
        model_disk=DiskFacts(Path("/home/ada/.cache/huggingface/hub"), 500 * GB, 1),
        image_disk=DiskFacts(Path("/var/lib/docker"), 500 * GB, 1),
        port=PortFacts(8000, True),
        system=SystemFacts(
            "6.17.0-1014-nvidia", "aarch64", dgx={"DGX_OTA_VERSION": "7.4.0"}, cma=(0, 0), governor="performance", updates=()
        ),
    )
    return replace(good, **changes)  # type: ignore[arg-type]
