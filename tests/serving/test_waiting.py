# SPDX-License-Identifier: Apache-2.0
"""The output of a starting server: all of it is handed on, and a bounded part is kept."""

import io
import os
import threading

import pytest

from stack.serving import waiting


def test_a_log_without_an_end_is_handed_on_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_MOST", 2**17)
    handed = bytearray()
    said = waiting.Output(io.BytesIO(b"first " + b"x" * 2**22), handed.extend)
    text = said.finished()
    assert len(handed) == 2**22 + 6
    assert text.startswith("first x")
    assert len(text) < 2**17 + 2**16


def test_closing_does_not_wait_for_a_process_that_keeps_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LATE", 0.05)
    read, write = os.pipe()
    stream = os.fdopen(read, "rb")
    with os.fdopen(write, "wb"):
        output = waiting.Output(stream, lambda _: None)
        closing = threading.Thread(target=output.close, daemon=True)
        closing.start()
        closing.join(timeout=5)
        assert not closing.is_alive()
    output.finished()  # the process has ended: so does the thread
    output.close()
