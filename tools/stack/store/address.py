# SPDX-License-Identifier: Apache-2.0
"""The address of a git repository as a user writes it, and as `pins.toml` keeps it."""

import os
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError

_FORMS = "write it as https://…, ssh://…, git@host:path, file://…, or as the path of a local repository"
_TRANSPORT = re.compile(r"[A-Za-z0-9+.-]+::")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SSH = re.compile(r"\w[\w.-]*@(?!-)[\w.\[\]:-]+?:(?!-)\S+")
_SCHEMES = ("https", "ssh", "file")


def stored(given: str, *, here: Path) -> str:
    """Return the address of a git repository as `pins.toml` keeps it: a local path becomes absolute.

    Raises:
        StackError: git would take it for an option or for a program to run, it holds a password, or it is no address at all.

    """
    address = given.strip()
    if address.startswith("-"):
        raise StackError(f"{given!r} begins with a dash", _FORMS)
    if not address or not address.isprintable():
        raise StackError(f"{given!r} is not the address of a git repository", _FORMS)
    if _TRANSPORT.match(address):
        raise StackError(f"{given!r} names a program of git's own ({address.partition('::')[0]}::)", _FORMS)
    scheme = _SCHEME.match(address)
    if scheme is not None:
        return _checked_url(address, scheme[1].lower())
    if _SSH.fullmatch(address) and not (here / address).exists():
        return address
    return _local(address, here)


def _checked_url(address: str, scheme: str) -> str:
    if scheme not in _SCHEMES:
        raise StackError(f"{redacted(address)} is reached by {scheme}, which nobody vouches for", _FORMS)
    if re.search(r"\s", address):
        raise StackError(f"{redacted(address)!r} has a blank", "write it as %20")
    try:
        parts = urlsplit(address)
    except ValueError as bad:
        raise StackError("the address cannot be read", _FORMS) from bad
    if parts.password is not None or (scheme == "https" and parts.username is not None):
        raise StackError(
            f"the address of {redacted(address)} holds a user or a password, which pins.toml would show",
            "leave it out: git's credential helper has it",
        )
    if scheme != "file" and (not parts.hostname or parts.hostname.startswith("-")):
        raise StackError(f"{redacted(address)} names no host", _FORMS)
    return address


def _local(address: str, here: Path) -> str:
    text = os.path.abspath(here / Path(address).expanduser())  # noqa: PTH100 - links stay as the user wrote them
    if not Path(text).is_dir():
        raise StackError(f"{address} is neither a folder nor an address of a git repository", _FORMS)
    # pins.toml takes no address with blanks; git decodes them in a file:// address.
    return text if not re.search(r"\s|%", text) else f"file://{quote(text)}"
