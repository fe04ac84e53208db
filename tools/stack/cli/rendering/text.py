# SPDX-License-Identifier: Apache-2.0
"""Text for people: headings, named values, wrapped paragraphs, diffs, and names shortened between words."""

import re
import sys
from collections.abc import Iterable, Iterator

import click

from stack.cli.rendering import terminal

_DIFF_COLOURS = (
    ("diff --git ", "bold"),
    ("--- ", "bold"),
    ("+++ ", "bold"),
    ("@@ ", "cyan"),
    ("+", "green"),
    ("-", "red"),
)
_WORD_END = re.compile(r"(?<=[^A-Za-z0-9])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[^A-Za-z0-9])")


def one_line(text: str) -> str:
    """Escape line breaks, control characters and other unprintable characters in foreign text."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def styled(text: str, style: str) -> str:
    """Return text in a colour, or bold, if standard output has colours. `style` is like `bold red`."""
    words = style.split()
    if not words or not terminal.is_coloured():
        return text
    colour = next((word for word in words if word != "bold"), None)
    return click.style(text, fg=colour, bold="bold" in words)


def echo(text: str = "") -> None:
    """Print a line; colours in it are kept exactly if `terminal.is_coloured`."""
    try:
        click.echo(text, color=terminal.is_coloured())
    except UnicodeEncodeError:
        click.echo(text.encode(sys.stdout.encoding or "ascii", "backslashreplace").decode("ascii", "replace"), color=False)


def heading(text: str) -> None:
    """Print the heading of a section, after a blank line."""
    echo()
    echo(styled(text, "bold"))


def wrapped(text: str, indent: str = "") -> Iterator[str]:
    """Yield the lines of a text; paragraphs are wrapped, indented lines and lists stay as they are."""
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = [one_line(line.expandtabs()) for line in paragraph.split("\n")]
        if any(re.match(r"\s|[-*+] |\d+[.)] |[A-Za-z]+-[a-z]+: |>|<|#|\|", line) for line in lines):
            yield from (f"{indent}{line}".rstrip() for line in lines)
        else:
            yield from filled(" ".join(lines), indent)
        yield ""


def filled(sentence: str, indent: str = "", first: str | None = None) -> list[str]:
    """Wrap one paragraph; a long word, such as a path, is never broken."""
    import textwrap  # noqa: PLC0415 - not every command writes sentences

    return textwrap.wrap(
        sentence,
        terminal.prose_columns(),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def paragraphs(text: str, indent: str = "") -> None:
    """Print a text with wrapped paragraphs."""
    lines = list(wrapped(text, indent))
    for line in lines[:-1]:
        echo(line)


def fields(pairs: Iterable[tuple[str, str]], least: int = 0) -> None:
    """Print named values below each other; empty ones are left out. Names take at least `least` columns."""
    shown = [(name, value) for name, value in pairs if value]
    width = max(least, *(len(name) for name, _ in shown)) + 2 if shown else 0
    for name, value in shown:
        lines = [part for line in value.split("\n") for part in filled(one_line(line), " " * width, " " * width) or [""]]
        echo(styled(f"{name:<{width}}", "bold") + "\n".join(lines)[width:])


def diff(data: bytes, indent: str = "") -> None:
    """Print a diff. In a pipe its bytes stay as they are; on a terminal control characters are escaped."""
    if not terminal.is_terminal() and not terminal.is_coloured() and not indent:
        ended = data if data.endswith(b"\n") or not data else data + b"\n"
        click.echo(ended if hasattr(sys.stdout, "buffer") else ended.decode("utf-8", "backslashreplace"), nl=False)
        return
    for line in data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n"):
        style = next((style for start, style in _DIFF_COLOURS if line.startswith(start)), "")
        plain = "".join(letter if letter == "\t" else one_line(letter) for letter in line)
        echo(indent + styled(plain, style) if plain else "")


def shortened(name: str, most: int) -> str:
    """Shorten a name to at most `most` characters: leave out its middle, cut between words where that is possible."""
    if len(name) <= most:
        return name
    sign = terminal.ellipsis()
    room = most - len(sign)
    if room < 2:
        return name[:most]
    cuts = [0, *(match.start() for match in _WORD_END.finditer(name)), len(name)]
    # The end of a path or a patch's name says more than its beginning.
    head = max((cut for cut in cuts if cut <= room // 2), default=0)
    tail = min((cut for cut in cuts if len(name) - cut <= room - head), default=len(name))
    if head == 0 or tail == len(name):
        head = room // 2 if tail == len(name) else head
        tail = len(name) - (room - head) if tail == len(name) else tail
    return f"{name[:head]}{sign}{name[tail:]}"
