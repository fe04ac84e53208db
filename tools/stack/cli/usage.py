# SPDX-License-Identifier: Apache-2.0
"""Word click's errors of wrong usage like all other errors: what is wrong, a suggestion, and where to look."""

import re

import click

from stack.base.did_you_mean import similar, suggestion
from stack.base.errors import StackError

_COMMAND = re.compile(r"^No such command '(.*?)'", re.DOTALL)
_OPTION = re.compile(r"^No such option:? '?(-[^\s']*)", re.DOTALL)


def worded(error: click.ClickException) -> StackError:
    """Word an error of wrong usage as what is wrong and what to do."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return StackError(message)
    see = f"see `{context.command_path} --help`"
    for kind, form, known in (("command", _COMMAND, _commands(context)), ("option", _OPTION, _options(context))):
        match = form.match(message)
        if match is not None:
            near = similar(match[1], known)
            return StackError(f"unknown {kind} {match[1]!r}", suggestion(near) if near else see)
    return StackError(message, see)


def _commands(context: click.Context) -> list[str]:
    return context.command.list_commands(context) if isinstance(context.command, click.Group) else []


def _options(context: click.Context) -> list[str]:
    return [word for parameter in context.command.get_params(context) for word in parameter.opts if word.startswith("--")]
