# SPDX-License-Identifier: Apache-2.0
"""The output of commands about a machine becomes facts, which rules about machines use."""

import re
from pathlib import Path

import pytest

from stack.base.errors import StackError
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


ODD = [
    ('{"Ulimits": 5}', "HostConfig.Ulimits in the output of `docker inspect` is a whole number, not a list"),
    ('{"Ulimits": {"memlock": 5}}', "HostConfig.Ulimits in the output of `docker inspect` is an object, not a list"),
    ('{"Ulimits": ["memlock"]}', "Ulimits[0] in the output of `docker inspect` is a text, not an object"),
    ('{"Ulimits": [{"Name": ["memlock"], "Hard": 5}]}', "Ulimits[0].Name in the output of `docker inspect` is a list"),
    ('{"Ulimits": [{"Name": "memlock", "Hard": "x"}]}', "Ulimits[0].Hard in the output of `docker inspect` is a text"),
    ('{"Memory": "8g"}', "HostConfig.Memory in the output of `docker inspect` is a text, not a whole number"),
    ('{"Memory": true}', "is true or false, not a whole number"),
    ('{"ShmSize": 1.5}', "HostConfig.ShmSize in the output of `docker inspect` is a number"),
    ('{"ShmSize": [1]}', "is a list, not a whole number"),
    ('{"IpcMode": {}}', "HostConfig.IpcMode in the output of `docker inspect` is an object, not a text"),
    ("7", "HostConfig in the output of `docker inspect` is a whole number, not an object"),
    ('{"Memory": 1', "is not valid JSON"),
    ('{"Memory": ' + "9" * 5000 + "}", "is not valid JSON"),
]


@pytest.mark.parametrize(("text", "problem"), ODD)
def test_a_value_of_a_wrong_type_is_one_clear_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "inspect.json"
    file.write_text(f'[{{"HostConfig": {text}}}]')
    with pytest.raises(StackError, match=re.escape(problem)) as failed:
        inputs.read(file)
    assert str(failed.value).startswith(f"{file}: ")
    assert "docker inspect CONTAINER" in str(failed.value)


@pytest.mark.parametrize("text", ["[]", "[null]", '["HostConfig"]', '[{"HostConfig": null}]', '[{"Other": "HostConfig"}]'])
def test_an_inspection_without_facts(text: str) -> None:
    assert inputs.of(text) == {}


def test_other_output_may_follow_an_inspection() -> None:
    both = inputs.of(f"{INSPECT}\nMemTotal:       125513216 kB\n")
    assert (both["meminfo.MemTotal"], both["container.memory"]) == ("125513216 KiB", "8589934592")
    assert inputs.of(INSPECT.replace('"memlock"', '"RLIMIT_MEMLOCK"'))["limit.memlock"] == "-1"
    assert "meminfo.MemTotal" not in inputs.of("MemTotal:       \uff11\uff12 kB\n")
