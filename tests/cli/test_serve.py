# SPDX-License-Identifier: Apache-2.0
"""`stack serve` against a server that says what real ones have said (tests/deploy/logs), and with a real one."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stack.cli.serve import _ended_politely
from stack.deploy import available_memory, recipes

from ..validation.serve.test_server import gone_pids
from .conftest import SCRIPT, Ran, Stack
from .test_doctor import SECONDS

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests/deploy/logs"
READY = "MoE CPU · linear not named · attention not named · KV float32 · graphs off (enforce_eager is set) · 4096 tokens · ready in "


@dataclass(frozen=True, slots=True)
class Fake:
    """A server that is none: where its files are, and a port for it."""

    folder: Path
    port: int

    @property
    def options(self) -> list[str]:
        return ["--python", sys.executable, "--model", str(self.folder / "model"), "--port", str(self.port)]

    def said(self, name: str) -> object:
        return json.loads((self.folder / name).read_text())

    def gone(self) -> bool:
        return gone_pids([int(pid) for pid in (self.folder / "pids").read_text().split()])


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int) -> Fake:
    package = tmp_path / "packages/vllm/entrypoints/cli"
    package.mkdir(parents=True)
    (package / "main.py").write_text((ROOT / "tests/serving/front_end.py").read_text())
    shutil.copytree(LOGS, tmp_path / "model")
    (tmp_path / "model/config.json").write_text("{}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "packages"), str(ROOT / "tools"), str(ROOT)]))
    monkeypatch.setenv("NOTE", str(tmp_path / "pids"))
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    return Fake(tmp_path, free_port)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Started:
    """A `stack serve` of its own, whose server has answered: its first line on stdout."""

    process: "subprocess.Popen[str]"
    line: str

    def end(self, kind: signal.Signals) -> Ran:
        self.process.send_signal(kind)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        out, err = self.process.stdout.read(), self.process.stderr.read()  # `communicate` forgets what was read ahead
        return Ran(self.process.wait(timeout=60), out, err)


Begin = Callable[..., Started]


@pytest.fixture
def begin(fake: Fake) -> Iterator[Begin]:
    """Start `stack serve cpu-fp32 ARGS` as a user does."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> Started:
        command = [sys.executable, "-c", SCRIPT, "--root", str(ROOT), "serve", "cpu-fp32", *fake.options, *arguments]
        one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(one)
        assert one.stdout is not None
        return Started(one, one.stdout.readline())

    yield start
    for one in running:
        one.kill()
        one.communicate()


