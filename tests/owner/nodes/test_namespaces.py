# SPDX-License-Identifier: Apache-2.0
"""Two machines in two network namespaces with a link between them, a network for ssh, and a real sshd."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ... import system

pytestmark = pytest.mark.images
_NUMBER = itertools.count()
_NETPLAN = """#!/bin/sh
[ "$1" = apply ] || exit 0
link=
while read -r word rest; do
    case "$word" in
        link0:) link=link0 ;;
        addresses:) address=${rest#[}; ip address flush dev "$link"; ip address add "${address%]}" dev "$link" ;;
        mtu:) ip link set "$link" mtu "$rest" ;;
    esac
done < "$STACK_NETPLAN"
"""
_SSHD = """Port 22
ListenAddress 10.250.7.2
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
SetEnv STACK_NETPLAN={folder}/there.yaml PATH={folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
_SSH = """Host *
    IdentityFile {folder}/key
    UserKnownHostsFile {folder}/known_hosts
    User {user}
"""


def ran(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture(name="head")
def _head(tmp_path: Path) -> Iterator[list[str]]:
    """Two namespaces; return the words that run a command in the first one."""
    system.demand("ip", "sshd", "ssh")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    here, there = (f"stack-{os.getpid()}-{next(_NUMBER)}-{name}" for name in "ab")
    with contextlib.ExitStack() as after:
        for name in (here, there):
            ran("ip", "netns", "add", name)
            after.callback(ran, "ip", "netns", "delete", name)
            ran("ip", "-n", name, "link", "set", "lo", "up")
        for link, first in (("ssh0", "10.250.7.1"), ("link0", None)):
            ran("ip", "-n", here, "link", "add", link, "type", "veth", "peer", "name", link, "netns", there)
            for number, name in enumerate((here, there), start=1):
                if first is not None:
                    ran("ip", "-n", name, "address", "add", f"10.250.7.{number}/24", "dev", link)
                ran("ip", "-n", name, "link", "set", link, "up")
        server = after.enter_context(_sshd(tmp_path, there))
        after.callback(server.kill)
        yield ["ip", "netns", "exec", here]


@contextlib.contextmanager
def _sshd(folder: Path, namespace: str) -> Iterator["subprocess.Popen[bytes]"]:
    for name in ("host_key", "key"):
        ran("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
    programs = folder / "bin"
    programs.mkdir()
    for name, text in {
        "netplan": _NETPLAN,
        "podman": "#!/bin/sh\necho 5.0\n",
        "nvidia-smi": "#!/bin/sh\necho 'NVIDIA GB10, 580'\n",
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/ssh_config "$@"\n')
    (programs / "ssh").chmod(0o755)
    key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"10.250.7.2 {key}")
    (folder / "ssh_config").write_text(_SSH.format(folder=folder, user=os.environ.get("USER", "root")))
    (folder / "sshd_config").write_text(_SSHD.format(folder=folder))
    Path("/run/sshd").mkdir(exist_ok=True)
    program = system.found("sshd") or "/usr/sbin/sshd"
    with subprocess.Popen(
        ["ip", "netns", "exec", namespace, program, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL
    ) as server:
        end = time.monotonic() + 20
        while not (folder / "sshd.pid").exists():
            assert time.monotonic() < end, "sshd does not start"
            time.sleep(0.05)
        yield server


def setup(head: list[str], folder: Path, *words: str) -> tuple[int, dict[str, object], str]:
    program = "import sys; sys.argv[0] = 'spark-stack'; from stack.cli.owner import main; main()"
    environment = os.environ | {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "STACK_NETPLAN": str(folder / "here.yaml"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    done = subprocess.run(
        [*head, sys.executable, "-c", program, "setup", "10.250.7.2", "--interface", "link0", "--json", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_two_machines_from_no_address_to_a_measured_link(head: list[str], tmp_path: Path) -> None:
    code, made, _ = setup(head, tmp_path)
    assert (code, made["changes"], made["problems"]) == (1, True, [])
    code, made, said = setup(head, tmp_path, "--apply")
    assert (code, made["ready"]) == (0, True), said
    [speed] = made["speeds"]  # type: ignore[misc]
    assert (speed["over"], speed["by"]) == ("link0", "TCP")
    assert speed["gbits"] > 0.1
    assert (tmp_path / "here.yaml").read_text() != (tmp_path / "there.yaml").read_text()
    kept = json.loads((tmp_path / "state/stack/nodes.json").read_text())
    assert [each["variables"]["NODE_ADDRESS"] for each in kept["nodes"]] == ["192.168.177.11", "192.168.177.12"]


def test_an_unknown_host_key_is_refused(head: list[str], tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("")
    code, _, said = setup(head, tmp_path)
    assert code == 2
    assert "log in once by hand and compare the key: ssh 10.250.7.2" in said


def test_a_link_that_lets_nothing_through_is_said(head: list[str], tmp_path: Path) -> None:
    assert setup(head, tmp_path, "--apply", "--no-bandwidth")[0] == 0
    ran(*head, "ip", "route", "add", "blackhole", "192.168.177.12/32")
    code, _, said = setup(head, tmp_path)
    assert code == 2
    assert "nothing comes from 192.168.177.11 to 192.168.177.12" in said
