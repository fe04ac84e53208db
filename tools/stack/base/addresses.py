# SPDX-License-Identifier: Apache-2.0
"""Addresses in messages."""

from urllib.parse import urlsplit, urlunsplit


def redacted(url: str) -> str:
    """Return the address without credentials and query, so that it may be shown; signed addresses carry a secret in the query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address that cannot be read)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
