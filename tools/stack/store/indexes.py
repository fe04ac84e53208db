# SPDX-License-Identifier: Apache-2.0
"""Read which package indexes the user configured for pip or uv. This code contains no index address."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError

_SECTIONS = ("global", "install", "download", ":env:")
"""Sections of pip's configuration; a later one wins, as for `pip download`."""

_PIP_SECONDS = 30
_TIMEOUT = 15.0
_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Index:
    """A package index. `url` has no credentials, so that messages cannot leak them."""

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the user's machine reaches package indexes; `indexes` are in the order in which they are asked.

    `find_links`: folders and pages whose files pip offers in addition to those of the indexes.
    """

    indexes: tuple[Index, ...]
    certificates: Path | None = None
    client_certificate: Path | None = None
    proxy: str | None = field(default=None, repr=False)
    trusted_hosts: frozenset[str] = frozenset()
    timeout: float = _TIMEOUT
    retries: int = _RETRIES
    find_links: tuple[str, ...] = ()


def settings() -> Settings:
    """Read pip's configuration (files and environment), else uv's environment, else use the default index.

    Raises:
        StackError: The configuration forbids indexes or is invalid.

    """
    import pypi_simple  # noqa: PLC0415  (see `registry._ask`)

    pip = _pip_configuration()
    if pip.get("no-index", "").strip().lower() in ("1", "true", "yes", "on", "t", "y"):
        raise StackError("pip's configuration forbids package indexes (no-index)", "unset it, or use --source git")
    main, extras = pip.get("index-url", "").strip(), pip.get("extra-index-url", "").split()
    if not main and not extras:
        main, extras = _uv_configuration()
    urls = dict.fromkeys([main or pypi_simple.PYPI_SIMPLE_ENDPOINT, *extras])
    return Settings(
        indexes=tuple(parse(url) for url in urls),
        certificates=_path(pip.get("cert")),
        client_certificate=_path(pip.get("client-cert")),
        proxy=pip.get("proxy") or None,
        trusted_hosts=frozenset(host.lower() for host in pip.get("trusted-host", "").split()),
        timeout=_positive(pip, "timeout", pip.get("default-timeout", str(_TIMEOUT))),
        retries=int(_positive(pip, "retries", str(_RETRIES))),
        find_links=tuple(pip.get("find-links", "").split()),
    )


def parse(url: str) -> Index:
    """Split an index's address into the address and its credentials.

    Raises:
        StackError: The address is invalid.

    """
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise StackError("a configured package index has no valid address", "check `pip config list`") from error
    if parts.scheme not in ("http", "https", "file") or (parts.scheme != "file" and not parts.hostname):
        raise StackError(f"the configured package index {redacted(url)} has no valid address", "check `pip config list`")
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return Index(
        url=urlunsplit((parts.scheme, f"{host}{port}", parts.path.rstrip("/") + "/", parts.query, "")),
        user=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password or "") if parts.username is not None else None,
    )


def _pip_configuration() -> dict[str, str]:
    """Return pip's settings by option name, from its files and the PIP_* variables."""
    sections: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for section, key, value in _pip_says():
        if section in sections:
            sections[section][key] = value
    sections[":env:"] |= _pip_environment()
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged |= sections[section]
    return merged


_LINE = re.compile(r"(:env:|[^.=]+)\.([^=]+)=(.*)")


def _pip_says() -> Iterator[tuple[str, str, str]]:
    """Yield section, option and value of each line of `pip config list`; nothing if pip is missing or broken."""
    try:
        done = subprocess.run(
            # -P keeps a folder named `pip` in the working folder from being run.
            [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "config", "list"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_PIP_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode:
        return
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        setting = _LINE.fullmatch(line.strip())
        if setting is None:
            continue
        try:
            value = ast.literal_eval(setting[3])
        except (SyntaxError, ValueError):
            continue
        if isinstance(value, str):
            yield setting[1], _option(setting[2]), value


def _pip_environment() -> dict[str, str]:
    names = ((key.removeprefix("PIP_"), value) for key, value in os.environ.items() if key.startswith("PIP_"))
    return {_option(name): value for name, value in names if value}


def _option(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _uv_configuration() -> tuple[str, list[str]]:
    """Return the default index and the others from uv's environment variables; an index may be written `name=address`."""
    main = os.environ.get("UV_DEFAULT_INDEX", "") or os.environ.get("UV_INDEX_URL", "")
    others = f"{os.environ.get('UV_INDEX', '')} {os.environ.get('UV_EXTRA_INDEX_URL', '')}".split()
    return _unnamed(main.strip()), [_unnamed(other) for other in others]


def _unnamed(index: str) -> str:
    return re.sub(r"^[A-Za-z0-9._-]+=", "", index)


def _path(value: str | None) -> Path | None:
    return Path(value).expanduser() if value else None


def _positive(pip: Mapping[str, str], key: str, default: str) -> float:
    value = pip.get(key, default)
    try:
        number = float(value)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise StackError(f"pip's setting {key} is {value!r}, not a number", "check `pip config list`")
    return number
