# SPDX-License-Identifier: Apache-2.0
"""`stack completion man`: a page that man shows, and that `git carry --help` opens."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stack.cli import cli, man_page

from .test_help import VERBS


@pytest.fixture
def page() -> str:
    ran = CliRunner().invoke(cli, ["completion", "man"], prog_name="stack")
    assert ran.exit_code == 0
    return ran.output


def test_it_is_ascii(page: str) -> None:
    """A terminal without unicode has no sign for other characters, and man warns of each."""
    assert page.isascii()


def test_every_command_and_option_is_there(page: str) -> None:
    plain = page.replace("\\-", "-")
    for name, command in VERBS.items():
        if isinstance(command, click.Group) or name.startswith("spark-stack "):
            continue
        section = plain.partition(f'\n.SS "{name} [')[2].partition("\n.SS ")[0] or plain.partition(f'\n.SS "{name} ')[2]
        assert section, name
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[-1] in section, (name, parameter.opts)


def test_lines_of_text_are_no_instructions() -> None:
    @click.group()
    def group() -> None:
        """Begin."""

    @group.command("do", help="First.\n\n\b\n.so /etc/passwd\n'also\na \\n b `code`")
    def do() -> None: ...

    made = man_page.page("it", group, click.Context(group, info_name="it"))
    assert "\n\\&.so /etc/passwd\n\\&'also\na \\en b \\fBcode\\fR\n" in made
    assert {line.split()[0] for line in made.splitlines() if line.startswith(".")} == {
        *(".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi")
    }


@pytest.mark.skipif(shutil.which("man") is None, reason="not run without man: apt-get install man-db")
def test_git_opens_it(tmp_path: Path) -> None:
    """As the help of the command says, in a home of its own."""
    bin_folder = tmp_path / ".local/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "git-carry").write_text(f"#!{sys.executable}\nfrom stack.cli import main\nmain()\n")
    (bin_folder / "git-carry").chmod(0o755)
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "HOME": str(tmp_path), "PATH": path, "MANPAGER": "cat", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    env.pop("MANPATH", None)

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False, timeout=60)

    advised = re.findall(r"^ +(mkdir -p .*|git carry completion man .*)$", run("git carry completion -h").stdout, re.MULTILINE)
    assert len(advised) == 2
    assert run("git carry --help").returncode != 0
    assert run("\n".join(advised)).returncode == 0
    shown = run("git carry --help")
    text = " ".join(re.sub(".\b", "", shown.stdout).split())
    assert shown.returncode == 0
    assert "git-carry - carry a fork as named patch series" in text
    assert "git carry rebase [OPTIONS] [UPSTREAM]" in text
    assert "warning" not in run(f"man --warnings=w -l {tmp_path}/.local/share/man/man1/git-carry.1").stderr
