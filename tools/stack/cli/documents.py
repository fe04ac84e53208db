# SPDX-License-Identifier: Apache-2.0
"""Print JSON documents: each begins with the name of its schema, and a command prints one, also if it fails."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from stack.base.errors import SeveralErrors, StackError
from stack.cli.rendering import called

_VERSIONS: Mapping[str, int] = {}
"""Versions of schemas that are not the first. A key that is renamed or removed makes a new version; a new key does not."""
_printed = [False]


def reset() -> None:
    """Forget that a document was printed: another command of the same process may have done it."""
    _printed[0] = False


def schema(name: str) -> str:
    """Return what a document says of its schema: `stack/status/1`."""
    return f"stack/{name}/{_VERSIONS.get(name, 1)}"


def document(data: Mapping[str, object], name: str | None = None) -> dict[str, object]:
    """Put the name of the schema in front of a document's keys. The schema is by default that of the running command."""
    return {"schema": schema(name if name is not None else _of_command()), **data}


def of_lanes(name: str | None = None) -> str:
    """Name the schema of a document with one document for each lane; see `document`."""
    return f"{name if name is not None else _of_command()}-all-lanes"


def show(data: Mapping[str, object], name: str | None = None) -> None:
    """Print a document; see `document`."""
    text = as_text(document(data, name))
    _printed[0] = True
    click.echo(text)


def as_text(made: Mapping[str, object]) -> str:
    """Write a document as JSON."""
    # A file's name may hold half a surrogate pair: write it as JSON's escape.
    return json.dumps(called.renamed_json(made), indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def show_error(error: StackError, exit_code: int, verb: str | None) -> None:
    """Print an error as a document, unless the command has printed its own: a reader gets exactly one."""
    if _printed[0]:
        return
    problem, remedy = (" ".join(text.split()) for text in (error.problem, error.remedy))
    content: dict[str, object] = {"problem": problem, "remedy": remedy, "exit_code": exit_code, "verb": verb}
    if isinstance(error, SeveralErrors):
        content["errors"] = [{"problem": each.problem, "remedy": each.remedy} for each in error.errors]
    with contextlib.suppress(OSError):  # the error itself is on stderr already
        show(content, "error")


def are_wanted(words: Sequence[str]) -> bool:
    """Tell whether a command line asks for JSON. An error may come before click has read it."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def verb(group: click.Group, words: Iterable[str]) -> str | None:
    """Return the command that a command line names, such as `pins show`; None if it names none."""
    # The module of the command may be what cannot be imported.
    with contextlib.suppress(Exception):
        return " ".join(_verb(group, iter(words))) or None
    return None


def _verb(command: click.Command, words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if not isinstance(command, click.Group):
            return
        if word.startswith("-"):
            if any(word in option.opts and not getattr(option, "is_flag", False) for option in command.params):
                next(words, None)
            continue
        subcommand = command.get_command(click.Context(command), word)
        if subcommand is None:
            return
        yield subcommand.name or word
        command = subcommand


def _of_command() -> str:
    """Name the running command with dashes: `pins-show`; one of the owner's program begins with its name: `spark-stack-up`."""
    context, names = click.get_current_context(), list[str]()
    while context.parent is not None:
        names.insert(0, context.command.name or "")
        context = context.parent
    program = [called.OWNERS] if context.command.name == called.OWNERS else []
    return "-".join([*program, *names])