def test_it_serves_and_says_what_runs_until_it_is_ended(fake: Fake, begin: Begin) -> None:
    started = begin()
    assert started.line.startswith(READY)
    assert started.line.endswith(f" s · http://127.0.0.1:{fake.port}\n")
    ended = started.end(signal.SIGINT)
    assert fake.gone()
    assert ended.code == 0
    assert "Using CPU Unquantized MoE backend" in ended.err  # the log
    assert ended.err.endswith("the server was stopped as requested\n")
    arguments = fake.said("arguments")
    assert isinstance(arguments, list)
    assert arguments[:2] == ["serve", str(fake.folder / "model")]
    assert arguments[-4:] == ["--host", "127.0.0.1", "--port", str(fake.port)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_ends_the_server(fake: Fake, begin: Begin, kind: signal.Signals) -> None:
    ended = begin().end(kind)
    assert fake.gone()
    assert ended.code == (0 if kind is signal.SIGTERM else -signal.SIGKILL)


def test_a_server_that_ends_by_itself_is_no_success(fake: Fake, begin: Begin) -> None:
    started = begin("--", "--how", "ends")
    _, err = started.process.communicate(timeout=60)
    assert started.process.returncode == 1
    assert err.endswith("stack: the server ended by itself with status 4\n")
    assert fake.gone()


def test_a_server_is_ended_before_the_memory_is_gone(fake: Fake, begin: Begin) -> None:
    started = begin("--keep-free", "100000")  # more GB than any machine has
    _, err = started.process.communicate(timeout=60)
    assert started.process.returncode == 1
    assert " GB of memory and " in err.splitlines()[-1]
    assert err.splitlines()[-1].endswith("the 100000 GB of --keep-free: the server was ended before the machine froze")
    assert fake.gone()


def test_one_that_is_still_starting_is_ended_too(fake: Fake, stack: Stack) -> None:
    done = stack("serve", "cpu-fp32", *fake.options, "--json", "--keep-free", "100000", "--", "--how", "never")
    assert done.code == 1
    assert fake.gone()
    error = json.loads(done.out)["error"]
    assert "less than the 100000 GB of --keep-free" in error
    assert error.endswith("the server was ended before the machine froze")


def test_keep_free_lets_a_server_run_where_there_is_enough(begin: Begin) -> None:
    started = begin("--keep-free", "0.001")
    time.sleep(2.5)
    assert started.process.poll() is None
    assert started.end(signal.SIGINT).code == 0


def test_memory_that_others_hold_is_not_there(fake: Fake, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    found = available_memory.read()
    monkeypatch.setattr(available_memory, "read", lambda: replace(found, available=10**9))
    refused = stack("serve", "cpu-fp32", *fake.options).refused()
    assert refused.startswith("recipe cpu-fp32 takes 5 GB, and 1 GB of ")
    waited = stack("serve", "cpu-fp32", *fake.options, "--wait-for-memory", "1").refused()
    assert waited.startswith("recipe cpu-fp32 takes 5 GB, and after 1 s 1 GB of ")
    assert not (fake.folder / "pids").exists()
    assert stack("serve", "cpu-fp32", *fake.options, "--dry-run").code == 0


def test_a_killed_watchdog_ends_the_server(fake: Fake, begin: Begin) -> None:
    started = begin()
    server, _ = (fake.folder / "pids").read_text().split()
    watchdog = int(Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(watchdog, signal.SIGKILL)
    _, err = started.process.communicate(timeout=30)
    assert started.process.returncode == 1
    assert err.endswith("stack: signal 9 killed the process that watches the server, so the server was stopped\n")
    assert fake.gone()


def test_the_log_goes_into_a_file(fake: Fake, begin: Begin) -> None:
    file = fake.folder / "server.log"
    ended = begin("--server-log", str(file)).end(signal.SIGINT)
    assert ended.err == "the server was stopped as requested\n"
    assert "Application startup complete." in file.read_text()


def test_what_runs_as_json(fake: Fake, begin: Begin) -> None:
    started = begin("--json")
    told = json.loads(started.line + started.end(signal.SIGINT).out)
    assert (told["serves"], told["url"], told["model"]) == (True, f"http://127.0.0.1:{fake.port}", "fake")
    assert (told["moe"], told["linear"], told["context"]) == (["CPU"], [], 4096)
    assert told["kv"] == {"type": "float32", "tokens": 671088, "gib": 1.0, "concurrency": 163.84}
    assert told["graphs"] == {"on": False, "mode": "NONE", "why": "enforce_eager is set"}
    assert told["mismatches"] == []


def test_other_backends_than_expected_end_the_server(fake: Fake, stack: Stack) -> None:
    done = stack("serve", "cpu-fp32", *fake.options, "--", "--says", "made-spark-compose")
    assert fake.gone()
    assert done.code == 1
    assert done.out == ""
    *_, moe, graphs, log = done.err.splitlines()
    assert moe == "stack: MoE: expected CPU, runs MARLIN"
    assert graphs == "stack: graphs: expected off, runs on"
    assert log == "stack: log: expected Using CPU Unquantized MoE backend, runs not said"


def test_other_backends_than_expected_are_served_where_that_is_allowed(fake: Fake, begin: Begin) -> None:
    started = begin("--allow-fallback", "--json", "--", "--says", "made-spark-compose")
    ended = started.end(signal.SIGINT)
    told = json.loads(started.line + ended.out)
    assert (told["serves"], told["moe"]) == (True, ["MARLIN"])
    assert [one["part"] for one in told["mismatches"]] == ["MoE", "graphs", "log"]
    assert "stack: MoE: expected CPU, runs MARLIN" in ended.err


def test_a_server_that_does_not_start_says_why(fake: Fake, stack: Stack) -> None:
    done = stack("serve", "cpu-fp32", *fake.options, "--json", "--", "--how", "dies", "--says", "made-refused")
    assert done.code == 1
    told = json.loads(done.out)
    assert told["serves"] is False
    assert "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid" in told["error"]
    assert {one["name"]: one["why"] for one in told["refused"]}["FLASHINFER"] == "sink setting not supported"
    assert "stack: attention FLASHINFER was refused: sink setting not supported\n" in done.err


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("broken", "the server answers its first request with 500"),
        ("none", "the server's answer has no token"),
        ("never", "the server is not ready after 3 s"),
        ("silent", "the server does not answer its first request (ReadTimeout)"),
    ],
)
def test_one_that_is_healthy_and_does_not_answer_is_not_served(fake: Fake, stack: Stack, how: str, problem: str) -> None:
    done = stack("serve", "cpu-fp32", *fake.options, "--timeout", "3", "--", "--how", how)
    assert fake.gone()
    assert done.code == 1
    assert f"stack: {problem}" in done.err


def test_the_key_is_in_no_command_line_and_no_log(fake: Fake, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret-word")
    dry = stack("serve", "cpu-fp32", *fake.options, "--dry-run", "--json")
    assert "secret-word" not in dry.out
    done = stack("serve", "cpu-fp32", *fake.options, "--host", "0.0.0.0", "--", "--says", "made-spark-compose")
    assert "secret-word" not in done.out + done.err
    environment = fake.said("environment")
    assert isinstance(environment, dict)
    assert environment["VLLM_API_KEY"] == "secret-word"
    assert done.code == 1  # it was asked with the key, and ended for its backends only
    assert "expected CPU" in done.err


def test_a_log_that_cannot_be_written_goes_on_where_it_is_seen(fake: Fake, begin: Begin) -> None:
    started = begin("--server-log", "/dev/full")
    assert started.line.startswith(READY)
    ended = started.end(signal.SIGINT)
    assert ended.err.count("stack: the log cannot be written any more (No space left on device): it goes on here") == 1
    assert ended.code == 0


def test_what_would_run_can_be_copied(fake: Fake, stack: Stack) -> None:
    line = stack("serve", "gpt-oss-120b-spark", "--dry-run", "--", "--seed", "3").out.strip()
    words = shlex.split(line)
    recipe = recipes.load("gpt-oss-120b-spark")
    assert words[: len(recipe.environment)] == [f"{name}={value}" for name, value in recipe.environment.items()]
    assert words[len(recipe.environment) :][:3] == ["vllm", "serve", "openai/gpt-oss-120b"]
    assert words[-2:] == ["--seed", "3"]
    subprocess.run(["bash", "-nc", line], check=True)


@pytest.mark.parametrize("name", [one for one in recipes.known() if not recipes.load(one).is_ours and one != "gpt-oss"])
def test_every_recipe_for_gpus_can_be_looked_at(stack: Stack, name: str) -> None:
    variables = [part for one in recipes.load(name).variables for part in ("--set", f"{one}={1 if 'RANK' in one else 'x'}")]
    told = json.loads(stack("serve", name, "--dry-run", "--json", *variables).out)
    assert told["command"][:2] == ["vllm", "serve"]
    assert ("--headless" in told["command"]) == bool(variables)
    assert ("--port" in told["command"]) != bool(variables)


def test_a_node_without_an_api_is_not_asked(fake: Fake, begin: Begin) -> None:
    started = begin("--allow-fallback", "--", "--headless", "--says", "made-headless")
    assert started.line.endswith(" s · no API on this node\n")
    assert started.line.startswith("MoE MARLIN · linear Marlin MXFP4 · attention FLASHINFER · ")
    assert started.end(signal.SIGINT).code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--model", "{here}/no"], "{here}/no has no config.json: name the folder of a checkpoint with --model"),
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines, and VLLM_API_KEY is not set"),
        (["--host", "::"], ":: can be reached from other machines"),
        (["--host", "192.0.2.1.invalid"], "192.0.2.1.invalid can be reached from other machines"),
        (["--", "--port=1"], "--port is among the extra flags: give --port before the --"),
        (
            ["--", "--api_key", "x"],
            "a key or token on a command line is visible to every user of the machine: set VLLM_API_KEY",
        ),
        (["--set", "A"], "'A' sets no variable: write NAME=VALUE"),
        (["--set", "A=b"], "recipe cpu-fp32 has no variable A: it has none"),
        (["--image", "oci:x"], "--image has its own packages: leave --python out"),
        (["--server-log", "{here}/no/log"], "{here}/no/log cannot be written (No such file or directory)"),
        *((["--timeout", given], f"Invalid value for '--timeout': {said}") for given, said in SECONDS),
    ],
)
def test_what_is_refused_before_anything_starts(
    fake: Fake, stack: Stack, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    given, said = [one.format(here=tmp_path) for one in arguments], problem.format(here=tmp_path)
    assert stack("serve", "cpu-fp32", *fake.options, *given).refused().startswith(said)
    assert not (fake.folder / "arguments").exists()


def test_a_port_that_is_taken(fake: Fake, stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", fake.port)):
        refused = stack("serve", "cpu-fp32", *fake.options).refused()
    assert (
        refused
        == f"port {fake.port} of 127.0.0.1 is in use: end the process that listens there, or name another port with --port"
    )


def test_no_vllm(stack: Stack, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    refused = stack("serve", "gpt-oss", "--model", str(fake.folder / "model")).refused()
    assert refused == "no vllm is on PATH: name an interpreter that has it with --python, or an image with --image"


def test_sigterm_is_what_it_was_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), _ended_politely():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert signal.getsignal(signal.SIGTERM) is before
