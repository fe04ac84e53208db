# SPDX-License-Identifier: Apache-2.0
"""The name by which the user called this program, in every command that it advises: `stack`, or `git carry`.

Texts name commands of `stack`. They are renamed when they are printed, so that a user whose `stack` is another program can copy
them. Files keep the plain name: their bytes must not depend on who wrote them. `spark-stack` is another program with verbs of its
own: what it advises of `stack` keeps that name.
"""

import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

import click

_PLAIN, _GIT = "stack", "git carry"
OWNERS = "spark-stack"
"""The program of a server's owner."""
_AGAIN = ("command", "error", "remedy", "hint")
"""Keys of JSON documents whose values are commands, or sentences with commands."""


def name() -> str:
    """Return the name of the command as the user wrote it."""
    return _NAMES.get(Path(sys.argv[0]).name, _PLAIN)


_NAMES = {"git-carry": _GIT, OWNERS: OWNERS}


def renamed(text: str) -> str:
    """Return a text with its commands under the name that the user called.

    A command stands at the beginning of a line, in backticks, or after a colon, a bracket or a word such as "see"; "the stack"
    and "this stack" are no commands.
    """
    if name() != _GIT or _PLAIN not in text:
        return text
    return _commands().sub(rf"\g<before>{_GIT} ", text)


def renamed_json(value: object) -> object:
    """Return a JSON document with the commands that it advises under the name that the user called."""
    if name() != _GIT:
        return value
    if isinstance(value, Mapping):
        return {
            key: renamed(each) if key in _AGAIN and isinstance(each, str) else renamed_json(each) for key, each in value.items()
        }
    return [renamed_json(each) for each in value] if isinstance(value, list | tuple) else value


def rename_help(command: click.Command) -> None:
    """Rename the commands in the help of a command and of its options."""
    if name() != _GIT and not _plain:
        return
    texts: list[click.Command | click.Option] = [command]
    texts += [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    for each in texts:
        each.help = renamed(_plain.setdefault(each, each.help or ""))


_plain: WeakKeyDictionary[click.Command | click.Option, str] = WeakKeyDictionary()
"""Help texts before they were renamed: another call in this process may have the plain name."""


@cache
def _commands() -> re.Pattern[str]:
    from stack.cli import cli  # noqa: PLC0415  (it imports this module)

    verbs = "|".join(sorted({*cli.lazy, *cli.aliases}, key=len, reverse=True))
    before = r"^\s*|[`(\"]|[:;,] +|\b(?:[Ss]ee|then|by|run|or|and|with|when a release has it,) "
    return re.compile(rf"(?P<before>{before}){_PLAIN} (?=(?:{verbs}|--root)\b)", re.MULTILINE)
