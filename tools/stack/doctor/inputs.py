# SPDX-License-Identifier: Apache-2.0
"""Read what commands say of a machine: meminfo, nvidia-smi, uname, df, ulimit, docker inspect, ibv_devinfo, NCCL's messages.

Each becomes facts by name, as text: `meminfo.CmaFree = 65536 KiB`. A file may hold the output of several commands.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stack.doctor.finding import Check, Finding, Found, Severity, run
from stack.doctor.knowledge import match
from stack.doctor.knowledge.rule import Rule
from stack.model import document

_LARGEST = 4 * 2**20
_MEMINFO = re.compile(r"^([A-Z]\w{2,30}(?:\(\w{1,20}\))?): {1,20}(\d{1,15}) kB$", re.MULTILINE)
_SMI = re.compile(r"Driver Version: ([\d.]{1,20}) {1,40}CUDA (?:UMD )?Version: ([\d.]{1,10})")
_GPU = re.compile(r"^\| {1,4}\d{1,2} {1,4}(NVIDIA [\w .-]{2,60}?) {2,60}", re.MULTILINE)
_UNAME = re.compile(r"\bLinux(?: version)? (?:\S{1,80} )?(\d{1,2}\.\d{1,2}\.\d{1,3}-[\w.-]{1,60})")
_SHM = re.compile(
    r"^(?:shm|tmpfs) {1,40}(\d{1,15}[KMGT]?) {1,40}(\S{1,12}) {1,40}(\S{1,12}) {1,40}\S{1,6} {1,10}/dev/shm$", re.MULTILINE
)
_MEMLOCK = re.compile(
    r"max locked memory\s{1,20}\((?:kbytes|kB)[^)]{0,20}\)\s{1,10}(\w{1,15})|^Max locked memory {1,30}(\w{1,15})", re.MULTILINE
)
_CMDLINE = re.compile(r"^BOOT_IMAGE=.{1,2000}$", re.MULTILINE)
_RDMA = (
    ("roce.link_layer", re.compile(r"link_layer:\s{1,20}(\w{2,20})")),
    ("roce.state", re.compile(r"\bstate:\s{1,20}PORT_(\w{2,20})")),
    ("roce.active_mtu", re.compile(r"active_mtu:\s{1,20}(\d{3,5})")),
)
_NCCL = (
    ("nccl.network", re.compile(r"NCCL INFO Using network (\w{2,20})")),
    ("nccl.version", re.compile(r"NCCL version (\d[\w.+-]{1,30})|vLLM is using nccl==(\d[\w.]{1,20})")),
    ("nccl.interface", re.compile(r"NCCL INFO Bootstrap ?: Using (?:\[\d+\])?([\w.-]{1,30}):")),
)


def read(file: Path) -> Mapping[str, str]:
    """Read the facts in a file.

    Raises:
        StackError: it cannot be read, or is too large.

    """
    return of(
        document.read_bytes(file, missing="name the output of a command", largest=_LARGEST, piped=True).decode(
            "utf-8", "replace"
        )
    )


def of(text: str) -> dict[str, str]:
    """Read the facts in a text."""
    return dict(_facts(text))


def hardware(given: Mapping[str, str]) -> frozenset[str] | None:
    """Return the names of the hardware in facts; None if they do not say."""
    gpu = given.get("nvidia.gpu")
    if gpu is None:
        return None
    return frozenset({"spark", "sm121", "sm12x", "unified"}) if "GB10" in gpu else frozenset({"discrete"})


def look(rules: Iterable[Rule], given: Mapping[str, str], hardware: frozenset[str] | None, where: str) -> Iterator[Finding]:
    """Check facts of a machine by the rules about machines."""

    def fits(facts: Mapping[str, str]) -> Iterator[Found]:
        if not facts:
            yield Found(Severity.UNKNOWN, "it has no facts that are known", "name the output of a command that --facts lists")
        for rule in match.in_facts(rules, facts, hardware):
            said = ", ".join(f"{condition.name} is {facts[condition.name]}" for condition in rule.facts)
            what = f"{said}: {rule.title}; {rule.means}"
            yield Found(rule.severity, what, rule.fix, None, rule.id, str(rule.sure), (), rule.evidence)

    return run([Check("facts", "memory, kernel and network are as they should be", fits)], given, where)


def _facts(text: str) -> Iterator[tuple[str, str]]:
    for name, size in _MEMINFO.findall(text):
        yield f"meminfo.{name}", f"{size} KiB"
    if smi := _SMI.search(text):
        yield from (("nvidia.driver", smi[1]), ("nvidia.cuda", smi[2]))
    if gpu := _GPU.search(text):
        yield "nvidia.gpu", gpu[1]
    if kernel := _UNAME.search(text):
        yield "kernel.release", kernel[1]
    if line := _CMDLINE.search(text):
        yield "kernel.cmdline", line[0]
    if shm := _SHM.search(text):
        # df counts in KiB unless -h is given.
        yield "shm.size", shm[1] if shm[1][-1].isalpha() else f"{shm[1]} KiB"
    if lock := _MEMLOCK.search(text):
        value = lock[1] or lock[2]
        yield "limit.memlock", f"{value} KiB" if lock[1] and value.isdigit() else value
    for name, pattern in (*_RDMA, *_NCCL):
        if found := pattern.search(text):
            yield name, next(group for group in found.groups() if group)
    if text.lstrip().startswith("[") and "HostConfig" in text:
        yield from _container(text)


def _container(text: str) -> Iterator[tuple[str, str]]:
    """Read `docker inspect`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    first: Any = found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}
    host = first.get("HostConfig")
    if not isinstance(host, dict):
        return
    memory, shm, ipc = host.get("Memory"), host.get("ShmSize"), host.get("IpcMode")
    if isinstance(memory, int) and memory > 0:
        yield "container.memory", str(memory)
    if isinstance(ipc, str):
        yield "container.ipc", ipc
    if isinstance(shm, int) and ipc != "host":
        yield "shm.size", str(shm)
    for limit in host.get("Ulimits") or ():
        if isinstance(limit, dict) and limit.get("Name") == "memlock":
            yield "limit.memlock", str(limit.get("Hard"))
