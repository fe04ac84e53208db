# SPDX-License-Identifier: Apache-2.0
"""Find the user's token for a forge: in the environment, and for GitHub where gh looks. A token is never stored and never shown."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from stack.base.errors import StackError
from stack.forge.services import GITHUB, Kind, Service

ENTERPRISE = ("GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN")
"""The variables that gh reads for hosts other than github.com: a token for github.com must not be sent to another host."""
_PLAIN = re.compile(r"[\x21-\x7e]+")
_SECONDS = 30
"""Maximal seconds for gh, which may ask the system's keyring."""


def missing(host: str, service: Service = GITHUB) -> str:
    """Return the advice for a user who has no token for a forge."""
    names, rights = _variables(host, service), f"a token that may write {service.pulls}"
    if service.kind is not Kind.GITHUB:
        host_too = "" if names else f"{service.host_variable} to {host} and "
        return f"set {host_too}{service.token_variables[0]} to {rights}"
    if names:
        return f"log in with `gh auth login`, or set {names[0]} to {rights}"
    return f"log in with `gh auth login --hostname {host}`, or set {service.host_variable} to {host} and {ENTERPRISE[0]} to {rights}"


def token(host: str, service: Service = GITHUB) -> str | None:
    """Find the token for a forge: in the environment first, then for GitHub gh's own for that host; None if there is none.

    If the user names the API (`GITHUB_API_URL`), the variables for github.com apply to that API. The same holds for other forges.

    Raises:
        StackError: a value was found that cannot be a token.

    """
    for name in _variables(host, service):
        value = os.environ.get(name, "").strip()
        if value:
            return _checked(value, name)
    return _from_gh(host) or _from_file(host) if service.kind is Kind.GITHUB else None


def _variables(host: str, service: Service) -> tuple[str, ...]:
    """Return the variables that apply to a host. The pins of a checkout name hosts, too, and none of those gets a token by that."""
    if host == service.home or os.environ.get(service.api_variable):
        return service.token_variables
    if os.environ.get(service.host_variable, "").strip().lower() != host:
        return ()
    return ENTERPRISE if service.kind is Kind.GITHUB else service.token_variables


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
