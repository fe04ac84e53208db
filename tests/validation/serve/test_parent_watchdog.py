# SPDX-License-Identifier: Apache-2.0
"""The server of a watchdog that is killed, for example for want of memory."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from stack.validation.serve import parent_watchdog

from .test_server import gone_pids


def test_the_owner_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent_watchdog, "PATIENCE", 0.2)
    command = ["sh", "-c", "trap '' TERM; sleep 600 & echo $$ $!; wait"]
    with parent_watchdog.kept(command, os.environ, subprocess.PIPE, tmp_path) as watchdog:
        assert watchdog.stdout is not None
        pids = [int(pid) for pid in watchdog.stdout.readline().split()]
        watchdog.kill()
    watchdog.stdout.close()
    assert gone_pids(pids)


def test_the_server_ends_without_the_owner(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo $$; exec sleep 600"]
    with parent_watchdog.kept(command, os.environ, subprocess.PIPE, tmp_path) as watchdog:
        assert watchdog.stdout is not None
        server = int(watchdog.stdout.readline())
        watchdog.send_signal(signal.SIGKILL)
        assert gone_pids([server])
    watchdog.stdout.close()
