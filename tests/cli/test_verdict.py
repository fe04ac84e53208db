# SPDX-License-Identifier: Apache-2.0
"""`stack verdict` on a small world, and a verdict whose writer is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stack.model.verdict import load

from ..carry.world import World
from ..validation.factories import ONE, exact, failed, file, not_run, of, passed, verdict
from .conftest import Stack
from .test_verbs import keys, parsed

GATES = '[cpu]\nhas = ["cpu"]\n[[cpu.cases]]\nnames = "kernels/*"\nleast = 1\n'


@pytest.fixture
def good(world: World, tmp_path: Path) -> Path:
    (world.root / "validation").mkdir()
    (world.root / "validation/gates.toml").write_text(GATES)
    made = of(world.load(), exact(ONE, error=0.003), not_run("kernels/far", "sm121"))
    return file(tmp_path, "good.json", made)


def test_show(stack: Stack, good: Path) -> None:
    ran = stack("verdict", "show", good)
    assert ran.code == 0
    assert ONE in ran.out
    assert "error 0.003" in ran.out
    assert ran.out.endswith("1 passed, 1 not-run\n")
    [shown] = parsed(stack("verdict", "show", "--json", good))["verdicts"]
    assert shown == {"file": str(good), **json.loads(good.read_text())}


def test_show_in_a_pipe_is_short(stack: Stack, tmp_path: Path) -> None:
    far = [not_run(f"kernels/moe/marlin/experts=8/m={number}", "sm121") for number in (1, 2, 4)]
    long = replace(failed("serve/chat"), why="it says\n" + "x" * 3000)
    made = verdict(
        far[0], passed("kernels/formats/e4m3", compared=525752, rounded=0.25), *far[1:], not_run("bench/pp512"), long
    )
    ran = stack("verdict", "show", file(tmp_path, "v.json", made))
    rows = ran.out.splitlines()
    assert [row.split() for row in rows if "not-run" in row][:-1] == [
        ["kernels/moe/marlin/*", "not-run", "3", "cases:", "no", "such", "machine"],
        ["bench/pp512", "not-run", "no", "such", "machine"],
    ]
    assert any("compared 525752, rounded 0.25" in row for row in rows)
    assert rows[-1] == "1 passed, 1 failed, 4 not-run"
    assert max(len(row) for row in rows if "─" in row) == 180
    assert "x" * 3000 in ran.out


def test_what_a_cpu_does_not_compile_is_shown_once(stack: Stack, tmp_path: Path) -> None:
    unseen = {"not compiled": "the PTX"}
    cases = [replace(passed(f"kernels/moe/x-emulated/{number}"), measured={"rel_l2": 0.1, **unseen}) for number in (1, 2)]
    rows = stack("verdict", "show", file(tmp_path, "v.json", verdict(*cases))).out.splitlines()
    assert rows[-1] == "2 cases ran kernels on the CPU; not compiled: the PTX"
    assert sum("the PTX" in row for row in rows) == 1


def test_require(stack: Stack, good: Path) -> None:
    ran = stack("verdict", "require", "--gate", "cpu", good)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == "gate cpu: passed"
    assert "no signature was checked" in ran.out
    found = parsed(stack("verdict", "require", "--gate", "cpu", "--json", good))
    assert keys(found) == "gate passed signed problems cases verdicts"
    assert keys(found["cases"][0]) == "names needs weights least passed missed"
    good.write_bytes(good.read_bytes().replace(b"0.003", b"0.002"))
    ran = stack("verdict", "require", "--gate", "cpu", good)
    assert ran.code == 1
    assert ran.out.splitlines()[0] == f"{good} was altered: its digest does not match: validate again; " + (
        "verdicts are not edited"
    )
    assert stack("verdict", "require", "--gate", "gpu", good).refused().startswith("unknown gate 'gpu'")
    assert "was altered" in stack("verdict", "show", good).refused()


def test_require_asks_the_sources(stack: Stack, good: Path, world: World) -> None:
    """A verdict of this digest is of no use to a stack whose patches only claim to result in the same files."""
    world.edit("stacks/one/gamma/tool-flag.patch", "+flag", "+flog")
    line = stack("verdict", "require", "--gate", "cpu", good).refused()
    assert "the last of them stacks/one/gamma/tool-flag.patch, state 100644" in line
    world.edit("stacks/one/gamma/tool-flag.patch", "+flog", "+flag")
    world.edit("stacks/one/gamma/tool-flag.patch", "Why it is needed.", "Why.")
    assert stack("verdict", "require", "--gate", "cpu", good).code == 0


@pytest.mark.parametrize("words", [("kernels", "--no-compile"), ("serve", "--recipe", "cpu-fp32")])
def test_a_suite_asks_the_sources(stack: Stack, world: World, words: tuple[str, ...]) -> None:
    world.edit("stacks/one/gamma/tool-flag.patch", "+flag", "+flog")
    line = stack("validate", *words).refused()
    assert "the last of them stacks/one/gamma/tool-flag.patch, state 100644" in line


def test_require_without_sources(stack: Stack, good: Path, world: World) -> None:
    shutil.rmtree(world.cache / "upstreams")
    shutil.rmtree(world.cache / "archives")
    shutil.rmtree(world.index)
    assert stack("verdict", "require", "--gate", "cpu", good).refused()


def test_diff(stack: Stack, good: Path, tmp_path: Path) -> None:
    assert stack("verdict", "diff", good, good).out == "no difference\n"
    worse = file(tmp_path, "worse.json", verdict(failed(ONE)))
    ran = stack("verdict", "diff", good, worse)
    assert ran.code == 1
    assert "it is wrong" in ran.out
    ran = stack("verdict", "diff", "--json", good, worse)
    found: Any = parsed(ran)
    assert (ran.code, keys(found)) == (1, "lost subject cases")
    assert keys(found["cases"][0]) == "name way before after"
    assert stack("verdict", "diff", worse, good).code == 0


def test_sign(stack: Stack, good: Path, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    assert parsed(stack("verdict", "sign", "--key", tmp_path / "key", "--json", good)) == {"signature": f"{good}.sig"}
    signers = tmp_path / "signers"
    signers.write_text(f"ada@example.org {(tmp_path / 'key.pub').read_text()}")
    signed = stack("verdict", "require", "--gate", "cpu", "--signers", signers, good)
    assert (signed.code, signed.out) == (0, "gate cpu: passed\n")
    assert parsed(stack("verdict", "require", "--gate", "cpu", "--signers", signers, "--json", good))["signed"] is True
    good.with_name("good.json.sig").unlink()
    ran = stack("verdict", "require", "--gate", "cpu", "--signers", signers, good)
    assert ran.code == 1
    assert ran.out.startswith(f"{good} is not signed")


WRITER = """
import sys
from pathlib import Path
from stack.model import stack
from stack.model.verdict import Case, Outcome
from stack.validation.suite import RunOptions, ValidatedSubject, run
def suite(job):
    for number in range(1000000):
        yield Case(f"kernels/{number}", Outcome.PASSED, measured={"text": "x" * 20000})
