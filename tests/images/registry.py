# SPDX-License-Identifier: Apache-2.0
"""A real registry (Debian's docker-registry) on the loopback interface, with TLS and a password, and a user who is logged in."""

import base64
import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import trustme

_PATIENCE = 120.0
"""Seconds within which the registry has to listen, on a busy machine, too."""
USER, PASSWORD = "maintainer", "correct-horse"
_HTPASSWD = f"{USER}:$2y$05$sKIVlCmA0s3Ths67ddDT8uvz2L6WtaCKHOJYJkcXU1cuLiXYFNr6W"
_CONFIG = """\
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {folder}/data}}
  delete: {{enabled: true}}
http:
  addr: 127.0.0.1:{port}
  tls: {{certificate: {folder}/registry.pem, key: {folder}/registry.pem}}
auth:
  htpasswd: {{realm: test, path: {folder}/htpasswd}}
"""


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that answers at `host`; `environment` makes the user's programs trust it and log in."""

    host: str
    environment: dict[str, str]
    authority: trustme.CA
    data: Path


@contextmanager
def serving(folder: Path) -> Iterator[Registry]:
    """A registry with its data in a folder, as long as the block runs."""
    authority = trustme.CA()
    port = free_port()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(folder / "registry.pem"))
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    (folder / "htpasswd").write_text(_HTPASSWD + "\n")
    (folder / "config.yml").write_text(_CONFIG.format(folder=folder, port=port))
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            ["docker-registry", "serve", str(folder / "config.yml")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | {"OTEL_TRACES_EXPORTER": "none"},
        ) as process,
    ):
        try:
            _wait(port, process, folder / "log")
            host = f"127.0.0.1:{port}"
            yield Registry(host, environment(folder, host), authority, folder / "data")
        finally:
            process.terminate()


def environment(folder: Path, *hosts: str, password: str = PASSWORD) -> dict[str, str]:
    """What makes skopeo and cosign trust the authority of `folder` and log in at hosts, as `skopeo login` would leave it."""
    login = {"auth": base64.b64encode(f"{USER}:{password}".encode()).decode()}
    docker = folder / f"docker-{len(hosts)}-{password}"
    docker.mkdir(exist_ok=True)
    (docker / "config.json").write_text(json.dumps({"auths": dict.fromkeys(hosts, login)}))
    return {
        "SSL_CERT_FILE": str(folder / "authority.pem"),
        "REGISTRY_AUTH_FILE": str(docker / "config.json"),
        "DOCKER_CONFIG": str(docker),
    }


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A client's context for servers of an authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"the registry did not start: {log.read_text()}")
