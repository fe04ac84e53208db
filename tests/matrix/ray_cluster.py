# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster of several nodes on this machine, in a network of its own: Ray listens on every address that it finds.

As a program it starts the cluster, and does what lines on its standard input say, so that commands of the test run in that network.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SCRIPT

MEMORY = 5 * 10**9
"""Of a node, as far as Ray counts it: enough for one job."""
_NETWORK = ("unshare", "--map-root-user", "--net")


def demand() -> None:
    """Skip without Ray, or where no network of its own can be made; with STACK_CI=1 that is a failure."""
    lacking = [] if shutil.which("unshare") and shutil.which("ip") else ["unshare and ip"]
    if subprocess.run([sys.executable, "-c", "import ray"], capture_output=True, check=False).returncode:
        lacking.append("ray (pip install 'git-carry[ray]')")
    elif not lacking and subprocess.run([*_NETWORK, "true"], capture_output=True, check=False).returncode:
        lacking.append("a network namespace")
    if lacking and os.environ.get("STACK_CI") == "1":
        pytest.fail(f"not run without {', '.join(lacking)}", pytrace=False)
    if lacking:
        pytest.skip(f"not run without {', '.join(lacking)}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The running cluster."""

    process: "subprocess.Popen[str]"
    address: str

    def start(self, *args: object) -> int:
        """Start `stack ARGS`; return its process id."""
        return int(self._ask({"start": [sys.executable, "-c", SCRIPT, *map(str, args)]}))

    def wait(self, pid: int) -> tuple[int, str, str]:
        """Wait for a command; return its exit code and what it printed."""
        code, out, err = self._ask({"wait": pid})
        return int(code), str(out), str(err)

    def run(self, *args: object) -> tuple[int, str, str]:
        """Run `stack ARGS`."""
        return self.wait(self.start(*args))

    def fell(self, pid: int) -> None:
        """Kill the node on which a process runs."""
        self._ask({"fell": pid})

    def add(self, **options: Any) -> None:
        """Add a node of one processor."""
        self._ask({"add": options})

    def _ask(self, order: Mapping[str, object]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the cluster has ended"
        return json.loads(answer)


@contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    """Run a cluster with a number of nodes of one processor each, and a head without processors."""
    shell = 'ip link set lo up; exec "$0" "$@"'
    command = [*_NETWORK, "sh", "-c", shell, sys.executable, "-m", __name__, str(nodes)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield Cluster(process, json.loads(process.stdout.readline()))
        process.stdin.close()


@dataclass(slots=True)
class _Server:
    cluster: Any
    nodes: list[Any] = field(default_factory=list)
    running: dict[int, "subprocess.Popen[str]"] = field(default_factory=dict)

    def start(self, command: Sequence[str]) -> int:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        self.running[process.pid] = process
        return process.pid

    def wait(self, pid: int) -> tuple[int, str, str]:
        process = self.running.pop(pid)
        out, err = process.communicate()
        return process.returncode, out, err

    def add(self, options: Mapping[str, Any]) -> None:
        self.nodes.append(
            self.cluster.add_node(**{"num_cpus": 1, "memory": MEMORY, "object_store_memory": 80 << 20, **options})
        )
        self.cluster.wait_for_nodes()

    def fell(self, pid: int) -> None:
        above = {pid}
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            above.add(pid)
        raylets = {node: node.all_processes["raylet"][0].process.pid for node in self.nodes}
        [node] = [node for node, raylet in raylets.items() if raylet in above]
        os.kill(raylets[node], signal.SIGKILL)
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


def main() -> None:
    """Start the cluster, and do what is asked until standard input ends."""
    from ray.cluster_utils import Cluster as RayCluster  # noqa: PLC0415

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0"}
    # Short, since the names of its sockets have at most 107 letters.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        head = {"num_cpus": 0, "object_store_memory": 80 << 20, "include_dashboard": False, "temp_dir": folder}
        server = _Server(RayCluster(initialize_head=True, head_node_args=head))
        for _ in range(int(sys.argv[1])):
            server.add({})
        answer: Any = server.cluster.address
        while True:
            print(json.dumps(answer), file=answers, flush=True)
            line = sys.stdin.readline()
            if not line:
                break
            [(verb, given)] = json.loads(line).items()
            answer = getattr(server, verb)(given)
        server.cluster.shutdown()


if __name__ == "__main__":
    main()
