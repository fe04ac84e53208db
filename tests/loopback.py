# SPDX-License-Identifier: Apache-2.0
"""HTTP servers of the tests, on a free port of the loopback interface."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Patient(BaseHTTPRequestHandler):
    """The server's side of connections that last, with bodies in one piece or in chunks; whoever asks may be killed meanwhile."""

    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:  # whoever asked was killed
            self.close_connection = True

    def sent(self) -> bytes:
        """The body of a request."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may hang up. What is printed of it would be found in the output of whichever test runs then."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def listening(
    handler: type[BaseHTTPRequestHandler], prepare: Callable[[ThreadingHTTPServer], None] = lambda _: None
) -> Iterator[int]:
    """Serve as long as the block runs; gives the port. `prepare` gets the server before it answers anyone."""
    server = _Server(("127.0.0.1", 0), handler)
    prepare(server)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
