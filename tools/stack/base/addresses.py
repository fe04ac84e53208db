# SPDX-License-Identifier: Apache-2.0
"""Addresses in messages."""

from urllib.parse import urlsplit, urlunsplit


def redacted(url: str) -> str:
    """The address as it may be shown: no credentials, no query (signed addresses carry theirs there)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an address that cannot be read)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
