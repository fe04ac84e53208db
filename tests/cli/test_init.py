# SPDX-License-Identifier: Apache-2.0
"""`stack init` on a terminal, where it asks, and in a pipe, where it does not."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from stack.model.stack import load

from .. import forked
from ..documented import keys, top, verb
from ..store.factories import Remote
from .conftest import SCRIPT, Ran


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "web")
    for version in ("1.9.0", "1.27.1"):
        made.commit({"web.c": f"{version}\n".encode()}, version)
        made.tag(f"release-{version}")
    return made


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    (tmp_path / "fork").mkdir()
    return tmp_path / "fork"


def run(fork: Path, *args: str) -> Ran:
    done = forked.run(["--cache", fork.parent / "cache", *args], cwd=fork)
    return Ran(done.returncode, done.stdout, done.stderr)


def typed(fork: Path, answers: str, *args: str) -> tuple[int, str]:
    """Run `stack ARGS` on a terminal where a person types; return the exit code and what stood there."""
    command = [sys.executable, "-c", SCRIPT, "--cache", str(fork.parent / "cache"), *args]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=fork, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    os.write(ours, answers.encode())
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # the terminal closes with the process
        pass
    os.close(ours)
    return process.wait(), shown.decode()


def test_in_a_pipe_the_newest_release_is_taken_and_named(fork: Path, remote: Remote) -> None:
    ran = run(fork, "init", "--git", remote.url)
    assert ran.code == 0, ran
    assert ran.err == "stack: release-1.27.1 is the newest release (tags like release-*)\n"
    assert "web is pinned to release-1.27.1" in ran.out
    assert ran.out.splitlines()[-2] == "next, the commits of your fork as patches: stack import CLONE BRANCH"
    assert ran.out.splitlines()[-1] == "then: stack rebase web --onto REV --dry-run"
    assert load(fork).pins.get("web").tag == "release-1.27.1"
    assert run(fork, "status").code == 0


def test_json(fork: Path, remote: Remote) -> None:
    ran = run(fork, "init", "--git", remote.url, "--tag", "release-1.9.0", "--json")
    found = json.loads(ran.out)
    assert {*found} - {"schema"} == top("init")
    assert (ran.code, ran.err, found["added"], found["newest"]) == (0, "", False, "release-1.27.1")
    assert found["pin"] == json.loads(run(fork, "pins", "show", "--json").out)["upstreams"][0]
    assert keys(found) <= verb("init")


def test_on_a_terminal_it_asks(fork: Path, remote: Remote) -> None:
    code, shown = typed(fork, f"{remote.url}\nrelease-1.9.0\n", "init")
    assert code == 0, shown
    assert "[release-1.27.1]" in shown
    assert load(fork).pins.get("web").tag == "release-1.9.0"
    code, shown = typed(fork, "main\n", "init", "other", "--git", remote.url)
    assert code == 0, shown
    assert load(fork).pins.get("other").commit == remote.git("rev-parse", "main")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("init",), "name the upstream's repository: --git URL"),
        (("init", "--git", "--upload-pack=touch x"), "begins with a dash"),
        (("init", "--git", "ext::sh -c date"), "names a program"),
        (("init", "--git", "nothing"), "neither a folder nor an address"),
        (("init", "--git", "."), "cannot be fetched"),
    ],
)
def test_refused(fork: Path, args: tuple[str, ...], why: str) -> None:
    assert why in run(fork, *args).refused()
    assert list(fork.iterdir()) == []


def test_pins_of_commits_and_branches(fork: Path, remote: Remote) -> None:
    assert run(fork, "init", "--git", remote.url, "--tag", "release-1.9.0").code == 0
    shown = run(fork, "pins", "show").out
    assert [word for word in ("release-1.9.0", "git", "release-*") if word not in shown] == []
    first, main = remote.git("rev-parse", "release-1.9.0"), remote.git("rev-parse", "main")
    for revision, commit in (("main", main), (first, first), (main[:9], main)):
        assert run(fork, "pins", "set", "web", revision).code == 0
        pin = load(fork).pins.get("web")
        assert (pin.commit, pin.tag, pin.tags) == (commit, None, "release-*")
        assert run(fork, "pins", "verify").code == 0
    assert run(fork, "pins", "set", "web", "release-1.27.1").code == 0
    assert load(fork).pins.get("web").tag == "release-1.27.1"
    again, switches = run(fork, "pins", "set", "web", "release-1.27.1"), run(fork, "undo", "--list").out.count("pins set")
    assert (again.code, "undo" in again.out, switches) == (0, False, 4)
    assert run(fork, "pins", "verify").code == 0
    remote.git("tag", "--force", "release-1.27.1", "release-1.9.0")
    moved = run(fork, "pins", "verify")
    assert moved.code == 1
    assert f"web tag: expected {main}, found {first}" in moved.out


def test_fetch_with_a_reference(fork: Path, remote: Remote) -> None:
    assert run(fork, "init", "--git", remote.url, "--reference", str(remote.path)).code == 0
    assert "name it" in run(fork, "fetch", "--reference", str(remote.path)).refused()
    assert run(fork, "fetch", "web", "release-1.9.0", "--reference", str(remote.path)).code == 0
