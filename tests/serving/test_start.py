# SPDX-License-Identifier: Apache-2.0
"""Waiting for the end of a server that was started."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from stack.serving import start


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
