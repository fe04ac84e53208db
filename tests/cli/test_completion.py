# SPDX-License-Identifier: Apache-2.0
"""What real shells complete: verbs, options and the names of the stack at hand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stack.cli import COMPLETE, cli
from stack.store import cache, listed_tags

from ..carry.world import World

# An interactive bash prints what it completed for one line: the script's own function is called as readline would.
BASH = """
eval "$(stack completion bash)"
COMP_WORDS=({words}) COMP_CWORD={place}
{function} {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the commands as an installation puts them there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("stack", "git-carry"):
        (folder / name).write_text(f"#!{sys.executable}\nfrom stack.cli import main\nmain()\n")
        (folder / name).chmod(0o755)
    return folder


def completed(programs: Path, world: World, line: str) -> list[str]:
    """Complete the last word of a line in bash, in the stack's folder."""
    words = line.split(" ")
    git = words[0] == "git"
    function, program = ("_git_carry", "git") if git else ("_stack_completion", "stack")
    quoted = " ".join(f"'{word}'" for word in words)
    script = BASH.format(words=quoted, place=len(words) - 1, function=function, program=program)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "STACK_CACHE": str(world.cache)}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=world.root, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return ran.stdout.split()


def test_names_of_the_stack(programs: Path, world: World) -> None:
    assert "rebase" in completed(programs, world, "stack re")
    assert "--onto" in completed(programs, world, "stack rebase --o")
    assert completed(programs, world, "stack checkout ") == ["gamma", "alpha", "beta"]
    assert completed(programs, world, "git carry checkout b") == ["beta"]
    assert "gpt-oss-120b-spark" in completed(programs, world, "stack recipe show gpt")


def test_releases_that_were_listed_last(programs: Path, world: World) -> None:
    store = cache.upstream_store(world.cache, "alpha")
    store.mkdir(parents=True, exist_ok=True)
    listed_tags.keep_names(store, ["v1", "v10", "v2", "nightly", "$(touch pwned)"])
    assert completed(programs, world, "stack rebase alpha --onto ") == ["v10", "v2", "v1"]
    assert completed(programs, world, "stack rebase alpha --onto v1") == ["v10", "v1"]


def test_a_broken_stack_completes_no_names(programs: Path, world: World) -> None:
    (world.root / "pins.toml").write_text("[alpha\n")
    assert completed(programs, world, "stack checkout ") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_read_their_script(shell: str, tmp_path: Path) -> None:
    script = CliRunner().invoke(cli, ["completion", shell]).output
    assert script.count(f"{COMPLETE}={shell}_complete") == 2
    if (found := shutil.which(shell)) is not None:
        (tmp_path / "script").write_text(script)
        subprocess.run([found, "-n", tmp_path / "script"], check=True, timeout=60)


def test_every_upstream_and_series_is_completed() -> None:
    """An argument of these names without completion was forgotten."""
    forgotten = []

    def look(command: click.Command, path: str) -> None:
        context = click.Context(command)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if (found := command.get_command(context, name)) is not None:
                    look(found, f"{path} {name}")
        for parameter in command.params:
            if parameter.name in {"upstream", "upstreams", "series", "recipe"} and parameter._custom_shell_complete is None:
                forgotten.append(f"{path} {parameter.name}")

    look(cli, "stack")
    assert [name for name in forgotten if name not in {"stack init upstream"}] == []


def test_a_pipe_in_place_of_the_list_holds_no_shell_up(programs: Path, world: World) -> None:
    store = cache.upstream_store(world.cache, "alpha")
    store.mkdir(parents=True, exist_ok=True)
    listed_tags.keep_names(store, ["v1"])
    (store / "stack-tags").unlink()
    os.mkfifo(store / "stack-tags")
    assert completed(programs, world, "stack rebase alpha --onto ") == []
