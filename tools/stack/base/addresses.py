# SPDX-License-Identifier: Apache-2.0
"""Addresses: to show in messages, and to listen at."""

import socket
from urllib.parse import urlsplit, urlunsplit


def redacted(url: str) -> str:
    """Return the address without credentials and query, so that it may be shown; signed addresses carry a secret in the query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address that cannot be read)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def free_port() -> int:
    """Return a port of the loopback interface that nobody uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
