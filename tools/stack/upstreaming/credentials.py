# SPDX-License-Identifier: Apache-2.0
"""The user's token for a forge: taken from where gh takes it, given to the client, kept and shown nowhere."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from stack.base.errors import StackError
from stack.upstreaming import forge

VARIABLES = ("GH_TOKEN", "GITHUB_TOKEN")
ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
"""As gh has them: a stack's pins may name any host, and what opens github.com is not for that one."""
_PLAIN = re.compile(r"[\x21-\x7e]+")
_SECONDS = 30
"""How long gh may take: it may ask the system's keyring."""


def missing(host: str) -> str:
    """What to do where there is no token for a forge."""
    return f"log in with `gh auth login`, or set {_variables(host)[0]} to a token that may write pull requests"


def token(host: str) -> str | None:
    """The token for a forge: the variables' first, else gh's own for that host; None where there is none.

    Where the user names the API (`GITHUB_API_URL`), the variables for github.com are for that.

    Raises:
        StackError: what is there cannot be a token.

    """
    for name in _variables(host):
        value = os.environ.get(name, "").strip()
        if value:
            return _checked(value, name)
    return _from_gh(host) or _from_file(host)


def _variables(host: str) -> tuple[str, ...]:
    return VARIABLES if host == forge.GITHUB or os.environ.get(forge.API) else ENTERPRISE


def _checked(value: str, place: str) -> str:
    """Without its value: an HTTP library would repeat that in its error."""
    if not _PLAIN.fullmatch(value):
        raise StackError(f"what {place} holds is no token", "a token is one word of plain letters and digits")
    return value


def _from_gh(host: str) -> str | None:
    """What gh says itself: it knows the keyring, too."""
    program = shutil.which("gh")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "auth", "token", "--hostname", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.strip()
    return _checked(said, "gh") if done.returncode == 0 and said else None


def _from_file(host: str) -> str | None:
    """What gh's configuration says, where gh itself is not installed: in a container with the user's home."""
    file = _folder() / "hosts.yml"
    try:
        listed = yaml.safe_load(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "check the file's rights") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        # Its words would quote the file.
        raise StackError(f"{file} is no YAML", missing(host)) from None
    own = listed.get(host) if isinstance(listed, dict) else None
    found = own.get("oauth_token") if isinstance(own, dict) else None
    return _checked(found, str(file)) if isinstance(found, str) and found else None


def _folder() -> Path:
    named = os.environ.get("GH_CONFIG_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gh"
