# SPDX-License-Identifier: Apache-2.0
"""The output of commands about a machine becomes facts, which rules about machines use."""

from pathlib import Path

import pytest

from stack.doctor import here, inputs
from stack.doctor.finding import Severity
from stack.doctor.knowledge import load

SMI = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |
"""
INSPECT = '[{"HostConfig": {"Memory": 8589934592, "ShmSize": 67108864, "IpcMode": "private", "Ulimits": [{"Name": "memlock", "Hard": -1}]}}]'


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            "MemTotal:       125513216 kB\nCmaFree:           65536 kB\n",
            {"meminfo.MemTotal": "125513216 KiB", "meminfo.CmaFree": "65536 KiB"},
        ),
        (SMI, {"nvidia.driver": "580.95.05", "nvidia.cuda": "13.0", "nvidia.gpu": "NVIDIA GB10"}),
        ("Linux spark-1 6.14.0-1015-nvidia #15 SMP aarch64\n", {"kernel.release": "6.14.0-1015-nvidia"}),
        ("shm                65536       0     65536   0% /dev/shm\n", {"shm.size": "65536 KiB"}),
        ("tmpfs            60G     0   60G   0% /dev/shm\n", {"shm.size": "60G"}),
        ("max locked memory           (kbytes, -l) 8192\n", {"limit.memlock": "8192 KiB"}),
        (
            "hca_id: rocep1s0f0\n  state: PORT_ACTIVE (4)\n  active_mtu: 1024 (3)\n  link_layer: Ethernet\n",
            {"roce.state": "ACTIVE", "roce.active_mtu": "1024", "roce.link_layer": "Ethernet"},
        ),
        ("x:1:1 [0] NCCL INFO Using network Socket\n", {"nccl.network": "Socket"}),
        (
            INSPECT,
            {"container.memory": "8589934592", "container.ipc": "private", "shm.size": "67108864", "limit.memlock": "-1"},
        ),
        ("hello\n", {}),
        ("[" * 100000, {}),
    ],
)
def test_facts(text: str, facts: dict[str, str]) -> None:
    assert inputs.of(text) == facts


def test_a_small_dev_shm_is_told_and_a_large_one_is_not() -> None:
    for size, rules in (("65536", ["shm-small"]), ("62749216", [])):
        given = inputs.of(f"shm  {size}       0     {size}   0% /dev/shm\n")
        found = [*inputs.look(load.builtin(), given, None, "df")]
        assert [one.found.rule for one in found if one.found.rule] == rules


def test_a_file_without_facts_says_so() -> None:
    (found,) = inputs.look(load.builtin(), inputs.of("hello\n"), None, "x")
    assert found.severity is Severity.UNKNOWN


def test_hardware_is_told_by_nvidia_smi() -> None:
    assert "spark" in (inputs.hardware(inputs.of(SMI)) or ())
    assert inputs.hardware(inputs.of(SMI.replace("NVIDIA GB10 ", "NVIDIA H200 "))) == frozenset({"discrete"})
    assert inputs.hardware({}) is None


def test_this_machine_has_facts() -> None:
    facts = here.gather()
    assert "kernel.release" in facts
    assert ("meminfo.MemTotal" in facts) == Path("/proc/meminfo").is_file()
