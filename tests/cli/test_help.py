# SPDX-License-Identifier: Apache-2.0
"""Help answers at once and says what every option does."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stack.cli import cli, owner
from stack.cli.lazy import LazyGroup

CLI = Path(__file__).parents[2] / "tools/stack/cli"

HEAVY = (
    "rich",
    "requests",
    "pypi_simple",
    "git",
    "tomlkit",
    "pydantic",
    "hypothesis",
    "unidiff",
    "packaging",
    "urllib3",
    "github",
    "yaml",
    "matplotlib",
)


def verbs(command: click.Command, name: str = "stack") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from verbs(found, f"{name} {each}")


VERBS = {**dict(verbs(cli)), **dict(verbs(owner.cli, "spark-stack"))}
LAZY = {name: command for name, command in VERBS.items() if isinstance(command, LazyGroup)}


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['stack', '--help']\nfrom stack.cli import main\ntry: main()\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: stack ")
    loaded = done.stdout.splitlines()[-1]
    assert [name for name in HEAVY if f"'{name}'" in loaded] == []


@pytest.mark.parametrize("name", LAZY)
def test_a_group_lists_each_of_its_modules_in_a_line(name: str) -> None:
    group = LAZY[name]
    folder = {"stack": "", "stack image": "imaging/", "stack validate": "validating/", "spark-stack": "owner/"}[name]
    modules = (CLI / folder).glob("*.py")
    assert {f"stack.cli.{folder.replace('/', '.')}{path.stem}" for path in modules if "\ndef command(" in path.read_text()} == {
        one.module for one in group.lazy.values()
    }
    lines = group.get_help(click.Context(group, info_name=name)).partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == sorted(group.lazy)
    assert all(len(line) <= 80 and line.endswith(".") for line in lines if line.strip())


def test_another_word_for_a_command() -> None:
    assert cli.get_command(click.Context(cli), "wheels") is VERBS["stack wheel"]


@pytest.mark.parametrize("name", VERBS)
def test_every_option_has_help(name: str) -> None:
    command = VERBS[name]
    assert command.help
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.opts for one in options if not one.help] == []
    text = command.get_help(click.Context(command, info_name=name))
    assert all(one.opts[-1] in text for one in options)


SCRIPTS = {"stack completion", "spark-stack completion", "stack image run"}
"""Verbs that print a program for a shell, or what another program prints, and nothing else."""


@pytest.mark.parametrize(
    "name", [name for name, command in VERBS.items() if not isinstance(command, click.Group) and name not in SCRIPTS]
)
def test_every_verb_has_json_and_its_keys_are_documented(name: str) -> None:
    assert any(one.name == "as_json" for one in VERBS[name].params)
    documented = (Path(__file__).parents[2] / "docs/json.md").read_text()
    assert f"## `{name}`\n" in documented


@pytest.mark.parametrize("args", [["--version"], ["-h"], ["rebase", "-h"], ["pins", "set", "--help"]])
def test_it_ends_well(args: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from stack.cli import main; main()", *args], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_no_verb_at_all_is_wrong_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from stack.cli import main; main()"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Commands:" in done.stderr
