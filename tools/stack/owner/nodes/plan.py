# SPDX-License-Identifier: Apache-2.0
"""Choose the link that the nodes share, judge it, and propose addresses and settings.

A port of a DGX Spark appears as two interfaces, each with an RDMA device and half of the port's speed: enp1s0f1np1 and enP2p1s0f1np1
are one port. NCCL reached 161 instead of 98 Gbit/s with both (tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark
pull request 35). Each needs an address, in a subnet of its own (NVIDIA/dgx-spark-playbooks, connect-two-sparks).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType

from stack.base.errors import StackError
from stack.deploy.recipes import RANK
from stack.owner.nodes.facts import Facts, Link

MTU = 9000
_CLOCK = 1.0
"""Seconds that clocks may differ: logs of both are read side by side."""
_PREFIX = 24
_FIRST_HOST = 11
_SUBNETS = tuple(IPv4Network(f"192.168.{third}.0/{_PREFIX}") for third in range(177, 255))
_FAST = 100_000
"""Mbit/s of each interface of a Spark's port."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to mend on a node (None: on all of them), and how. `blocks`: nothing can be served before it is mended."""

    node: str | None
    text: str
    fix: str
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class Port:
    """A node's end of the link: the interfaces of one port. NCCL and Gloo get the name of the first one."""

    facts: Facts
    links: tuple[Link, ...]

    @property
    def rdma(self) -> tuple[str, ...]:
        """The RDMA devices of the port."""
        return tuple(link.rdma for link in self.links if link.rdma is not None)


@dataclass(frozen=True, slots=True)
class Plan:
    """The link as it is to be: each node's port, and the addresses of the port's interfaces in their order.

    `changes`: whether an address or an MTU has to be set somewhere. `variables`: for each node, those of a recipe for several nodes.
    """

    ports: tuple[Port, ...]
    addresses: tuple[tuple[IPv4Interface, ...], ...]
    changes: bool
    problems: tuple[Problem, ...]
    variables: tuple[Mapping[str, str], ...]


def plan(nodes: Sequence[Facts], interface: str | None = None) -> Plan:
    """Plan the link between nodes; `interface` names it where it has no RDMA device, and is the same on all nodes.

    Raises:
        StackError: A node has no link that could be taken.

    """
    ports = tuple(_port(each, interface) for each in nodes)
    count = min(len(port.links) for port in ports)
    ports = tuple(Port(port.facts, port.links[:count]) for port in ports)
    addresses = _kept(ports) or _proposed(ports)
    right = all(
        address in link.addresses and (link.mtu == MTU or link.rdma is None)
        for port, given in zip(ports, addresses, strict=True)
        for link, address in zip(port.links, given, strict=True)
    )
    head = str(addresses[0][0].ip)
    variables = tuple(
        _variables(rank, head, port, given[0].ip) for rank, (port, given) in enumerate(zip(ports, addresses, strict=True))
    )
    problems = (*_of_all(nodes), *_of_each(ports), *_of_ways(ports, addresses))
    return Plan(ports, addresses, not right, problems, variables)


def _port(facts: Facts, interface: str | None) -> Port:
    """Choose a node's port: the named interface, or the fastest one that is up and has RDMA devices."""
    if interface is not None:
        named = [link for link in facts.links if link.name == interface]
        if not named:
            names = ", ".join(link.name for link in facts.links) or "none"
            raise StackError(f"{facts.node.name} has no interface {interface}", f"it has {names}")
        return Port(facts, (*named, *_twins(facts, named[0])))
    able = [link for link in facts.links if link.rdma is not None]
    up = [link for link in able if link.up]
    if not able:
        raise StackError(
            f"{facts.node.name} has no RDMA device", "check the adapter (`rdma link`), or name an interface with --interface"
        )
    if not up:
        raise StackError(
            f"no cable is plugged into {facts.node.name}: {', '.join(link.name for link in able)} are down",
            "connect the same port of both machines",
        )
    groups: dict[str, list[Link]] = {}
    for link in up:
        groups.setdefault(_function(link.name), []).append(link)
    best = max(groups.values(), key=lambda links: (sum(link.speed for link in links), len(links)))
    return Port(facts, tuple(sorted(best, key=lambda link: link.name.lower())))


def _twins(facts: Facts, link: Link) -> Iterator[Link]:
    """Yield the other interfaces of an interface's port."""
    if link.rdma is not None:
        yield from (
            each
            for each in facts.links
            if each != link and each.up and each.rdma is not None and _function(each.name) == _function(link.name)
        )


def _function(name: str) -> str:
    """Return what the interfaces of one port have in common: `f1np1` of enp1s0f1np1 and enP2p1s0f1np1."""
    found = re.search(r"f\d+(?:np\d+)?$", name)
    return found[0] if found else name


