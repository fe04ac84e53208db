# SPDX-License-Identifier: Apache-2.0
"""Two machines in two network namespaces with a link between them, a network for ssh, a real sshd and a real rsync.

The other machine has a folder of its own where this one has the model's. Engines and netplan are stand-ins.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ... import system
from ..world import SCRIPT, World, end_servers, images, made
from .spread import prepare, up

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
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
SetEnv STACK_NETPLAN={folder}/there.yaml FAKE_ENGINE={folder}/other/engine PATH={folder}/bin:{folder}/machine/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
_SSH = """Host *
    IdentityFile {folder}/key
    UserKnownHostsFile {folder}/known_hosts
    User {user}
"""


# A folder of its own in the place of this machine's: what is copied there is copied.
_OTHER_DISK = 'mkdir -p "$1" && mount -t tmpfs none "$1" && shift && exec "$@"'


def ran(*words: object) -> str:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def _wait(happened: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end, otherwise
        time.sleep(0.05)


@pytest.fixture(name="head")
def _head(tmp_path: Path) -> Iterator[list[str]]:
    """Two namespaces; return the words that run a command in the first one."""
    system.demand("ip", "sshd", "ssh")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    here, there = (f"stack-{os.getpid()}-{next(_NUMBER)}-{name}" for name in "ab")
    with contextlib.ExitStack() as after:
        for name in (here, there):
            _add(name)
            after.callback(ran, "ip", "netns", "delete", name)
            ran("ip", "-n", name, "link", "set", "lo", "up")
        for link, first in (("ssh0", "10.250.7.1"), ("link0", None)):
            ran("ip", "-n", here, "link", "add", link, "type", "veth", "peer", "name", link, "netns", there)
            for number, name in enumerate((here, there), start=1):
                if first is not None:
                    ran("ip", "-n", name, "address", "add", f"10.250.7.{number}/24", "dev", link)
                ran("ip", "-n", name, "link", "set", link, "up")
        for name, link in itertools.product((here, there), ("ssh0", "link0")):
            _wait(partial(_is_up, name, link), f"{link} is not up")
        server = after.enter_context(_sshd(tmp_path, there))
        after.callback(end_servers, tmp_path / "other/engine")
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
    begin = ["ip", "netns", "exec", namespace, "unshare", "--mount", "sh", "-c", _OTHER_DISK, "sh", str(folder / "machine/hub")]
    with subprocess.Popen([*begin, program, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL) as server:
        _wait((folder / "sshd.pid").exists, "sshd does not start")
        yield server


def _add(namespace: str) -> None:
    try:
        ran("ip", "netns", "add", namespace)
    except subprocess.CalledProcessError as failed:
        pytest.skip(f"no network namespace can be made here: {failed.stderr.strip()}")


def _is_up(namespace: str, link: str) -> bool:
    return "state UP" in ran("ip", "-n", namespace, "link", "show", link)


def setup(head: list[str], folder: Path, *words: str) -> tuple[int, dict[str, object], str]:
    environment = os.environ | {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "STACK_NETPLAN": str(folder / "here.yaml"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    done = subprocess.run(
        [*head, sys.executable, "-c", SCRIPT, "setup", "10.250.7.2", "--interface", "link0", "--json", *words],
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
    code, first, said = setup(head, tmp_path, "--apply", "--no-bandwidth")
    assert code == 0, (json.dumps(first), said)
    ran(*head, "ip", "route", "add", "blackhole", "192.168.177.12/32")
    code, _, said = setup(head, tmp_path)
    assert code == 2
    assert "nothing comes from 192.168.177.11 to 192.168.177.12" in said


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Iterator[World]:
    with made(tmp_path / "machine") as world:
        for name in ("pulled", "containers"):
            (tmp_path / "other/engine" / name).mkdir(parents=True)
        (tmp_path / "other/engine/images.json").write_text(json.dumps(images()))
        yield world


def test_both_machines_start_and_stop_together(machine: World, head: list[str], tmp_path: Path) -> None:
    code, first, said = setup(head, tmp_path, "--apply", "--no-bandwidth")
    assert code == 0, (json.dumps(first), said)
    model = prepare(machine, "10.250.7.2", ("192.168.177.11", "192.168.177.12"))
    environment = os.environ | machine.environment
    environment["PATH"] = f"{tmp_path}/bin:{environment['PATH']}"

    def run(*words: str) -> str:
        done = subprocess.run(
            [*head, sys.executable, "-c", SCRIPT, *words],
            env=environment,
            cwd=machine.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(*up(machine, model))
    there = tmp_path / "other/engine/containers/stack-server.pid"
    arguments = Path(f"/proc/{there.read_text().strip()}/cmdline").read_text().split("\0")
    assert "--headless" in arguments
    assert "10.250.7.2 runs" in run("status")
    # The copy has all files and links, but no half-downloaded file.
    root = model.parents[1]
    held = subprocess.run(
        ["nsenter", "--target", _sshd_pid(tmp_path), "--mount", "find", root, "-printf", "%P %y %s\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = subprocess.run(["find", root, "-printf", "%P %y %s\n"], capture_output=True, text=True, check=True).stdout
    files = {line for line in wanted.splitlines() if " d " not in line and "incomplete" not in line}
    assert files == {line for line in held.splitlines() if " d " not in line}
    run("down")
    assert not list((tmp_path / "other/engine/containers").glob("[!.]*.json"))


def _sshd_pid(folder: Path) -> str:
    return (folder / "sshd.pid").read_text().strip()
