# SPDX-License-Identifier: Apache-2.0
"""Machines that answer as two DGX Sparks with one cable do: folders in place of /sys, and a program in place of ssh."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SPARK = {
    "enp1s0f0np0": "rocep1s0f0",
    "enp1s0f1np1": "rocep1s0f1",
    "enP2p1s0f0np0": "roceP2p1s0f0",
    "enP2p1s0f1np1": "roceP2p1s0f1",
}
"""The interfaces of a DGX Spark's two ports with their RDMA devices."""
UP = ("enp1s0f1np1", "enP2p1s0f1np1")
_SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
[ -d "{folder}/$2" ] || {{ echo "ssh: Could not resolve hostname $2: Name or service not known" >&2; exit 255; }}
[ -e "{folder}/$2/refuses" ] && {{ echo "$2: Permission denied (publickey)." >&2; exit 255; }}
STACK_SYS="{folder}/$2/sys" STACK_NETPLAN="{folder}/$2/90-stack.yaml" PATH="{folder}/$2/bin:$PATH" exec sh -c "$3"
"""
_IP = """#!/bin/sh
case "$*" in *global*) cat "{folder}/addresses";; esac
"""
_NETPLAN = """#!/bin/sh
echo "$1" >> "{folder}/netplan.log"
if [ "$1" = generate ] && grep -q broken "{folder}/90-stack.yaml"; then exit 78; fi
[ "$1" = apply ] || exit 0
: > "{folder}/addresses"
while read -r word rest; do
    case "$word" in
        en*:) link=${{word%:}} ;;
        addresses:) address=${{rest#[}}; echo "1: $link inet ${{address%]}} brd 0" >> "{folder}/addresses" ;;
        mtu:) echo "$rest" > "{folder}/sys/class/net/$link/mtu" ;;
    esac
done < "{folder}/90-stack.yaml"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine to be: interfaces that are up, with addresses and MTUs; its driver; seconds that its clock is ahead."""

    up: tuple[str, ...] = UP
    addresses: Mapping[str, str] = field(default_factory=dict)
    mtu: int = 1500
    driver: str = "580.95.05"
    ahead: int = 0
    lanes: int = 4
    rdma: bool = True


def make(folder: Path, machine: Machine) -> None:
    """Write a machine into a folder of its name."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for link, device in SPARK.items():
        net = folder / "sys/class/net" / link
        (net / "device").mkdir(parents=True)
        is_up = link in machine.up
        (net / "operstate").write_text("up\n" if is_up else "down\n")
        (net / "speed").write_text("100000\n" if is_up else "-1\n")
        (net / "mtu").write_text(f"{machine.mtu}\n")
        (net / "device/current_link_width").write_text(f"{machine.lanes if link.startswith('enP2') else 4}\n")
        (net / "device/max_link_width").write_text("4\n")
        if machine.rdma:
            (folder / "sys/class/infiniband" / device / "device/net" / link).mkdir(parents=True)
    lines = (f"1: {link} inet {address} brd 0\n" for link, address in machine.addresses.items())
    (folder / "addresses").write_text("".join(lines))
    _program(programs / "ip", _IP.format(folder=folder))
    _program(programs / "netplan", _NETPLAN.format(folder=folder))
    _program(programs / "sudo", '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n')
    _program(programs / "docker", "#!/bin/sh\necho 28.3.3\n")
    _program(programs / "nvidia-smi", f"#!/bin/sh\necho 'NVIDIA GB10, {machine.driver}'\n")
    _program(
        programs / "uname", f"#!/bin/sh\ncase $1 in -n) echo {folder.name} ;; -m) echo aarch64 ;; *) echo 6.11.0 ;; esac\n"
    )
    if machine.ahead:
        _program(programs / "date", f"#!/bin/sh\necho $(( $(/bin/date +%s) + {machine.ahead} )).0\n")


def connect(folder: Path, monkeypatch: pytest.MonkeyPatch, *, here: Machine, others: Mapping[str, Machine]) -> None:
    """Be one machine, and reach the others by their names."""
    make(folder / "spark-a", here)
    for name, machine in others.items():
        make(folder / name, machine)
    _program(folder / "spark-a/bin/ssh", _SSH.format(folder=folder))
    monkeypatch.setenv("PATH", f"{folder / 'spark-a/bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STACK_SYS", str(folder / "spark-a/sys"))
    monkeypatch.setenv("STACK_NETPLAN", str(folder / "spark-a/90-stack.yaml"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))


def _program(place: Path, text: str) -> None:
    place.write_text(text)
    place.chmod(0o755)
