# SPDX-License-Identifier: Apache-2.0
"""Check the GPU, its driver, its clocks, the kernel and the firmware."""

import re
from collections.abc import Iterator

from stack.owner.readiness.facts import MachineFacts
from stack.owner.readiness.gpu import Clocks, GpuFacts
from stack.owner.readiness.need import Need
from stack.owner.readiness.remark import Remark, fine, note, unknown, wrong

_DRIVER = 580
"""First driver that knows CUDA 13, for which the wheels and images are built (NVIDIA, "CUDA Compatibility"; vllm-project/vllm#28129)."""
_INSTALL_DRIVER = ("sudo apt update", "sudo apt install nvidia-driver-580-open", "sudo reboot")
_STUCK = 900.0
"""MHz. A GB10 whose power supply was negotiated wrongly stays at 500 to 850 MHz under load; a healthy one runs at about 2400."""
_BUSY = 50.0
"""Percent of load from which a clock says something: an idle GPU lowers it."""
_POWER_SOURCES = ("Blackwellboy/model-serving-minefield#55", "hoesing/spark-gpu-throttle-check")
_FIXED_CLOCK, _POWER, _HOT = 0x2, 0x4 | 0x80, 0x20 | 0x40
"""Bits of what holds a clock back (nvml.h, nvmlClocksEventReason…): set by a user; a power limit or brake; heat."""
_KHO = re.compile(r"(?:^|\s)kho=off(?:\s|$)")
_BROKEN_KERNEL = "7.0.0-1019"
_KHO_OFF = (
    "echo 'GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT kho=off\"' | sudo tee /etc/default/grub.d/kho.cfg",
    "sudo update-grub",
    "sudo reboot",
)
_KHO_SOURCES = ("NVIDIA/NV-Kernels#591", "eugr/spark-vllm-docker#392", "NVIDIA/open-gpu-kernel-modules#1358")
_SHOWN = 3


def gpu(facts: MachineFacts, need: Need) -> Iterator[Remark]:
    """Check that there is the GPU that the recipe is for."""
    driver, machine = facts.driver, need.machine
    if driver.first is None:
        yield _without_gpu(facts)
        return
    if machine is not None and machine.capability != driver.first.capability:
        yield wrong(
            "gpu",
            f"{need.recipe} is for {machine.title}, compute capability {machine.capability}",
            "stack recipe list",
            shown_by=f"this machine has {driver.first.name}, compute capability {driver.first.capability}",
            advice="name a recipe for this GPU with --recipe",
        )
        return
    yield fine("gpu", f"{driver.first.name}, compute capability {driver.first.capability}")


def _without_gpu(facts: MachineFacts) -> Remark:
    driver = facts.driver
    if not driver.has_device:
        return wrong(
            "gpu",
            "this machine has no NVIDIA GPU",
            shown_by="no such device on the PCI bus",
            advice="run this on the machine that will serve. The other checks hold for this one",
        )
    if driver.missing:
        return wrong("gpu", "the GPU has no driver: nvidia-smi is not installed", *_INSTALL_DRIVER)
    if "version mismatch" in driver.problem:
        return wrong(
            "gpu", "the driver was updated, and the kernel still runs the old one", "sudo reboot", shown_by=driver.problem
        )
    return wrong(
        "gpu",
        "the driver does not answer",
        "sudo reboot",
        "sudo apt install --reinstall nvidia-driver-580-open",
        shown_by=driver.problem or "nvidia-smi lists no GPU",
        advice="reinstall it only if it does not answer after the restart: a new kernel may lack its module",
    )


