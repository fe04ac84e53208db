# SPDX-License-Identifier: Apache-2.0
"""Walls around the scripts of packages: no network, no other process, no device, and one folder to write in."""

import os
import subprocess
from pathlib import Path

import pytest

from stack.images import confined

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(name="walls")
def _walls(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "own").mkdir()
    made = confined.command(tmp_path / "own")
    if made is None:
        pytest.skip("not run where the kernel allows no namespaces")
    return made


@pytest.mark.parametrize(
    "attack",
    [
        "touch {outside}/written; exit 1",  # in a /tmp of its own
        "touch /var/tmp/written-by-a-script",
        "touch /etc/written-by-a-script",
        "mount -o remount,rw / ",
        "mknod {own}/disk b 8 0",
        "ls /dev/kmsg /dev/mem /dev/sda /dev/vda /dev/nvme0n1 /dev/tty1 2>/dev/null | grep .",
        "kill -0 {pid}",
        "test -e /proc/{pid}/environ",
        "grep -q 'eth0\\|ens' /proc/net/dev",
        "echo 1 > /proc/sys/kernel/sysrq",
        "unshare --mount true",
    ],
)
def test_the_walls_hold(walls: tuple[str, ...], tmp_path: Path, attack: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        script = attack.format(outside=tmp_path, own=tmp_path / "own", pid=other.pid)
        ran = subprocess.run([*walls, "sh", "-c", script], capture_output=True, text=True, check=False)
        other.kill()
    assert ran.returncode not in (0, 97), (attack, ran)
    assert not (tmp_path / "written").exists()


def test_what_dpkg_needs(walls: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "own/file"
    script = (
        f"echo text > {file}; chown 7:8 {file}; chmod 4755 {file}; : > /dev/null; head -c 1 /dev/urandom > /dev/null; exit 5"
    )
    ran = subprocess.run([*walls, "sh", "-ec", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 5, ran
    state = file.stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o7777, file.read_text()) == (7, 8, 0o4755, "text\n")


def test_no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert confined.command(tmp_path / "none") is None