run(stack.load(Path(sys.argv[1])), suite, ValidatedSubject(), RunOptions(Path(sys.argv[2])))
"""


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_a_whole_file(world: World, tmp_path: Path) -> None:
    largest, cases = 0, set()
    for turn in range(6):
        out = tmp_path / f"{turn}/v.json"
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, world.root, out], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
        )
        # Each turn sees more cases written than the one before; the kill comes while the next ones are.
        while (not out.exists() or out.stat().st_size <= largest) and writer.poll() is None:
            time.sleep(0.005)
        time.sleep(0.005 * turn)
        writer.send_signal(signal.SIGKILL)
        assert writer.wait() == -signal.SIGKILL
        largest = out.stat().st_size
        found = load(out)
        assert not found.whole
        cases.add(len(found.cases))
    assert len(cases) == 6


def test_table(stack: Stack, good: Path, world: World, tmp_path: Path) -> None:
    assert stack("verdict", "table").out == "no verdict is kept\n"
    speeds = [passed(f"bench/decode/decode/{context}", **{"tok/s": 400.0}) for context in (512, 2048)]
    kept = world.root / "validation/verdicts/deep"
    kept.mkdir(parents=True)
    file(kept, "v.json", of(world.load(), *speeds))
    assert "decode kernels: 2 of 2 cases passed; bench" in " ".join(stack("verdict", "table").out.split())
    text = stack("verdict", "table", "--markdown").out
    assert text.splitlines()[0] == "| machine | server | stack | date | after 512 | after 2048 | what it proves |"
    named = parsed(stack("verdict", "table", good, "--json"))["rows"]
    assert [(row["server"], row["passed"], row["ran"]) for row in named] == [(None, 1, 1)]
    assert parsed(stack("verdict", "table", good, "--speeds", "--json"))["rows"] == []
    good.write_bytes(good.read_bytes().replace(b"0.003", b"0.002"))
    assert "was altered" in stack("verdict", "table", good).refused()
