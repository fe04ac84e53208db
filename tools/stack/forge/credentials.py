# SPDX-License-Identifier: Apache-2.0
"""Find the user's token for a forge in the places where gh looks. A token is never stored and never shown."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from stack.base.errors import StackError
from stack.forge import repositories

VARIABLES = ("GH_TOKEN", "GITHUB_TOKEN")
ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
"""The variables that gh reads for hosts other than github.com: a token for github.com must not be sent to another host."""
HOST = "GH_HOST"
"""The variable with the host that they are for. The pins of a checkout name hosts, too, and none of those gets a token by that."""
_PLAIN = re.compile(r"[\x21-\x7e]+")
_SECONDS = 30
"""Maximal seconds for gh, which may ask the system's keyring."""


def missing(host: str) -> str:
    """Return the advice for a user who has no token for a forge."""
    if names := _variables(host):
        return f"log in with `gh auth login`, or set {names[0]} to a token that may write pull requests"
    return (
        f"log in with `gh auth login --hostname {host}`, or set {HOST} to {host} and {ENTERPRISE[0]} to a token that may write "
        "pull requests"
    )


def token(host: str) -> str | None:
    """Find the token for a forge: in the environment first, then gh's own for that host; None if there is none.

    If the user names the API (`GITHUB_API_URL`), the variables for github.com apply to that API.

    Raises:
        StackError: a value was found that cannot be a token.

    """
    for name in _variables(host):
        value = os.environ.get(name, "").strip()
        if value:
            return _checked(value, name)
    return _from_gh(host) or _from_file(host)


def _variables(host: str) -> tuple[str, ...]:
    if host == repositories.GITHUB or os.environ.get(repositories.API):
        return VARIABLES
    return ENTERPRISE if os.environ.get(HOST, "").strip().lower() == host else ()


def _checked(value: str, place: str) -> str:
    """Check a token's form. The error must not contain the value; an HTTP library's error would."""
    if not _PLAIN.fullmatch(value):
        raise StackError(f"the value in {place} is not a token", "a token is one word of plain letters and digits")
    return value


def _from_gh(host: str) -> str | None:
    """Ask gh for the token; gh also knows the keyring."""
    program = shutil.which("gh")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "auth", "token", "--hostname", host],
            # gh would print the enterprise variable for any host.
            env={name: value for name, value in os.environ.items() if name not in ENTERPRISE},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    answer = done.stdout.strip()
    return _checked(answer, "gh") if done.returncode == 0 and answer else None


def _from_file(host: str) -> str | None:
    """Read the token from gh's configuration, for containers that have the user's home but not gh."""
    file = _folder() / "hosts.yml"
    try:
        listed = yaml.safe_load(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "check the file's rights") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        # The parser's message would quote the file.
        raise StackError(f"{file} is not valid YAML", missing(host)) from None
    own = listed.get(host) if isinstance(listed, dict) else None
    value = own.get("oauth_token") if isinstance(own, dict) else None
    return _checked(value, str(file)) if isinstance(value, str) and value else None


def _folder() -> Path:
    named = os.environ.get("GH_CONFIG_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gh"
