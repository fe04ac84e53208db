# SPDX-License-Identifier: Apache-2.0
"""Packages are named before they are installed, as root or through sudo without a password."""

import subprocess
import sys
from pathlib import Path

import pytest

from . import system


def installing(folder: Path, apt_get: str) -> str:
    """Run `system` where nothing is installed and apt-get is this script; return its output.

    Its Python is called through a link, since programs of this one's environment count as installed.
    """
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    for name, script in {"apt-get": apt_get, "sudo": 'shift\nexec "$@"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    command = [folder / "python", system.__file__]
    done = subprocess.run(command, env={"PATH": str(folder)}, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout


def test_packages_are_named_before_anything_is_installed(tmp_path: Path) -> None:
    killed = installing(tmp_path / "killed", "kill -KILL $PPID")
    assert killed == f"installing for the tests: {', '.join(sorted(system.PACKAGES.values()))}\n"


def test_exactly_the_named_packages_are_installed(tmp_path: Path) -> None:
    said = installing(tmp_path / "bin", f'echo "$@" >> {tmp_path}/asked')
    assert said.count("\n") == 1
    update, install = (tmp_path / "asked").read_text().splitlines()
    assert update == "update"
    assert install == " ".join(system.command(sorted(system.PACKAGES.values()))[1:])


def test_a_failed_install_says_what_to_run(tmp_path: Path) -> None:
    said = installing(tmp_path / "bin", "exit 1")
    assert said.splitlines()[-1].endswith(" ".join(system.command(sorted(system.PACKAGES.values()))))


def test_with_the_programs_there_it_is_quiet(tmp_path: Path) -> None:
    for name in system.PACKAGES:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run([sys.executable, system.__file__], env={"PATH": str(tmp_path)}, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b""


@pytest.mark.parametrize("ci", ["1", ""])
def test_a_test_without_its_program_is_skipped_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch, ci: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("STACK_CI", ci)
    with pytest.raises(pytest.fail.Exception if ci else pytest.skip.Exception, match="not run without skopeo: apt-get install"):
        system.demand("skopeo")
