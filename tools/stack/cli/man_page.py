# SPDX-License-Identifier: Apache-2.0
"""A man page of all commands, made from their help: `git carry --help` opens it once it is installed."""

import re
from collections.abc import Iterator

import click

from stack import __version__

_QUOTED = re.compile(r"`([^`]+)`")


def page(name: str, command: click.Group, context: click.Context) -> str:
    """Return the page in the language of man.

    Args:
        name: The page's name, as `git-carry`.
        command: The command with all its verbs.
        context: The context of the command; its name stands in each usage line.

    """
    shown = context.info_name or name
    lines = [f'.TH {_plain(name).upper()} 1 "" "{_plain(name)} {__version__}"', ".SH NAME"]
    lines += [f"{_plain(name)} \\- carry a fork as named patch series on pinned upstream commits", ".SH SYNOPSIS"]
    lines += [f"\\fB{_plain(shown)}\\fR [OPTIONS] COMMAND [ARGS]...", ".SH DESCRIPTION", *_paragraphs(command.help or "")]
    lines += [".SH OPTIONS", *_options(command, context), ".SH COMMANDS"]
    for verb, each in _verbs(command, context):
        lines += _section(verb, each)
    return "\n".join(lines) + "\n"


def _verbs(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    """Yield each command that is not a group, with its name and context."""
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None, "it is listed"
        below = click.Context(command, context, info_name=word)
        if isinstance(command, click.Group):
            yield from _verbs(command, below)
        else:
            yield below.command_path, below


def _section(verb: str, context: click.Context) -> Iterator[str]:
    command = context.command
    yield f'.SS "{_plain(verb)} {_plain(" ".join(command.collect_usage_pieces(context)))}"'
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield ".TP"
            yield f"\\fB{_plain(record[0])}\\fR"
            yield _text(" ".join(record[1].split()))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; one that begins with click's mark for it keeps its lines."""
    for paragraph in re.split(r"\n[ \t]*\n", text.strip()):
        lines = [line.strip() for line in paragraph.split("\n")]
        if lines[0] == "\b":
            yield from (".PP", ".nf", *map(_text, lines[1:]), ".fi")
        else:
            yield from (".PP", _text(" ".join(lines)))


def _text(line: str) -> str:
    """Return a line of text, with what it quotes in bold."""
    return _QUOTED.sub(lambda match: rf"\fB{match[1]}\fR", _plain(line))


def _plain(line: str) -> str:
    """Escape what has a meaning in the language of man."""
    escaped = line.replace("…", "...").replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
