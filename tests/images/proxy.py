# SPDX-License-Identifier: Apache-2.0
"""Somebody between a publisher and the registry: watches, changes answers, and lets the publisher be killed at any write."""

import http.client
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.images.registry import Registry, trusting
from tests.loopback import Patient, listening

Answer = tuple[int, Mapping[str, str], bytes]
_OF_THE_CONNECTION = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass
class Between:
    """The steps around each request: `before` and `after` get method and path of each request, `answer` may change a body.

    `instead` may answer in place of the registry, with status, headers and body.
    """

    before: Callable[[str, str], None] = lambda method, path: None
    after: Callable[[str, str], None] = lambda method, path: None
    answer: Callable[[str, str, bytes], bytes] = lambda method, path, body: body
    instead: Callable[[str, str, "Message[str, str]"], Answer | None] = lambda method, path, headers: None
    deaf: bool = False
    """The registry does not get the header that names kinds of manifests."""
    host: str = ""
    seen: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def standing(registry: Registry, folder: Path, between: Between) -> Iterator[Between]:
    """A proxy before the registry, with a certificate of the same authority, as long as the block runs."""
    registry.authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "proxy.pem"))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(folder / "proxy.pem")
    trusted = trusting(registry.authority)

    class Handler(Patient):
        def pass_on(self) -> None:
            body = self.sent()
            between.seen.append((self.command, self.path))
            between.before(self.command, self.path)
            if (own := between.instead(self.command, self.path, self.headers)) is not None:
                self.reply(*own)
                return
            upstream = http.client.HTTPSConnection(registry.host, context=trusted, timeout=30)
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for key, value in self.headers.items():  # Accept comes several times
                if key.lower() not in _OF_THE_CONNECTION and not (between.deaf and key == "Accept"):
                    upstream.putheader(key, value)
            upstream.putheader("Content-Length", str(len(body)))
            upstream.endheaders(body)
            answer = upstream.getresponse()
            data = answer.read()
            upstream.close()
            between.after(self.command, self.path)
            if self.command != "HEAD":
                data = between.answer(self.command, self.path, data)
            self.send_response(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in _OF_THE_CONNECTION:
                    self.send_header(key, value)
            length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def reply(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = pass_on

    def secured(server: ThreadingHTTPServer) -> None:
        server.socket = served.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)

    with listening(Handler, secured) as port:
        between.host = f"127.0.0.1:{port}"
        yield between