def driver_version(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check that the driver knows CUDA 13."""
    first = facts.driver.first
    if first is None:
        return
    major = first.driver.partition(".")[0]
    shown = f"driver {first.driver}" + (f", CUDA {facts.driver.cuda}" if facts.driver.cuda else "")
    if not major.isdigit():
        yield unknown("driver", f"the driver's version is {first.driver!r}", "nvidia-smi")
    elif int(major) < _DRIVER:
        yield wrong(
            "driver",
            "the driver does not know CUDA 13, for which the image is built",
            *_INSTALL_DRIVER,
            shown_by=shown,
            sources=("vllm-project/vllm#28129",),
        )
    else:
        yield fine("driver", shown)


def clock(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check what holds the clock of the GPU back."""
    if facts.driver.first is not None:
        yield from held_back(facts.driver.first, facts.driver.first.clocks)


def held_back(of: GpuFacts, now: Clocks) -> Iterator[Remark]:
    """Judge the clock of a GPU at one moment; under load it says more."""
    if now.now is None:
        yield unknown("power", "the driver does not tell the clock", "nvidia-smi -q -d CLOCK,PERFORMANCE")
        return
    shown = f"{now.now:.0f} MHz at {now.busy or 0:.0f} % load" + (f", {now.power:.0f} W" if now.power is not None else "")
    is_busy = (now.busy or 0) >= _BUSY
    if is_busy and now.now < _STUCK and "GB10" in of.name:
        yield wrong(
            "power",
            "the GPU stays at a low clock under load: its power supply is not negotiated right",
            shown_by=shown,
            advice="shut down, pull the power plug from the wall and from the machine for a minute, and start again; no "
            "command resets it. If it comes back, update the firmware, then have the machine exchanged",
            sources=_POWER_SOURCES,
        )
    elif now.reasons & _HOT:
        yield note(
            "power",
            "heat holds the clock back",
            "sudo nvidia-smi -lgc 0,2100",
            shown_by=shown + (f", {now.temperature:.0f} °C" if now.temperature is not None else ""),
            advice="give it air; a lower highest clock costs little speed, since memory limits decoding",
            sources=("NVIDIA/open-gpu-kernel-modules#1358",),
        )
    elif is_busy and now.reasons & _POWER:
        yield note("power", "a power limit holds the clock back", "nvidia-smi -q -d POWER,PERFORMANCE", shown_by=shown)
    elif now.reasons & _FIXED_CLOCK:
        yield note("power", "somebody has set the GPU's clock", "sudo nvidia-smi -rgc", shown_by=shown)
    else:
        later = "" if is_busy else "; `spark-stack check` looks at it under load"
        yield fine("power", f"{shown}{later}")


def governor(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check that the CPU's clock is not kept low."""
    # On x86 `powersave` is the name of a governor that follows the load (intel_pstate); on Arm it keeps the lowest clock.
    if facts.system.governor == "powersave" and facts.system.architecture == "aarch64":
        yield note(
            "cpu-power",
            "the CPU is kept at its lowest clock",
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
            shown_by="scaling_governor is powersave",
        )
    elif facts.system.governor:
        yield fine("cpu-power", f"the governor of the CPU's clock is {facts.system.governor}")


def kernel(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check for the kernel whose CMA memory cannot be pinned."""
    system = facts.system
    total, free = system.cma or (0, 0)
    if free > total:
        yield wrong(
            "kernel",
            f"kernel {system.kernel} keeps {free / 10**9:.0f} GB that cannot be pinned: NCCL and the driver run out of memory",
            *_KHO_OFF,
            shown_by=f"CmaFree is {free // 1024} kB, CmaTotal {total // 1024} kB",
            sources=_KHO_SOURCES,
        )
    elif system.kernel.startswith(_BROKEN_KERNEL) and not _KHO.search(system.command_line):
        yield note(
            "kernel",
            f"kernel {system.kernel} has a fault with memory that must be pinned",
            *_KHO_OFF,
            shown_by=f"uname -r is {system.kernel}, and kho=off is not on its command line",
            sources=_KHO_SOURCES,
        )
    else:
        yield fine("kernel", f"kernel {system.kernel}")


def kernel_log(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Report known faults of the last day in the kernel's log; those of the last hour have to be mended first."""
    for fault in facts.faults:
        what = fault.title or fault.what
        yield Remark("kernel-log", fault.severity, what, fault.quote, ("sudo dmesg -T | tail -50",), fault.fix, fault.evidence)


def release(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Tell the release of DGX OS."""
    if facts.system.dgx_version:
        yield fine("dgx-os", f"DGX OS {facts.system.dgx_version}")
    elif facts.driver.first is not None and "GB10" in facts.driver.first.name:
        yield unknown("dgx-os", "this is not DGX OS, or it does not say its version", advice="/etc/dgx-release has no version")


def firmware(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check for firmware that waits: power delivery and clocks were mended by it."""
    updates = facts.system.updates
    if facts.driver.first is None:
        return
    if updates is None:
        yield unknown("firmware", facts.system.firmware_problem, "sudo apt install fwupd", "fwupdmgr get-updates")
    elif updates:
        listed = ", ".join(f"{each.device} {each.now} -> {each.then}" for each in updates[:_SHOWN])
        more = f" and {len(updates) - _SHOWN} more" if len(updates) > _SHOWN else ""
        yield note(
            "firmware",
            "firmware updates wait",
            "sudo fwupdmgr refresh",
            "sudo fwupdmgr update",
            "sudo reboot",
            shown_by=listed + more,
            sources=("https://docs.nvidia.com/dgx/dgx-spark/os-and-component-update.html",),
        )
    else:
        yield fine("firmware", "no firmware update waits")
