# SPDX-License-Identifier: Apache-2.0
"""docs/spark.md: what needs no GPU is run as it is written, and every other command has options that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from stack.cli import cli

from ..scripts import loaded

ROOT = Path(__file__).parents[2]


@pytest.mark.images  # a whole example on the real sources
def test_the_page_shows_what_its_commands_print() -> None:
    module = loaded("examples/transcript.py")
    assert module.printed("spark") == module.quoted("spark"), "run `examples/transcript.py spark`"


def written() -> list[list[str]]:
    """The page's commands of `stack`, without the name."""
    text = (ROOT / "docs/spark.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?:    |\$ )stack (.*)$", text, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def parsed(args: list[str]) -> click.Command:
    """Read a command's arguments as the command line does, and run nothing."""
    command: click.Command = cli
    while isinstance(command, click.Group) and not (command is not cli and args[:1] and args[0].startswith("-")):
        found = command.get_command(click.Context(command), args[0])
        assert found is not None, args
        command, args = found, args[1:]
    command.make_context("stack", list(args))
    return command


def test_every_command_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("serving/bin/python", "server.log"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("#!/bin/sh\n")
        (tmp_path / file).chmod(0o755)
    commands = written()
    for args in commands:
        parsed(args)
    names = {args[0] for args in commands}
    assert {"status", "recipe", "roofline", "build", "doctor", "serve", "validate"} <= names
    with pytest.raises(click.UsageError):
        parsed(["serve", "gpt-oss-120b-spark", "--nothing"])


def test_flags_behind_the_dashes_are_those_of_the_kernels() -> None:
    [args] = [args for args in written() if "--" in args]
    flags = args[args.index("--") + 1 :]
    serving = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    assert flags == ["--moe-backend", "flashinfer_cutlass", "--linear-backend", "flashinfer_gemv"]
    assert all(
        f"`{name} {value}`" in serving or f"{name} {value}" in serving for name, value in zip(*[iter(flags)] * 2, strict=True)
    )


def test_what_has_not_run_is_said_first() -> None:
    before = (ROOT / "docs/spark.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert "**Nothing on this page has run on SM121 yet.**" in before
