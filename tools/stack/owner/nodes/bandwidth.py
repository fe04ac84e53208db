# SPDX-License-Identifier: Apache-2.0
"""Measure the link between this machine and a node: RDMA by `ib_write_bw` where both have it, and TCP."""

import json
import re
import shlex
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface

from stack.base import bounded_process
from stack.base.errors import StackError
from stack.owner.nodes.plan import Port
from stack.owner.nodes.reach import Node

_SECONDS = 3.0
_STREAMS = 8
_PIECE = 2**20
_LATE = 20.0
"""Seconds after which a measurement ends, whatever happens."""

_RECEIVER = """
import json, socket, sys, threading, time
listener = socket.create_server((sys.argv[1], 0))
listener.settimeout({late})
print(listener.getsockname()[1], flush=True)
got, began, lock = 0, None, threading.Lock()
def take(stream):
    global got, began
    piece = bytearray({piece})
    stream.settimeout({late})
    while count := stream.recv_into(piece):
        with lock:
            began = began or time.monotonic()
            got += count
threads = [threading.Thread(target=take, args=(listener.accept()[0],), daemon=True) for _ in range({streams})]
for each in threads: each.start()
for each in threads: each.join({late})
print(json.dumps([got, time.monotonic() - began]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Speed:
    """A measured speed in Gbit/s: from this machine to a node, over which interface or device, and how."""

    node: str
    over: str
    how: str
    rate: float


def measure(head: Port, own: tuple[IPv4Interface, ...], other: Port, addresses: tuple[IPv4Interface, ...]) -> Iterator[Speed]:
    """Measure the link from this machine to one node, interface by interface.

    Raises:
        StackError: Nothing comes through.

    """
    for place, link in enumerate(head.links):
        device, there = link.rdma, other.links[place].rdma
        rate = None if device is None or there is None else _rdma(other.facts.node, device, there, str(addresses[place].ip))
        if rate is not None:
            yield Speed(other.facts.node.name, str(device), "RDMA", rate)
        yield Speed(
            other.facts.node.name, link.name, "TCP", _tcp(other.facts.node, str(own[place].ip), str(addresses[place].ip))
        )


def _tcp(node: Node, own: str, address: str) -> float:
    """Return the speed of several TCP streams from this machine to a node, as the node counts them."""
    program = _RECEIVER.format(late=_LATE, piece=_PIECE, streams=_STREAMS)
    with subprocess.Popen(
        node.shell(f"exec timeout {_LATE + 5:.0f} python3 -c {shlex.quote(program)} {address}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as receiver:
        assert receiver.stdout is not None
        try:
            port = bounded_process.line(receiver.stdout, _LATE, receiver, 64).strip()
            if not port.isdigit():
                raise StackError(f"{node.name} cannot listen at {address}", "check its address and python3 there")
            _send(own, (address, int(port)))
            count, seconds = json.loads(bounded_process.line(receiver.stdout, _LATE, receiver, 256) or b"null") or (0, 0.0)
        except (OSError, ValueError, TypeError) as failed:
            raise StackError(
                f"nothing comes from {own} to {address} ({failed})", "check the cable, both addresses and a firewall"
            ) from failed
        finally:
            receiver.kill()
    if not count:
        raise StackError(f"nothing comes from {own} to {address}", "check the cable, both addresses and a firewall")
    return 8e-9 * count / max(seconds, 1e-3)


def _send(own: str, there: tuple[str, int]) -> None:
    """Fill several streams for some seconds."""
    streams = [socket.create_connection(there, timeout=_LATE, source_address=(own, 0)) for _ in range(_STREAMS)]
    end = time.monotonic() + _SECONDS
    piece = bytes(_PIECE)

    def fill(stream: socket.socket) -> None:
        with stream:
            while time.monotonic() < end:
                stream.sendall(piece)

    threads = [threading.Thread(target=fill, args=(stream,), daemon=True) for stream in streams]
    for each in threads:
        each.start()
    for each in threads:
        each.join(_LATE)


def _rdma(node: Node, device: str, there: str, address: str) -> float | None:
    """Return the speed of RDMA writes to a node; None if one of both has no `ib_write_bw`, or it does not connect."""
    if shutil.which("ib_write_bw") is None:
        return None
    wait = f"timeout {_LATE:.0f} ib_write_bw --report_gbits -D {_SECONDS:.0f} -F"
    with subprocess.Popen(
        node.shell(f"exec {wait} -d {shlex.quote(there)}"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            time.sleep(1.0)  # it has no way to say that it listens
            done = subprocess.run(
                [*shlex.split(wait), "-d", device, address],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            server.kill()
    return _average(done.stdout) if done.returncode == 0 else None


def _average(output: str) -> float | None:
    """Return the average of `ib_write_bw`'s table in Gbit/s: bytes, iterations, peak, average, messages a second."""
    rows = re.findall(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", output, re.MULTILINE)
    return float(rows[-1]) if rows else None
