# SPDX-License-Identifier: Apache-2.0
"""Available memory, read from the files of machines, and from this one."""

import subprocess
import sys
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import available_memory, memory_advice
from stack.deploy.available_memory import Holder, HolderKind, Sources

from .machines import GB, FakeMachine, made


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return made(tmp_path)


def test_this_machine_has_memory() -> None:
    memory = available_memory.read()
    assert 0 < memory.free <= memory.total
    assert 0 < memory.usable <= memory.available <= memory.total
    taken = available_memory.sample()
    assert abs(taken.available - memory.available) < memory.total / 2


def test_sizes(machine: FakeMachine) -> None:
    memory = available_memory.read(machine.sources)
    near = pytest.approx
    assert (memory.total, memory.free, memory.available) == (
        near(128 * GB, abs=1024),
        near(30 * GB, abs=1024),
        near(95 * GB, abs=1024),
    )
    assert memory.cache == near(65 * GB, abs=4096)  # without /dev/shm
    assert (memory.swap, memory.swap_free, memory.shared) == (
        near(16 * GB, abs=1024),
        near(15 * GB, abs=1024),
        near(2 * GB, abs=1024),
    )
    assert (memory.limit, memory.holders, memory.stalled) == (None, (), None)
    assert memory.hidden == near(65 * GB, abs=4096)


def test_a_control_group_limits_what_is_usable(machine: FakeMachine) -> None:
    machine.in_group("system.slice/docker-1.scope")
    machine.group("system.slice", "max", 90 * GB)
    machine.group("system.slice/docker-1.scope", str(50 * GB), 45 * GB, files=30 * GB)
    memory = available_memory.read(machine.sources)
    assert memory.limit == 35 * GB  # page cache counts as free
    assert memory.usable == 35 * GB
    machine.group("system.slice", str(60 * GB), 58 * GB)
    assert available_memory.read(machine.sources).usable == 2 * GB


def test_no_limit_is_none(machine: FakeMachine) -> None:
    machine.in_group("user.slice")
    machine.group("user.slice", "max", 90 * GB)
    assert available_memory.read(machine.sources).limit is None


def test_a_path_of_the_host_finds_the_root_that_is_mounted(machine: FakeMachine) -> None:
    machine.in_group("system.slice/docker-1.scope")
    machine.group("", str(20 * GB), 5 * GB)
    assert available_memory.read(machine.sources).limit == 15 * GB


def test_a_path_that_leaves_the_folder_is_not_followed(machine: FakeMachine) -> None:
    machine.in_group("../../etc")
    assert available_memory.read(machine.sources).limit is None


def test_who_holds_memory(machine: FakeMachine) -> None:
    machine.process(10, "python3", "/usr/bin/python3 /opt/bin/vllm serve model", own=3 * GB)
    machine.process(11, "VLLM::EngineCore", "VLLM::EngineCore", parent=10)
    machine.process(20, "VLLM::EngineCore", "VLLM::EngineCore")
    machine.process(21, "VLLM::Worker_TP0", "VLLM::Worker_TP0", parent=20)
    machine.process(22, "VLLM::EngineCore", "VLLM::EngineCore", state="Z")
    machine.process(30, "gnome-shell", "/usr/bin/gnome-shell", own=2 * GB)
    machine.process(31, "bash", "bash")
    machine.process(40, "ollama", "/usr/bin/ollama serve")
    machine.on_gpu(
        "11, VLLM::EngineCore, 60000", "20, VLLM::EngineCore, [N/A]", "40, /usr/bin/ollama, 1000", "77, a, odd name, 500"
    )
    found = {holder.pid: holder for holder in available_memory.read(machine.sources).holders}
    assert {pid: holder.kind.value for pid, holder in found.items()} == {
        10: "server", 11: "server", 20: "orphan", 21: "orphan", 30: "desktop", 40: "other", 77: "unseen",
    }  # fmt: skip
    assert found[11].memory == 60000 * 2**20  # the driver's number, not the process's own
    assert found[20].memory is None
    assert found[77] == Holder(77, "a, odd name", HolderKind.UNSEEN, 500 * 2**20)
    assert found[10].memory == pytest.approx(3 * GB, abs=4096)


