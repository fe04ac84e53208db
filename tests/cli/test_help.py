# SPDX-License-Identifier: Apache-2.0
"""Help answers at once and says what every option does."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from stack.cli import cli

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
        for each in command.commands:
            yield from verbs(command.commands[each], f"{name} {each}")


VERBS = dict(verbs(cli))


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['stack', '--help']\nfrom stack.cli import main\ntry: main()\nfinally: print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: stack ")
    loaded = done.stdout.splitlines()[-1]
    assert [name for name in HEAVY if f"'{name}'" in loaded] == []


@pytest.mark.parametrize("name", VERBS)
def test_every_option_has_help(name: str) -> None:
    command = VERBS[name]
    assert command.help
    options = [one for one in command.params if isinstance(one, click.Option)]
    assert [one.opts for one in options if not one.help] == []
    text = command.get_help(click.Context(command, info_name=name))
    assert all(one.opts[-1] in text for one in options)


@pytest.mark.parametrize("name", [name for name, command in VERBS.items() if not isinstance(command, click.Group)])
def test_every_verb_has_json_and_its_keys_are_documented(name: str) -> None:
    assert any(one.name == "as_json" for one in VERBS[name].params)
    documented = (Path(__file__).parents[2] / "docs/json.md").read_text()
    assert f"| `{name.removeprefix('stack ')}` |" in documented


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
