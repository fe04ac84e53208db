# SPDX-License-Identifier: Apache-2.0
"""Systems other than Linux: the carrying verbs run without what only Linux has, and Windows is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.store import git

# What macOS lacks, taken away before anything of ours is imported.
MACOS = """
import ctypes, errno, fcntl, os, sys

for module, names in {fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ"), os: ("sched_getaffinity", "pidfd_open", "memfd_create", "splice")}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)


ctypes.CDLL = Library


def refuse(event, arguments):
    if event == "open" and str(arguments[0]).startswith("/proc"):
        raise FileNotFoundError(errno.ENOENT, "no such file", arguments[0])


sys.addaudithook(refuse)
sys.platform = "darwin"
from stack.__main__ import main

main()
"""


def stack(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    home = folder.parent
    environment = {**os.environ, "STACK_CACHE": str(home / "cache"), "XDG_STATE_HOME": str(home / "state"), "HOME": str(home)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """Two releases, and a branch of the first with one commit more."""
    repository = tmp_path / "upstream"
    author = {f"GIT_{who}_{what}": "ada@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    git.run(["init", "-q", "-b", "main", str(repository)])
    lines = [f"line {number}\n" for number in range(30)]
    for tag, text in (("v1", lines), ("mine", [*lines[:20], "mine\n", *lines[20:]]), ("v2", ["above\n", *lines])):
        if tag == "v2":
            git.run(["checkout", "-q", "main"], cwd=repository)
        (repository / "file").write_text("".join(text))
        git.run(["add", "."], cwd=repository)
        if tag == "mine":
            git.run(["checkout", "-q", "-b", "mine"], cwd=repository)
        git.run(["commit", "-q", "-m", f"Make {tag}"], cwd=repository, env=author)
        if tag != "mine":
            git.run(["tag", tag], cwd=repository)
    return repository


def test_a_fork_is_carried_without_what_only_linux_has(upstream: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fork"
    folder.mkdir()
    steps = (
        ("init", "up", "--git", str(upstream), "--tag", "v1"),
        ("import", str(upstream), "mine", "--series", "ours"),
        ("rebase", "up", "--onto", "v2"),
        ("checkout", "up", "../tree"),
        ("refresh", "up", "../tree"),
        ("undo",),
        ("status",),
    )
    for step in steps:
        ran = stack(MACOS, folder, *step)
        assert ran.returncode == 0, (step, ran)
    assert "v1" in ran.stdout


def test_windows_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    ran = stack("import sys; sys.platform = 'win32'; from stack.__main__ import main; main()", tmp_path / "here", "--help")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "WSL" in ran.stderr
    assert ran.stderr.count("\n") == 1
