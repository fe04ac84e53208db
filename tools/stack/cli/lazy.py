# SPDX-License-Identifier: Apache-2.0
"""A group of commands that imports a command's module when that command runs.

`stack --help` lists every command without importing any. A command's own module may therefore import everything at its top.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from stack.base.garbage import uncollected
from stack.cli.rendering import called
from stack.cli.rendering.settings import with_options


@dataclass(frozen=True, slots=True)
class Command:
    """A command to import: its module, which defines it as `command`, and its line in the group's help."""

    module: str
    help: str


class LazyGroup(click.Group):
    """A click group whose commands are modules.

    Args:
        lazy: The commands, by name.
        aliases: Other names of commands; they work, but are not listed.

    """

    def __init__(
        self, *args: Any, lazy: Mapping[str, Command], aliases: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.lazy = lazy
        self.aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names of the commands in alphabetical order."""
        return sorted({*self.lazy, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none of that name."""
        name = self.aliases.get(cmd_name, cmd_name)
        if name not in self.lazy:
            return super().get_command(ctx, name)
        with uncollected():
            command: click.Command = importlib.import_module(self.lazy[name].module).command
        return with_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, called.renamed(self.lazy[name].help)) for name in self.list_commands(ctx) if name in self.lazy]
            )
