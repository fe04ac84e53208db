# SPDX-License-Identifier: Apache-2.0
"""Read what commands say of a machine: meminfo, nvidia-smi, uname, df, ulimit, docker inspect, ibv_devinfo, NCCL's messages.

Each becomes facts by name, as text: `meminfo.CmaFree = 65536 KiB`. A file may hold the output of several commands.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.doctor.finding import Check, Finding, Found, Severity, run
from stack.doctor.knowledge import match
from stack.doctor.knowledge.rule import Rule
from stack.model import document

_LARGEST = 4 * 2**20
_WHOLE = "name the whole output of `docker inspect CONTAINER`"
_KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_MEMINFO = re.compile(r"^([A-Z]\w{2,30}(?:\(\w{1,20}\))?): {1,20}([0-9]{1,15}) kB$", re.MULTILINE)
_SMI = re.compile(r"Driver Version: ([0-9.]{1,20}) {1,40}CUDA (?:UMD )?Version: ([0-9.]{1,10})")
_GPU = re.compile(r"^\| {1,4}[0-9]{1,2} {1,4}(NVIDIA [\w .-]{2,60}?) {2,60}", re.MULTILINE)
_UNAME = re.compile(r"\bLinux(?: version)? (?:\S{1,80} )?([0-9]{1,2}\.[0-9]{1,2}\.[0-9]{1,3}-[\w.-]{1,60})")
_SHM = re.compile(
    r"^(?:shm|tmpfs) {1,40}([0-9]{1,15}[KMGT]?) {1,40}(\S{1,12}) {1,40}(\S{1,12}) {1,40}\S{1,6} {1,10}/dev/shm$", re.MULTILINE
)
_MEMLOCK = re.compile(
    r"max locked memory\s{1,20}\((?:kbytes|kB)[^)]{0,20}\)\s{1,10}(\w{1,15})|^Max locked memory {1,30}(\w{1,15})", re.MULTILINE
)
_CMDLINE = re.compile(r"^BOOT_IMAGE=.{1,2000}$", re.MULTILINE)
_RDMA = (
    ("roce.link_layer", re.compile(r"link_layer:\s{1,20}(\w{2,20})")),
    ("roce.state", re.compile(r"\bstate:\s{1,20}PORT_(\w{2,20})")),
    ("roce.active_mtu", re.compile(r"active_mtu:\s{1,20}([0-9]{3,5})")),
)
_NCCL = (
    ("nccl.network", re.compile(r"NCCL INFO Using network (\w{2,20})")),
    ("nccl.version", re.compile(r"NCCL version ([0-9][\w.+-]{1,30})|vLLM is using nccl==([0-9][\w.]{1,20})")),
    ("nccl.interface", re.compile(r"NCCL INFO Bootstrap ?: Using (?:\[0-9+\])?([\w.-]{1,30}):")),
)


def read(file: Path) -> Mapping[str, str]:
    """Read the facts in a file.

    Raises:
        StackError: it cannot be read, is too large, or has a value of a wrong type.

    """
    data = document.read_bytes(file, missing="name the output of a command", largest=_LARGEST, piped=True)
    try:
        return of(data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
    except StackError as odd:
        raise StackError(f"{file}: {odd.problem}", odd.remedy) from odd


def of(text: str) -> dict[str, str]:
    """Read the facts in a text.

    Raises:
        StackError: a value in it is of a wrong type.

    """
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
    """Read `docker inspect` or `podman inspect`; other output may follow."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError) as bad:
        raise StackError("the output of `docker inspect` is not valid JSON", _WHOLE) from bad
    first = found[0] if found else None
    if not isinstance(first, dict) or first.get("HostConfig") is None:
        return
    host = _typed(first, "HostConfig", dict, "")
    memory, shm, ipc = (_typed(host, name, kind) for name, kind in (("Memory", int), ("ShmSize", int), ("IpcMode", str)))
    if memory is not None and memory > 0:
        yield "container.memory", str(memory)
    if ipc is not None:
        yield "container.ipc", ipc
    if shm is not None and ipc != "host":
        yield "shm.size", str(shm)
    for place, limit in enumerate(_typed(host, "Ulimits", list) or ()):
        named = f"Ulimits[{place}]"
        each = _typed({named: limit}, named, dict) or {}
        name, hard = _typed(each, "Name", str, f"HostConfig.{named}."), _typed(each, "Hard", int, f"HostConfig.{named}.")
        if name is not None and hard is not None and name.lower().removeprefix("rlimit_") == "memlock":
            yield "limit.memlock", str(hard)


def _typed(table: Mapping[str, Any], name: str, kind: type, where: str = "HostConfig.") -> Any:
    """Return a value of a table, None if it has none.

    Raises:
        StackError: it is of another type.

    """
    value = table.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        was, wanted = (_KINDS.get(each, "another type") for each in (type(value), kind))
        raise StackError(f"{where}{name} in the output of `docker inspect` is {was}, not {wanted}", _WHOLE)
    return value
