# SPDX-License-Identifier: Apache-2.0
"""Make the files of a machine in a folder: /proc with its processes, control groups, and an nvidia-smi that lists what a test says."""

from dataclasses import dataclass
from pathlib import Path

from stack.deploy.available_memory import Sources

GB = 10**9
MEMINFO = {
    "MemTotal": 128 * GB,
    "MemFree": 30 * GB,
    "MemAvailable": 95 * GB,
    "Buffers": 1 * GB,
    "Cached": 66 * GB,
    "Shmem": 2 * GB,
    "SwapTotal": 16 * GB,
    "SwapFree": 15 * GB,
}


@dataclass(frozen=True, slots=True)
class FakeMachine:
    """A machine whose /proc, control groups and nvidia-smi are files in a folder."""

    folder: Path

    @property
    def sources(self) -> Sources:
        return Sources(self.folder / "proc", self.folder / "cgroup", str(self.folder / "nvidia-smi"))

    def memory(self, **sizes: int) -> None:
        """Write /proc/meminfo with some sizes in place of the usual ones."""
        lines = [f"{name}: {size // 1024} kB" for name, size in (MEMINFO | sizes).items()]
        (self.folder / "proc/meminfo").write_text("\n".join([*lines, "HugePages_Total:       0", ""]))

    def process(self, pid: int, name: str, title: str, *, parent: int = 1, state: str = "S", own: int = GB) -> None:
        folder = self.folder / f"proc/{pid}"
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} ({name[:15]}) {state} {parent} 1 1 0 -1 4194304 0\n")
        (folder / "status").write_text(
            f"Name:\t{name[:15]}\nRssAnon:\t{own // 2048} kB\nRssFile:\t99999999 kB\nRssShmem:\t{own // 2048} kB\n"
        )
        (folder / "cmdline").write_bytes(b"\0".join(title.encode().split(b" ")) + b"\0")

    def on_gpu(self, *lines: str, code: int = 0) -> None:
        """Write an nvidia-smi that lists processes."""
        program = self.folder / "nvidia-smi"
        text = "\n".join(lines)
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        program.chmod(0o755)

    def group(self, path: str, limit: str, used: int, files: int = 0) -> None:
        folder = self.folder / "cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(
            f"anon {used - files}\nfile {files}\ninactive_file {files // 2}\nactive_file {files - files // 2}\n"
        )

    def in_group(self, path: str) -> None:
        (self.folder / "proc/self").mkdir(exist_ok=True)
        (self.folder / "proc/self/cgroup").write_text(f"1:name=systemd:/old\n0::/{path}\n")

    def stalled(self, percent: float) -> None:
        (self.folder / "proc/pressure").mkdir(exist_ok=True)
        (self.folder / "proc/pressure/memory").write_text(
            f"some avg10=99.00 avg60=1.00 avg300=0.10 total=1\nfull avg10={percent:.2f} avg60=0.00 avg300=0.00 total=1\n"
        )


def made(folder: Path) -> FakeMachine:
    """Make a machine without processes, control groups and a driver."""
    (folder / "proc").mkdir(parents=True)
    machine = FakeMachine(folder)
    machine.memory()
    return machine
