# SPDX-License-Identifier: Apache-2.0
"""Read what matters of a node: links with their RDMA devices, driver, clock, engine, rights."""

import ipaddress
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Interface
from typing import Self

from stack.base.errors import StackError
from stack.base.text import printable, shortened
from stack.owner.nodes.reach import Node

SECONDS = 30.0
_LONGEST = 120
"""Characters of a fact; a node may answer anything."""

SCRIPT = r"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin
sys=${STACK_SYS:-/sys}
say() { printf '%s\t%s\n' "$1" "$2"; }
say host "$(uname -n)"
say via "$(printf '%s' "${SSH_CONNECTION:-}" | cut -d ' ' -f 3)"
say kernel "$(uname -r)"
say machine "$(uname -m)"
say time "$(date +%s.%N)"
say gpu "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
say release "$(sed -n 's/^DGX_OTA_VERSION=//p; s/^DGX_SWBUILD_VERSION=//p' /etc/dgx-release 2>/dev/null | tr -d '"' | tail -n 1)"
for engine in docker podman; do
    command -v "$engine" >/dev/null 2>&1 && say engine "$engine $("$engine" version --format '{{.Client.Version}}' 2>/dev/null | head -n 1)" && break
done
sudo -n true >/dev/null 2>&1 || [ "$(id -u)" = 0 ] && say root yes
command -v netplan >/dev/null 2>&1 && say netplan yes
for one in "$sys"/class/net/*; do
    name=${one##*/}
    [ "$name" = lo ] && continue
    say link "$name $(cat "$one/operstate" 2>/dev/null || echo unknown) $(cat "$one/speed" 2>/dev/null || echo -1) $(cat "$one/mtu") \
$(cat "$one/device/current_link_width" 2>/dev/null || echo 0) $(cat "$one/device/max_link_width" 2>/dev/null || echo 0)"
done
for one in "$sys"/class/infiniband/*; do
    [ -e "$one" ] || continue
    for net in "$one"/device/net/*; do [ -e "$net" ] && say rdma "${one##*/} ${net##*/}"; done
done
ip -o -4 address show scope global 2>/dev/null | while read -r _ name _ address _; do say address "$name $address"; done
ip -o -4 address show scope link 2>/dev/null | while read -r _ name _ address _; do say address "$name $address"; done
"""
"""Only reads. STACK_SYS: another folder than /sys."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface: whether it is up, Mbit/s (0: unknown), MTU, its PCIe lanes now and at most (0: unknown), IPv4 addresses.

    `rdma`: the RDMA device of the interface, such as `rocep1s0f1`; None if it has none.
    """

    name: str
    up: bool
    speed: int
    mtu: int
    lanes: int
    most_lanes: int
    addresses: tuple[IPv4Interface, ...] = ()
    rdma: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The answers of a node about itself. `ahead`: seconds that its clock is ahead of this machine's, give or take `unsure`.

    Texts are empty where the node has no such thing. `root`: commands run as root there without a question. `via`: the address at which
    `ssh` reached it.
    """

    node: Node
    host: str
    kernel: str
    machine: str
    gpu: str
    driver: str
    release: str
    engine: str
    via: str
    root: bool
    netplan: bool
    ahead: float
    unsure: float
    links: tuple[Link, ...]

    @classmethod
    def parse(cls, node: Node, output: str, began: float, ended: float) -> Self:
        """Make facts of the script's output. `began`, `ended`: this machine's clock before and after it ran.

        Raises:
            StackError: The output is not what the script prints.

        """
        said: dict[str, list[str]] = {}
        for line in output.splitlines():
            key, tab, value = line.partition("\t")
            if tab:
                said.setdefault(key, []).append(value.strip())
        one = {key: shortened(printable(values[0]), _LONGEST) for key, values in said.items()}
        if not re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", one.get("time", "")):
            raise StackError(f"{node.name} does not answer as a Linux machine does", f"try: ssh {node.name} uname -a")
        gpu, _, driver = one.get("gpu", "").rpartition(", ")
        return cls(
            node=node,
            host=one.get("host", ""),
            kernel=one.get("kernel", ""),
            machine=one.get("machine", ""),
            gpu=gpu,
            driver=driver,
            release=one.get("release", ""),
            engine=one.get("engine", ""),
            via=one.get("via", ""),
            root="root" in said,
            netplan="netplan" in said,
            ahead=float(one["time"]) - (began + ended) / 2,
            unsure=(ended - began) / 2,
            links=tuple(_links(said)),
        )


def read(node: Node) -> Facts:
    """Read a node.

    Raises:
        StackError: It is not reached, or answers something else.

    """
    began = time.time()
    output = node.script(SCRIPT, SECONDS)
    return Facts.parse(node, output, began, time.time())


def read_all(nodes: Iterable[Node]) -> tuple[Facts, ...]:
    """Read nodes at once.

    Raises:
        StackError: One of them is not reached, or answers something else.

    """
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(read, nodes))


_NAME = r"[A-Za-z0-9_][\w.+-]{0,14}"
"""An interface's name as drivers and udev make it. Linux allows more: control characters, and what ends a word in YAML or a shell."""
_LINK = re.compile(rf"({_NAME}) (\w+) (-?\d{{1,9}}) (\d{{1,6}}) (\d{{1,3}}) (\d{{1,3}})", re.ASCII)
_RDMA = re.compile(rf"([A-Za-z0-9_][\w.-]{{0,63}}) ({_NAME})", re.ASCII)


def _links(said: dict[str, list[str]]) -> Iterable[Link]:
    devices = {found[2]: found[1] for line in said.get("rdma", ()) if (found := _RDMA.fullmatch(line))}
    for line in said.get("link", ()):
        if (found := _LINK.fullmatch(line)) is None:
            continue
        name, state, speed, mtu, lanes, most = found.groups()
        addresses = tuple(_addresses(said.get("address", ()), name))
        # A virtual interface has no state of a cable: it is `unknown` while it works.
        yield Link(
            name, state in {"up", "unknown"}, max(int(speed), 0), int(mtu), int(lanes), int(most), addresses, devices.get(name)
        )


def _addresses(lines: Iterable[str], link: str) -> Iterable[IPv4Interface]:
    for line in lines:
        name, _, text = line.partition(" ")
        if name.partition("@")[0] == link:
            try:
                yield ipaddress.IPv4Interface(text)
            except ValueError:
                continue
