# SPDX-License-Identifier: Apache-2.0
"""Pipes and devices without an end, named as logs, scripts and configurations: so much is read, and no more."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import checkpoints
from stack.doctor import logs, script

_POURED = 64 * 2**20


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (logs.read, "is larger than 1 MiB"),
        (script.read, "is larger than 512 KiB"),
        (checkpoints.shape, "is larger than 16 MiB"),
    ],
)
def test_so_much_is_read(read: Callable[[Path], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LARGEST", 2**20)
    pipe, refused = tmp_path / "pipe", threading.Event()
    os.mkfifo(pipe)

    def pour() -> None:
        try:
            with pipe.open("wb", buffering=0) as one:
                for _ in range(_POURED // 2**16):
                    one.write(b"x" * 2**16)
        except BrokenPipeError:
            refused.set()

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    with pytest.raises(StackError, match=said):
        read(pipe)
    thread.join(timeout=30)
    assert refused.is_set()
