# SPDX-License-Identifier: Apache-2.0
"""HTTP servers of the tests, on a free port of the loopback interface."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def listening(
    handler: type[BaseHTTPRequestHandler], prepare: Callable[[ThreadingHTTPServer], None] = lambda _: None
) -> Iterator[int]:
    """Serve as long as the block runs; gives the port. `prepare` gets the server before it answers anyone."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    prepare(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
