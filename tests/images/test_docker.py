# SPDX-License-Identifier: Apache-2.0
"""The files below `docker/`: linted, without versions of their own, and a health check that asks for a completion."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import system

DOCKER = Path(__file__).parents[2] / "docker"
HADOLINT = Path(sys.executable).with_name("hadolint")


def lint(program: Path, *arguments: str) -> str:
    return subprocess.run([str(program), *arguments], check=False, capture_output=True, text=True).stdout


def test_hadolint_finds_nothing_and_would_find_something(tmp_path: Path) -> None:
    assert lint(HADOLINT, str(DOCKER / "Dockerfile")) == ""
    bad = tmp_path / "Dockerfile"
    bad.write_text((DOCKER / "Dockerfile").read_text().replace("FROM ${BASE_IMAGE} AS", "FROM debian:latest AS"))
    assert "DL3007" in lint(HADOLINT, str(bad))


def test_shellcheck_finds_nothing_and_would_find_something(tmp_path: Path) -> None:
    system.demand("shellcheck")
    shellcheck = Path(system.found("shellcheck") or "")
    scripts = sorted(str(path) for path in DOCKER.rglob("*.sh"))
    assert len(scripts) == 3
    assert lint(shellcheck, *scripts) == ""
    bad = tmp_path / "entrypoint.sh"
    bad.write_text((DOCKER / "entrypoint.sh").read_text().replace('exec "$@"', "exec $@"))
    assert "SC2068" in lint(shellcheck, str(bad))


def test_no_version_stands_in_them_and_nothing_that_older_engines_lack() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert re.findall(r"\d+\.\d+(?:\.\d+)*", code) == ["12.1"]  # the GPU's architecture
    assert not re.search(r"<<|--link|--network", code)
    assert not text.startswith("# syntax=")


class Server(HTTPServer):
    answers: dict[str, tuple[int, Any]]
    asked: list[tuple[str, str | None, Any]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Authorization"), json.loads(body) if body else None))
        code, answer = self.server.answers.get(self.path, (404, {}))
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving(answers: dict[str, tuple[int, Any]]) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.answers, server.asked = answers, []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def healthy(port: int, **variables: str) -> int:
    environment = os.environ | {"STACK_PORT": str(port), "VLLM_API_KEY": "secret"} | variables
    return subprocess.run(
        [sys.executable, DOCKER / "healthcheck.py"], check=False, capture_output=True, env=environment
    ).returncode


MODELS = {"/v1/models": (200, {"data": [{"id": "m"}]})}
ONE = {"/v1/completions": (200, {"usage": {"completion_tokens": 1}})}


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (MODELS | ONE, 0),
        ({"/health": (200, {})} | MODELS | {"/v1/completions": (500, {})}, 1),  # an engine that has died
        (MODELS | {"/v1/completions": (200, {"usage": {"completion_tokens": 0}})}, 1),
        (MODELS | {"/v1/completions": (200, {"usage": None})}, 1),
        ({"/v1/models": (200, {"data": []})} | ONE, 1),
    ],
)
def test_the_health_check_wants_a_completion(answers: dict[str, tuple[int, Any]], code: int) -> None:
    with serving(answers) as server:
        assert healthy(server.server_port) == code
    if code == 0:
        asked = {"model": "m", "prompt": "1", "max_tokens": 1}
        assert server.asked == [("/v1/models", "Bearer secret", None), ("/v1/completions", "Bearer secret", asked)]


def test_the_health_check_asks_where_the_server_listens() -> None:
    with serving(MODELS | ONE) as server:
        assert healthy(server.server_port, STACK_HOST="localhost") == 0
        assert healthy(server.server_port, STACK_HOST="0.0.0.0") == 0
        assert healthy(server.server_port, STACK_HOST="::1") == 1


def test_nobody_there_is_not_healthy() -> None:
    with serving({}) as server:
        port = server.server_port
    assert healthy(port) == 1


STACK = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *"recipe show known") exit 0 ;; *"recipe show"*) exit 2 ;; esac
exit {doctor}
"""


@pytest.mark.parametrize(
    ("recipe", "said"),
    [("known", " --recipe known"), ("my-own", ""), ("", ""), (None, "")],
)
@pytest.mark.parametrize("doctor", [0, 1])
def test_the_image_tells_the_doctor_its_recipe(tmp_path: Path, recipe: str | None, said: str, doctor: int) -> None:
    program, log = tmp_path / "stack", tmp_path / "log"
    program.write_text(STACK.format(log=log, doctor=doctor))
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STACK_PACKAGES": ""} | (
        {} if recipe is None else {"STACK_RECIPE": recipe}
    )
    command = ["sh", str(DOCKER / "entrypoint.sh"), "echo", "serves"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert log.read_text().splitlines()[-1].endswith(f"doctor --python /opt/stack/bin/python{said}")
    assert (done.returncode, done.stdout) == ((0, "serves\n") if doctor == 0 else (1, ""))
    checked = {**environment, "STACK_UNCHECKED": "1"}
    assert subprocess.run(command, check=False, capture_output=True, text=True, env=checked).stdout == "serves\n"
