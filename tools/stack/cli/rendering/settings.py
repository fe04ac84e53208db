# SPDX-License-Identifier: Apache-2.0
"""The options of every verb that decide how much it prints: `-q`, `-v`, `--log`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from stack.cli.rendering import called


@dataclass(frozen=True, slots=True)
class Settings:
    """How much to print. `quiet`: only results and what needs a person. `verbose`: all evidence, nothing shortened.

    `every`: list every patch, also where the screen is too low.
    """

    quiet: bool = False
    verbose: bool = False
    every: bool = False
    log: Path | None = None


_current = [Settings()]


def current() -> Settings:
    """Return the settings of the running command."""
    return _current[0]


def reset() -> None:
    """Start with the defaults: another command of the same process may have changed them."""
    _current[0] = Settings()


def use(**changes: Any) -> None:
    """Change some settings of the running command."""
    _current[0] = replace(_current[0], **changes)


def _take(_context: click.Context, option: click.Parameter, value: Any) -> None:
    if value and option.name == "output_log":
        from stack.cli.rendering import log_file  # noqa: PLC0415

        log_file.begin(value)
    if value:
        use(**{str(option.name).removeprefix("output_"): value})


def _options() -> list[click.Option]:
    shared: dict[str, Any] = {"expose_value": False, "callback": _take}
    return [
        click.Option(
            ["-q", "--quiet", "output_quiet"], is_flag=True, help="Show no progress, and only what needs a person.", **shared
        ),
        click.Option(
            ["-v", "--verbose", "output_verbose"], is_flag=True, help="Show all evidence, and shorten nothing.", **shared
        ),
        click.Option(
            ["--log", "output_log"],
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Append what is done to this file, with times.",
            **shared,
        ),
    ]


def with_options(command: click.Command) -> click.Command:
    """Give a command, and each command of a group, the options that it does not define itself; return the command."""
    if isinstance(command, click.Group):
        called.rename_help(command)
        for each in command.commands.values():
            with_options(each)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        add(command)
    return command


def add(command: click.Command) -> None:
    """Give one command the options that it does not define itself."""
    taken = {word for parameter in command.params for word in parameter.opts}
    command.params += [option for option in _options() if not taken & set(option.opts)]
    called.rename_help(command)
