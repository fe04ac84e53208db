# SPDX-License-Identifier: Apache-2.0
"""Recipes compared by `stack serve --compare` with llama-benchy: stand-ins of known speeds, and real servers on this machine's CPU."""

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stack.base import addresses
from stack.base.progress import silent
from stack.cli import serve_compare
from stack.cli.common import Options
from stack.cli.serve_compare import CompareRequest
from stack.deploy import recipes
from stack.serving.comparison import flow
from stack.store import cache
from stack.validation import machine
from stack.validation.bench import benchy

from ..cli.conftest import SCRIPT
from ..serving.comparison.conftest import Standing, standing

__all__ = ["standing"]

ROOT = Path(__file__).parents[2]
BOTH = ("serve", "--compare", "cpu-fp32", "cpu-mxfp4")
SMALL = ("--pp", "256", "--tg", "16", "--runs", "2", "--rounds", "3")


@pytest.mark.slow
@pytest.mark.images
def test_mxfp4_and_float32_on_real_servers() -> None:
    """One round, which is two starts of a minute each: a whole comparison takes six."""
    both = recipes.load("cpu-mxfp4"), recipes.load("cpu-fp32")
    if not {*both[0].flags} <= {*machine.here().flags}:
        pytest.skip("the CPU lacks what cpu-mxfp4 needs")
    request = CompareRequest(
        *((both[0].name, both[1].name), None, None, "127.0.0.1", addresses.free_port(), (), 1, 2, (512,), (32,), False, 900.0)
    )
    options = Options(ROOT, None)
    python = benchy.python(cache.root(), silent)
    with serve_compare.planned(options, request, both, python, silent) as plan:
        first, second = flow.run(plan, lambda _: None, silent)
    assert (first.label, first.up.reading.cache.kind, second.up.reading.cache.kind) == ("A", "bfloat16", "float32")
    assert first.up.mismatches == second.up.mismatches == ()
    for sample in (first, second):
        [measured] = sample.measured
        assert measured.size.name == "pp512-tg32"
        assert min(*measured.decode, *measured.prefill) > 0
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", request.port), 1)


def compare(standing: Standing, *arguments: str) -> list[str]:
    options = ("--python", sys.executable, "--model", str(standing.model), "--port", str(standing.port))
    return [sys.executable, "-c", SCRIPT, "--root", str(ROOT), *BOTH, *options, *arguments]


def run(standing: Standing, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(compare(standing, *arguments), capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.images  # llama-benchy
def test_the_faster_one_is_named(standing: Standing, tmp_path: Path) -> None:
    log = tmp_path / "both.log"
    done = run(standing, *SMALL, "--server-log", str(log), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["a"], said["b"], said["order"], said["error"]) == ("cpu-fp32", "cpu-mxfp4", list("abbaab"), None)
    decode, prefill = said["results"]
    assert (decode["kind"], decode["prompt"], decode["answer"], decode["faster"]) == ("decode", 256, 16, "b")
    assert decode["ratio"] == pytest.approx(2, rel=0.2)
    assert 1 < decode["low"] < decode["ratio"] < decode["high"]
    assert (prefill["kind"], prefill["answer"], len(prefill["a"])) == ("prefill", None, 3)
    assert standing.gone()
    assert done.stderr.count("stack: round ") == 6
    assert "Using CPU Unquantized MoE backend" in log.read_text()
    assert "Using 'CPU' Mxfp4 MoE backend." in log.read_text()


@pytest.mark.slow
@pytest.mark.images  # llama-benchy's environment
@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--how", "dies"), "B (cpu-mxfp4) in round 1 did not start: the server ended with 1"),
        (("--how", "lies"), "A (cpu-fp32) in round 1 was not measured: request 1 of pp256-tg16: the server claims 16 tokens"),
        (("--says", "made-spark-compose"), "A (cpu-fp32) does not run as its recipe says: nothing is compared"),
    ],
)
def test_nothing_is_compared(standing: Standing, flags: tuple[str, str], problem: str) -> None:
    done = run(standing, *SMALL, "--json", "--", *flags)
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert problem in said["error"]
    assert said["results"] == []
    assert f"stack: {problem}" in done.stderr
    assert standing.gone()


@pytest.mark.slow
@pytest.mark.images  # llama-benchy's environment
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_ends_the_server(standing: Standing, kind: signal.Signals) -> None:
    comparing = subprocess.Popen(compare(standing, *SMALL), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not (standing.folder / "pids").exists() and time.monotonic() < until:
        time.sleep(0.1)
    comparing.send_signal(kind)
    out, _ = comparing.communicate(timeout=60)
    assert out == ""
    assert comparing.returncode == (-kind if kind is signal.SIGKILL else 128 + kind)
    assert standing.gone()
