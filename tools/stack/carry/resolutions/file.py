# SPDX-License-Identifier: Apache-2.0
"""A resolution and its TOML file, which is readable in a review and keeps every byte."""

import re
from dataclasses import dataclass

import tomlkit
from tomlkit.items import String, StringType, Trivia

from stack.carry.resolutions.companion_changes import Beside
from stack.carry.resolutions.hunks import AROUND, Hunk, lines
from stack.model import paths
from stack.model.document import Table
from stack.model.ids import UPSTREAM

NAME = r"([0-9a-f]{16})(-[2-9]|-[1-9][0-9]+)?"
"""A file's name without suffix: the key, and a number if the key alone is taken by the same conflict with other lines around."""

_HEAD = """\
# SPDX-License-Identifier: Apache-2.0
# A conflict that a person resolved; `stack resolutions show` shows it as one.
"""
# Editors and mail programs remove whitespace at the ends of lines.
_UNSEEN = re.compile(r"[ \t]$", re.MULTILINE)
_QUOTES = re.compile(r'"{3,}')
_ANY = r"(?s).*"
_WORD = r"[!-~]+"
_BESIDE = ("before", "old", "new", "after")
_PATCH = r"[a-z0-9][a-z0-9-]*/[a-z][a-z0-9-]*/[A-Za-z0-9][A-Za-z0-9._-]*\.patch"


@dataclass(frozen=True, slots=True)
class Resolution:
    """One conflicting hunk, and the text that a person put in its place; `ours` is the new base's, `theirs` the patch's.

    `beside`: the person's changes to files without conflicts. They belong to the whole stop; its first resolution has them all.
    """

    key: str
    path: str
    upstream: str
    patch: str
    """Its path below `stacks/`."""
    rung: str
    """The release tag or commit on which it was made."""
    before: str
    base: str
    ours: str
    theirs: str
    after: str
    resolved: str
    beside: tuple[Beside, ...] = ()

    @property
    def hunk(self) -> Hunk:
        """Return the hunk that it resolves."""
        return Hunk(self.before, self.base, self.ours, self.theirs, self.after)

    @property
    def lines(self) -> int:
        """Return how many lines replace the conflict."""
        return len(lines(self.resolved))


def dump(resolution: Resolution) -> str:
    """Return the file's text, without the key: it is computed from the rest, and is the file's name."""
    toml = tomlkit.document()
    for name in ("upstream", "patch", "path", "rung"):
        toml.add(name, tomlkit.item(getattr(resolution, name)))
    for name in ("before", "base", "ours", "theirs", "after", "resolved"):
        toml.add(name, _string(getattr(resolution, name)))
    return _HEAD + tomlkit.dumps(toml) + "".join(map(_dumped, resolution.beside))


def _dumped(change: Beside) -> str:
    toml = tomlkit.document()
    toml.add("path", tomlkit.item(change.path))
    for name in _BESIDE:
        toml.add(name, _string(getattr(change, name)))
    return f"\n[[beside]]\n{tomlkit.dumps(toml)}"


def parse(table: Table) -> Resolution:
    """Parse a file that `dump` or a person wrote.

    Raises:
        StackError: a key is unknown, missing or not valid; the message names file and key.

    """
    texts = {name: table.text(name, pattern=_ANY) for name in ("before", "base", "ours", "theirs", "after", "resolved")}
    path = table.text("path")
    hunk = Hunk(texts["before"], texts["base"], texts["ours"], texts["theirs"], texts["after"])
    resolution = Resolution(
        key=hunk.key,
        path=path,
        upstream=table.text("upstream", pattern=UPSTREAM, meaning="the name of an upstream"),
        patch=table.text("patch", pattern=_PATCH, meaning="<series>/<upstream>/<name>.patch"),
        rung=table.text("rung", pattern=_WORD, meaning="a release tag or a commit"),
        beside=tuple(map(_beside, table.tables("beside"))),
        **texts,
    )
    table.finish()
    _check_path(table, path)
    for name in ("before", "after"):
        if len(lines(texts[name])) > AROUND:
            raise table.error(name, f"has more than {AROUND} lines", "with these it would never be found again")
    if texts["after"] and texts["resolved"] and not texts["resolved"].endswith("\n"):
        raise table.error("resolved", "does not end with the end of a line", "what comes after it would run into its last line")
    return resolution


def _beside(table: Table) -> Beside:
    change = Beside(table.text("path"), **{name: table.text(name, pattern=_ANY) for name in _BESIDE})
    table.finish()
    _check_path(table, change.path)
    if not change.before + change.old + change.after:
        raise table.error("before", "is empty, and so are old and after", "some lines have to say where the change belongs")
    return change


def _check_path(table: Table, path: str) -> None:
    fault = paths.fault(path.encode())
    if fault:
        raise table.error("path", f"is {path!r}, which {fault}", "it has to be a path in the upstream's tree")


def shown(text: str) -> tuple[str, ...]:
    """Split a text into lines for a terminal; escape invisible and control characters."""
    return tuple(_spelled(line.removesuffix("\n")) for line in lines(text))


def _string(text: str) -> String:
    """Return a multi-line TOML string: literal, or escaped if a character would be lost or invisible in a review."""
    if not text:
        return tomlkit.string("")
    if "'''" not in text and not _UNSEEN.search(text) and all(map(_is_seen, text)):
        return String(StringType.MLL, text, f"\n{text}", Trivia())
    escaped = "\n".join(map(_escaped, text.split("\n")))
    return String(StringType.MLB, text, f"\n{escaped}", Trivia())


def _is_seen(char: str) -> bool:
    return char.isprintable() or char in "\t\n"


def _escaped(line: str) -> str:
    line = _QUOTES.sub(lambda run: run[0].replace('"', '\\"'), line.replace("\\", "\\\\"))
    line = _UNSEEN.sub(lambda blank: _code(blank[0]), line)
    return _spelled(line)


def _spelled(line: str) -> str:
    return "".join(char if _is_seen(char) else _code(char) for char in line)


def _code(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
