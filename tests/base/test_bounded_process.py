# SPDX-License-Identifier: Apache-2.0
"""A program that is not trusted: endless output, endless time, and children that keep its pipes."""

import subprocess
import sys
import time

import pytest

from stack.base import bounded_process


def test_what_it_prints_and_gets() -> None:
    done = bounded_process.run(["sh", "-c", "cat; echo no >&2; exit 3"], input_=b"yes", largest=100, seconds=30)
    assert (done.code, done.output, done.errors) == (3, b"yes", b"no\n")


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_endless_output(stream: str) -> None:
    with pytest.raises(bounded_process.TooMuchError):
        bounded_process.run(["sh", "-c", f"yes{stream}"], largest=10_000, seconds=30)


@pytest.mark.parametrize("script", ["sleep 600", "sleep 600 & exit 0", "exec >&- 2>&-; sleep 600"])
def test_endless_time(script: str) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        bounded_process.run(["sh", "-c", script], largest=100, seconds=0.5)
    assert time.monotonic() - began < 20


def test_input_that_nobody_reads() -> None:
    assert bounded_process.run(["true"], input_=b"x" * 10**6, largest=100, seconds=30).code == 0


def test_a_line_that_does_not_come() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert bounded_process.line(process.stdout, 0.3, process) == b""