@pytest.mark.parametrize("code", [1, 9])
def test_a_driver_that_does_not_answer_lists_nothing(machine: FakeMachine, code: int) -> None:
    machine.on_gpu("11, x, 60000", code=code)
    assert available_memory.read(machine.sources).holders == ()
    assert available_memory.read(Sources(machine.folder / "proc", machine.folder, "/no/such/program")).holders == ()


def test_control_characters_of_a_name_are_not_shown(machine: FakeMachine) -> None:
    machine.on_gpu("11, \x1b[31mred, 5")
    (holder,) = available_memory.read(machine.sources).holders
    assert holder.name == "?[31mred"
    machine.process(12, "VLLM::\x1b[2J", "VLLM::\x1b[2J")
    assert [each.name for each in available_memory.read(machine.sources).of_kind(HolderKind.ORPHAN)] == ["VLLM::?[2J"]


def test_a_real_process_of_that_title_is_found() -> None:
    code = "import sys, time; print('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, "x"], stdout=subprocess.PIPE, executable=sys.executable) as plain:
        assert plain.stdout is not None
        plain.stdout.readline()
        assert plain.pid not in {holder.pid for holder in available_memory.read().holders}
        plain.kill()
    with subprocess.Popen(["VLLM::EngineCore", "-c", code], stdout=subprocess.PIPE, executable=sys.executable) as engine:
        assert engine.stdout is not None
        engine.stdout.readline()
        found = {holder.pid: holder for holder in available_memory.read().holders}
        assert found[engine.pid].kind is HolderKind.ORPHAN
        assert (found[engine.pid].memory or 0) > 10**6
        engine.kill()


def test_pressure(machine: FakeMachine) -> None:
    machine.stalled(12.34)
    assert available_memory.read(machine.sources).stalled == 12.34
    assert available_memory.sample(machine.sources).stalled == 12.34


def test_a_kernel_that_says_nothing_is_an_error(machine: FakeMachine) -> None:
    (machine.folder / "proc/meminfo").write_text("MemTotal: 5 kB\nMemFree: 1 kB\n")
    with pytest.raises(StackError, match="has no MemAvailable"):
        available_memory.read(machine.sources)
    (machine.folder / "proc/meminfo").unlink()
    with pytest.raises(StackError, match="cannot be read"):
        available_memory.sample(machine.sources)


def test_what_to_do_begins_with_what_helps_most(machine: FakeMachine) -> None:
    machine.process(20, "VLLM::EngineCore", "VLLM::EngineCore")
    machine.process(30, "gnome-shell", "/usr/bin/gnome-shell", own=2 * GB)
    machine.on_gpu("20, VLLM::EngineCore, 60000")
    assert memory_advice.steps(available_memory.read(machine.sources)) == (
        "end what an earlier server left over (20 VLLM::EngineCore, 63 GB): kill 20",
        "end the desktop session, which holds at least 2.0 GB: sudo systemctl isolate multi-user.target",
        "drop the page cache of 65 GB: sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
    )


def test_numbers_in_a_line(machine: FakeMachine) -> None:
    line = memory_advice.numbers(available_memory.read(machine.sources))
    assert line == "95 GB of 128 GB are available (30 GB unused, 65 GB page cache); 15 GB of 16 GB swap are free"
    machine.memory(SwapTotal=0, SwapFree=0)
    machine.in_group("a")
    machine.group("a", str(8 * GB), 3 * GB)
    line = memory_advice.numbers(available_memory.read(machine.sources))
    assert (
        line
        == "95 GB of 128 GB are available, the control group allows 5 GB more (30 GB unused, 65 GB page cache); there is no swap"
    )


@pytest.mark.parametrize(("needed", "warns"), [(20, False), (90, True), (99, False)])
def test_a_page_cache_that_the_driver_counts_is_said(machine: FakeMachine, needed: int, warns: bool) -> None:
    said = memory_advice.hidden(available_memory.read(machine.sources), needed * GB)
    assert (said is not None) == warns
    assert said is None or "30 GB are unused, 90 GB are wanted" in said


def test_nothing_to_free_is_no_step(machine: FakeMachine) -> None:
    machine.memory(MemFree=90 * GB, Cached=2 * GB, Buffers=0)
    assert memory_advice.steps(available_memory.read(machine.sources)) == ()
