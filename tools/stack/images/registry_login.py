# SPDX-License-Identifier: Apache-2.0
"""Find the user's credentials for a registry where skopeo and Docker keep them; nothing is stored or shown."""

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stack.base.errors import StackError

_LARGEST = 1 << 20
_HUB = ("docker.io", "https://index.docker.io/v1/")
"""Docker's own registry, and the name that Docker's file has for it."""
_SECONDS = 60
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Login:
    """A user's name and password."""

    user: str
    password: str = field(repr=False)


def find(place: str) -> Login | None:
    """Find the login for a repository (`HOST/NAME`); None if there is none.

    The files are those of containers-auth.json(5), in its order, and Docker's.

    Raises:
        StackError: A credential helper fails.

    """
    names = [*_names(place)]
    for file in _files():
        content = _read(file)
        for name in names:
            if (login := _of(content, name)) is not None:
                return login
    return None


def _names(place: str) -> Iterator[str]:
    """Yield the names that an entry may have, the longest first: the repository, its parents, its host."""
    parts = place.split("/")
    for length in range(len(parts), 0, -1):
        yield "/".join(parts[:length])
    if parts[0] == _HUB[0]:
        yield _HUB[1]


def _files() -> Iterator[Path]:
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
        return
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers/auth.json"
    yield Path(f"/run/containers/{os.geteuid()}/auth.json")
    yield Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "containers/auth.json"
    yield Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def _read(file: Path) -> Mapping[str, Any]:
    """Read a file of credentials; one that is missing or damaged has none."""
    try:
        with file.open("rb") as opened:
            content = json.loads(opened.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _of(content: Mapping[str, Any], name: str) -> Login | None:
    helpers = content.get("credHelpers")
    helper = helpers.get(name) if isinstance(helpers, dict) else None
    if isinstance(helper, str):
        return _helped(helper, name)
    entries = content.get("auths")
    entry = entries.get(name) if isinstance(entries, dict) else None
    if not isinstance(entry, dict):
        return None
    if isinstance(encoded := entry.get("auth"), str) and encoded:
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        return Login(user, password.rstrip("\0"))
    store = content.get("credsStore")
    return _helped(store, name) if isinstance(store, str) else None


def _helped(helper: str, name: str) -> Login | None:
    """Ask a credential helper of Docker's kind: it reads the registry's name and answers with JSON."""
    if not _HELPER.fullmatch(helper):
        return None
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run([program, "get"], input=name.encode(), capture_output=True, check=False, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise StackError(f"{program} gives no login for {name} ({type(failed).__name__})", "skopeo login HOST") from failed
    if done.returncode:
        return None
    try:
        answer = json.loads(done.stdout)
        return Login(str(answer["Username"]), str(answer["Secret"]))
    except (ValueError, LookupError, TypeError) as bad:
        raise StackError(f"{program} gives no login for {name}", "skopeo login HOST") from bad
