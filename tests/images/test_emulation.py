# SPDX-License-Identifier: Apache-2.0
"""The command that runs programs of another system: without the calls that proot does not know, and without this user's variables."""

import subprocess
import sys
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import emulation, older_calls

ASK = """
import ctypes, platform
numbers = {"x86_64": (332, 439, 262), "aarch64": (291, 439, 79)}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
for number in numbers:  # statx, faccessat2, newfstatat
    ctypes.set_errno(0)
    libc.syscall(number, -100, b"/", 0, 0, 0)
    print(ctypes.get_errno())
"""


@pytest.mark.parametrize("filtered", [False, True])
def test_calls_that_proot_does_not_know_are_not_there(filtered: bool) -> None:
    start = [sys.executable, older_calls.__file__] if filtered else []
    done = subprocess.run([*start, sys.executable, "-c", ASK], check=True, capture_output=True, text=True)
    statx, faccessat2, newfstatat = map(int, done.stdout.split())
    assert ([statx == 38, faccessat2 == 38], newfstatat == 38) == ([filtered] * 2, False)


def test_the_emulator_is_for_another_processor_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("proot", "qemu-aarch64-static"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    made = emulation.command(tmp_path, "arm64", ("true",), {"A": "1"}, folder="/home", lent=("/model",), rights=("setpriv",))
    assert made[4:6] == ("setpriv", "env")
    assert {"-i", "A=1", f"--rootfs={tmp_path}", "--cwd=/home", "--bind=/model"} <= {*made}
    assert made[made.index("-q") + 1] == str(tmp_path / "qemu-aarch64-static")
    assert "-q" not in emulation.command(tmp_path, "amd64", ("true",), {})
    (tmp_path / "qemu-aarch64-static").unlink()
    with pytest.raises(StackError, match="apt-get install proot qemu-user-static"):
        emulation.command(tmp_path, "arm64", ("true",), {})
