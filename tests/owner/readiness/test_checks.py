# SPDX-License-Identifier: Apache-2.0
"""Each check of the owner's machine: silent on a Spark that is in order, and seen to find what it is for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stack.deploy import recipes
from stack.deploy.available_memory import Holder, HolderKind
from stack.owner.readiness import judging, need
from stack.owner.readiness.engine import EngineFacts
from stack.owner.readiness.facts import MachineFacts
from stack.owner.readiness.gpu import Clocks, DriverFacts, GpuFacts
from stack.owner.readiness.places import DiskFacts, PortFacts
from stack.owner.readiness.remark import Remark, Severity, to_mend
from stack.owner.readiness.system import SystemFacts, Update

from .spark import GB, facts_of, memory

RECIPE = recipes.load("gpt-oss-120b-spark")
WANTED = need.of(RECIPE)
GOOD = facts_of()
WRONG, NOTE, UNKNOWN = Severity.WRONG, Severity.NOTE, Severity.UNKNOWN


def judged(facts: MachineFacts) -> list[Remark]:
    return [*judging.judge(facts, WANTED)]


def driver(**changes: Any) -> DriverFacts:
    return replace(GOOD.driver, **changes)


def gpu(**changes: Any) -> DriverFacts:
    assert GOOD.driver.first is not None
    return driver(gpus=(replace(GOOD.driver.first, **changes),))


def clocks(*values: Any) -> DriverFacts:
    return gpu(clocks=Clocks(*values))


def engine(**changes: Any) -> EngineFacts:
    return replace(GOOD.engine, **changes)


def system(**changes: Any) -> SystemFacts:
    return replace(GOOD.system, **changes)


def holding(kind: HolderKind, size: int = 58 * GB) -> tuple[Holder, ...]:
    return (Holder(4242, "VLLM::EngineCore", kind, size),)


def test_a_spark_in_order() -> None:
    found = judged(GOOD)
    assert {remark.severity for remark in found} == {Severity.FINE}
    assert len({remark.check for remark in found}) == len(found) == 13
    assert to_mend(found) == 0


FAULTS: dict[str, tuple[dict[str, Any], Severity, str, str]] = {
    # name: what is changed, the severity, the check, a part of a command or of the advice
    "no device": ({"driver": DriverFacts(problem="x", missing=True)}, WRONG, "gpu", "run this on the machine that will serve"),
    "no driver": ({"driver": DriverFacts(missing=True, has_device=True)}, WRONG, "gpu", "nvidia-driver-580-open"),
    "driver fails": ({"driver": DriverFacts(problem="NVIDIA-SMI has failed", has_device=True)}, WRONG, "gpu", "--reinstall"),
    "library mismatch": (
        {"driver": DriverFacts(problem="Driver/library version mismatch", has_device=True)},
        WRONG,
        "gpu",
        "sudo reboot",
    ),
    "another GPU": ({"driver": gpu(name="NVIDIA H100", capability="9.0", memory=80 * GB)}, WRONG, "gpu", "stack recipe list"),
    "old driver": ({"driver": gpu(driver="570.172.08")}, WRONG, "driver", "nvidia-driver-580-open"),
    "odd driver": ({"driver": gpu(driver="[N/A]")}, UNKNOWN, "driver", "nvidia-smi"),
    "no engine": ({"engine": EngineFacts()}, WRONG, "engine", "sudo apt install docker.io"),
    "denied": ({"engine": engine(problem="permission denied", denied=True)}, WRONG, "engine", "usermod -aG docker"),
    "daemon down": (
        {"engine": engine(problem="Cannot connect to the Docker daemon")},
        WRONG,
        "engine",
        "systemctl enable --now docker",
    ),
    "not registered": (
        {"engine": engine(runtimes=("runc",))},
        NOTE,
        "gpu-access",
        "nvidia-ctk runtime configure --runtime=docker",
    ),
    "no toolkit": ({"engine": engine(runtimes=("runc",), toolkit=False)}, WRONG, "gpu-access", "nvidia-container-toolkit"),
    "podman without CDI": ({"engine": engine(name="podman", runtimes=())}, WRONG, "gpu-access", "nvidia-ctk cdi generate"),
    "container refused": ({"engine": engine(refused="could not select device driver")}, WRONG, "gpu-access", "nvidia-ctk"),
    "left over": ({"memory": replace(memory(), holders=holding(HolderKind.ORPHAN))}, WRONG, "left-over", "kill 4242"),
    "memory taken": (
        {"memory": replace(memory(available=61 * GB), holders=holding(HolderKind.OTHER))},
        WRONG,
        "memory",
        "kill 4242",
    ),
    "memory taken unseen": (
        {"memory": replace(memory(available=61 * GB), holders=holding(HolderKind.UNSEEN))},
        WRONG,
        "memory",
        "docker ps",
    ),
    "memory taken by many": ({"memory": memory(available=61 * GB)}, WRONG, "memory", "--sort=-rss"),
    "limit": ({"memory": replace(memory(), limit=30 * GB)}, WRONG, "memory", "raise its limit"),
    "too small": (
        {"memory": replace(memory(total=64 * GB, available=60 * GB), holders=holding(HolderKind.OTHER, 4 * GB))},
        WRONG,
        "memory",
        "name another recipe",
    ),
    "page cache": ({"memory": memory(free=40 * GB, cache=70 * GB)}, NOTE, "memory", "drop_caches"),
    "desktop": (
        {"memory": replace(memory(), holders=(Holder(9, "gnome-shell", HolderKind.DESKTOP, 3 * GB),))},
        NOTE,
        "desktop",
        "multi-user.target",
    ),
    "no swap": ({"memory": memory(swap=0, swap_free=0)}, NOTE, "swap", "sudo swapon /swapfile"),
    "swap in use": ({"memory": memory(swap_free=2 * GB)}, NOTE, "swap", "largest processes"),
    "disk": (
        {"model_disk": DiskFacts(Path("/m"), 80 * GB, 1), "image_disk": DiskFacts(Path("/d"), 80 * GB, 1)},
        WRONG,
        "disk",
        "df -h /m",
    ),
    "disk unreadable": ({"model_disk": DiskFacts(Path("/m"), None, None)}, UNKNOWN, "disk", "df -h /m"),
    "port": ({"port": PortFacts(8000, False, ("python3", 77))}, WRONG, "port", "kill 77"),
    "port of another user": ({"port": PortFacts(8000, False)}, WRONG, "port", "docker ps --filter publish=8000"),
    "stuck clock": ({"driver": clocks(611, 3003, 96, 18.0, 50, 0)}, WRONG, "power", "pull the power plug"),
    "hot": ({"driver": clocks(1500, 3003, 96, 60.0, 92, 0x20)}, NOTE, "power", "-lgc 0,2100"),
    "power limit": ({"driver": clocks(1500, 3003, 96, 60.0, 60, 0x4)}, NOTE, "power", "POWER"),
    "fixed clock": ({"driver": clocks(1200, 3003, 0, 10.0, 60, 0x2)}, NOTE, "power", "-rgc"),
    "no clock": ({"driver": clocks()}, UNKNOWN, "power", "CLOCK"),
    "governor": ({"system": system(governor="powersave")}, NOTE, "cpu-power", "scaling_governor"),
    "CMA": ({"system": system(cma=(0, 9_700_000_000))}, WRONG, "kernel", "kho=off"),
    "kernel": ({"system": system(kernel="7.0.0-1019-nvidia")}, NOTE, "kernel", "kho=off"),
    "no DGX OS": ({"system": system(dgx={})}, UNKNOWN, "dgx-os", "/etc/dgx-release"),
    "firmware": ({"system": system(updates=(Update("EC", "1", "2"),))}, NOTE, "firmware", "sudo fwupdmgr update"),
    "no fwupd": ({"system": system(updates=None, firmware_problem="missing")}, UNKNOWN, "firmware", "sudo apt install fwupd"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_with_its_remedy(name: str) -> None:
    changes, severity, check, remedy = FAULTS[name]
    found = [remark for remark in judged(facts_of(**changes)) if remark.severity is not Severity.FINE and remark.check == check]
    assert [remark.severity for remark in found] == [severity]
    assert remedy in "\n".join((*found[0].commands, found[0].advice))
    assert severity is not WRONG or found[0].commands or found[0].advice


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_once(name: str) -> None:
    """Nothing else is made out of it, except where one cause has two effects."""
    changes, severity, check, _ = FAULTS[name]
    others = {remark.check for remark in judged(facts_of(**changes)) if remark.severity is WRONG} - {check}
    assert others == set()
    assert to_mend(judged(facts_of(**changes))) == (severity is WRONG)


FINE: dict[str, dict[str, Any]] = {
    "newer driver": {"driver": gpu(driver="610.57.04")},
    "CDI": {"engine": engine(runtimes=("runc",), devices=("nvidia.com/gpu",))},
    "podman with CDI": {"engine": engine(name="podman", runtimes=(), devices=("nvidia.com/gpu",))},
    "seen in a container": {"engine": engine(seen="GPU 0: NVIDIA GB10")},
    "the owner's own server": {"own": 8000, "memory": memory(available=30 * GB), "port": PortFacts(8000, False)},
    "model is there": {"model_disk": DiskFacts(Path("/m"), 40 * GB, 1, 65_200_000_000), "image_disk": None},
    "two disks": {"model_disk": DiskFacts(Path("/m"), 80 * GB, 1), "image_disk": DiskFacts(Path("/d"), 40 * GB, 2)},
    "busy and fast": {"driver": clocks(2411, 3003, 96, 60.0, 60, 0)},
    "kho=off": {"system": system(kernel="7.0.0-1019-nvidia", command_line="root=/dev/x kho=off")},
    "powersave on x86": {"system": system(governor="powersave", architecture="x86_64")},
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_no_fault(name: str) -> None:
    assert [remark for remark in judged(facts_of(**FINE[name])) if remark.severity is not Severity.FINE] == []


def test_nothing_is_ended_where_that_cannot_help() -> None:
    changes, _, check, _ = FAULTS["too small"]
    (found,) = [each for each in judged(facts_of(**changes)) if each.check == check]
    assert found.commands == ()


def test_a_machine_without_a_gpu_is_still_looked_at() -> None:
    found = judged(facts_of(driver=DriverFacts(missing=True), memory=memory(total=24 * GB, available=20 * GB)))
    checks = {remark.check: remark.severity for remark in found}
    assert checks["gpu"] is WRONG
    assert {"engine", "memory", "disk", "port", "kernel"} <= checks.keys()
    assert "driver" not in checks


def test_every_claim_about_a_known_fault_has_its_report() -> None:
    for name in ("page cache", "no swap", "stuck clock", "CMA", "kernel", "old driver"):
        changes, severity, check, _ = FAULTS[name]
        (found,) = [each for each in judged(facts_of(**changes)) if (each.check, each.severity) == (check, severity)]
        assert found.sources


def test_a_stuck_clock_is_a_matter_of_gb10_only() -> None:
    other = GpuFacts("NVIDIA H100", "12.1", "580.95.05", None, Clocks(345, 1980, 96, 80.0, 40, 0))
    assert {each.severity for each in judged(facts_of(driver=driver(gpus=(other,)))) if each.check == "power"} == {
        Severity.FINE
    }
