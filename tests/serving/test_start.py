# SPDX-License-Identifier: Apache-2.0
"""What a server says while it starts: all of it is handed on, so much of it is kept."""

import io
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from stack.serving import start


def test_a_log_without_an_end_is_handed_on_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_MOST", 2**17)
    handed = bytearray()
    said = start._Output(io.BytesIO(b"first " + b"x" * 2**22), handed.extend)
    text = said.finished()
    assert len(handed) == 2**22 + 6
    assert text.startswith("first x")
    assert len(text) < 2**17 + 2**16


def test_closing_does_not_wait_for_a_process_that_keeps_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_LATE", 0.05)
    read, write = os.pipe()
    stream = os.fdopen(read, "rb")
    with os.fdopen(write, "wb"):
        output = start._Output(stream, lambda _: None)
        closing = threading.Thread(target=output.close, daemon=True)
        closing.start()
        closing.join(timeout=5)
        assert not closing.is_alive()
    output.finished()  # the process has ended: so does the thread
    output.close()


def test_an_interrupt_that_no_system_call_sees_ends_the_wait() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as server:

        def interrupt() -> None:
            time.sleep(0.3)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # the thread that waits sleeps on

        threading.Thread(target=interrupt).start()
        late = threading.Timer(30, server.kill)
        late.start()
        with pytest.raises(KeyboardInterrupt):
            start._ended(server)
        late.cancel()
        assert server.poll() is None
        server.kill()