def _kept(ports: Sequence[Port]) -> tuple[tuple[IPv4Interface, ...], ...] | None:
    """Return the addresses that the nodes have, if each interface has one that the others reach in the same subnet."""
    chosen: list[list[IPv4Interface]] = [[] for _ in ports]
    taken: set[IPv4Network] = set()
    for place in range(len(ports[0].links)):
        subnets = [{address.network for address in port.links[place].addresses} for port in ports]
        shared = set.intersection(*subnets) - taken
        if not shared:
            return None
        subnet = min(shared, key=lambda each: (each.is_link_local, each))
        taken.add(subnet)
        for own, port in zip(chosen, ports, strict=True):
            own.append(next(address for address in port.links[place].addresses if address.network == subnet))
        if len({own[-1].ip for own in chosen}) < len(ports):
            return None
    return tuple(tuple(own) for own in chosen)


def _proposed(ports: Sequence[Port]) -> tuple[tuple[IPv4Interface, ...], ...]:
    """Propose addresses in private subnets that no other interface of any node uses."""
    ours = {(port.facts.node.rank, link.name) for port in ports for link in port.links}
    used = [
        address.network
        for port in ports
        for link in port.facts.links
        if (port.facts.node.rank, link.name) not in ours
        for address in link.addresses
    ]
    free = [subnet for subnet in _SUBNETS if not any(subnet.overlaps(other) for other in used)]
    if len(free) < len(ports[0].links):
        raise StackError("no private subnet is free between the nodes", "give the link addresses by hand")
    return tuple(
        tuple(IPv4Interface((subnet[_FIRST_HOST + rank], _PREFIX)) for subnet in free[: len(ports[0].links)])
        for rank in range(len(ports))
    )


def _variables(rank: int, head: str, port: Port, address: IPv4Address) -> Mapping[str, str]:
    made = {RANK: str(rank), "HEAD_ADDRESS": head, "NODE_ADDRESS": str(address), "INTERFACE": port.links[0].name}
    if port.rdma:
        made["HCA"] = ",".join(port.rdma)
    return MappingProxyType(made)


def _of_all(nodes: Sequence[Facts]) -> Iterator[Problem]:
    """Find where the nodes disagree."""
    for words, values in (
        ("drivers", [each.driver for each in nodes]),
        ("GPUs", [each.gpu for each in nodes]),
        ("processors", [each.machine for each in nodes]),
    ):
        if len(set(values)) > 1:
            shown = ", ".join(f"{each.host} {value or 'none'}" for each, value in zip(nodes, values, strict=True))
            fix = "bring both to the same release: sudo apt-get update && sudo apt-get full-upgrade, then restart"
            yield Problem(None, f"the {words} differ: {shown}", fix if words == "drivers" else "serve on machines of one kind")
    if len({each.kernel for each in nodes}) > 1:
        shown = ", ".join(f"{each.host} {each.kernel}" for each in nodes)
        yield Problem(
            None, f"the kernels differ: {shown}", "sudo apt-get full-upgrade on all of them, then restart", blocks=False
        )


def _of_each(ports: Iterable[Port]) -> Iterator[Problem]:
    """Find what is wrong with single nodes and their ends of the link."""
    for port in ports:
        facts = port.facts
        name = facts.node.name
        if abs(facts.ahead) > _CLOCK + facts.unsure:
            yield Problem(
                name,
                f"its clock is {abs(facts.ahead):.0f} s {'ahead' if facts.ahead > 0 else 'behind'}",
                "sudo timedatectl set-ntp true",
                blocks=False,
            )
        if not facts.engine:
            yield Problem(name, "it has neither docker nor podman", "install docker (DGX OS has it)")
        yield from _of_links(name, port.links)


def _of_ways(ports: Sequence[Port], addresses: Sequence[Sequence[IPv4Interface]]) -> Iterator[Problem]:
    """Find nodes that are reached by an address which they would lose."""
    for port, given in zip(ports, addresses, strict=True):
        old = {str(address.ip) for link in port.links for address in link.addresses}
        if port.facts.via in old - {str(address.ip) for address in given}:
            yield Problem(
                port.facts.node.name,
                f"it is reached over the link that changes, at {port.facts.via}",
                "name it by its address on another network",
            )


def _of_links(name: str, links: Sequence[Link]) -> Iterator[Problem]:
    for link in links:
        if not link.up:
            yield Problem(name, f"{link.name} is down", f"plug in the cable, or: sudo ip link set {link.name} up")
        if link.rdma is not None and 0 < link.speed < _FAST:
            yield Problem(
                name,
                f"{link.name} runs at {link.speed / 1000:g} Gbit/s, not 100",
                "take a cable for 200 Gbit/s, plugged into the same port of both machines",
                blocks=False,
            )
        if 0 < link.lanes < link.most_lanes:
            # Machines with a BIOS of before April 2026 wire the second controller with two lanes: pull request 35 as above.
            yield Problem(
                name,
                f"{link.name} has {link.lanes} of {link.most_lanes} PCIe lanes",
                "update the firmware: sudo fwupdmgr refresh && sudo fwupdmgr update",
                blocks=False,
            )
    if len(links) == 1 and links[0].rdma is not None:
        yield Problem(
            name,
            f"only one of the port's two RDMA devices is up ({links[0].rdma}): half of the speed",
            "take a cable for 200 Gbit/s; see `ibdev2netdev`",
            blocks=False,
        )
