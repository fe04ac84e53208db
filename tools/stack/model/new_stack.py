# SPDX-License-Identifier: Apache-2.0
"""The files of a new stack, and the text of `pins.toml` with one more upstream."""

import re
from collections.abc import Iterable
from urllib.parse import unquote

import tomlkit

from stack.base.errors import StackError
from stack.model.ids import UPSTREAM
from stack.model.pins import BASE, LANES, Pin
from stack.model.switch import FOLDER

STACK_FILE = "# The series in the order in which they apply.\nseries = []\n"
IGNORE_FILE = ".gitignore"

_HEAD = "# The upstream commits that the patches stand on. `stack rebase` and `stack pins set` change them.\n"
_IGNORED = f"{FOLDER}/"


def with_pin(text: str | None, pin: Pin) -> str:
    """Return the text of `pins.toml` with the table of one more upstream at its end; without a text, of a new file."""
    toml = tomlkit.parse(_HEAD if text is None else text)
    if toml.body:
        toml.add(tomlkit.nl())
    toml.add(pin.upstream, _table(pin))
    return tomlkit.dumps(toml)


def with_plugins(text: str, names: Iterable[str]) -> str:
    """Return the text of `stack.toml` that also names these plug-ins; the same text if it names all of them."""
    toml = tomlkit.parse(text)
    have = list(toml.get("plugins", ()))
    more = [name for name in names if name not in have]
    if not more:
        return text
    if have:
        toml["plugins"].extend(more)
    else:
        toml.pop("plugins", None)
        toml.append("plugins", tomlkit.item(more))  # tomlkit puts it above the tables
    return tomlkit.dumps(toml)


def with_ignored(text: str | None) -> str:
    """Return the text of `.gitignore` with the folder that holds the history for `stack undo`."""
    if text is None:
        return f"{_IGNORED}\n"
    if {_IGNORED, FOLDER, f"/{_IGNORED}", f"/{FOLDER}"} & {line.strip() for line in text.splitlines()}:
        return text
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{_IGNORED}\n"


def name_from(address: str) -> str:
    """Return the name of an upstream that a repository's address suggests; empty if it suggests none."""
    last = re.split(r"[/:]", unquote(address).rstrip("/").removesuffix("/.git"))[-1].removesuffix(".git")
    name = re.sub(r"[^a-z0-9]+", "-", last.lower()).strip("-")
    return name if re.fullmatch(UPSTREAM, name) and name not in (BASE, LANES) else ""


def check_name(name: str) -> None:
    """Refuse a name that no upstream may have.

    Raises:
        StackError: It has other characters than those allowed, or is the base image's.

    """
    if not re.fullmatch(UPSTREAM, name):
        raise StackError(
            f"{name!r} is not a valid name of an upstream", "use lower-case letters, digits and dashes; begin with a letter"
        )
    if name == BASE:
        raise StackError(f"{BASE!r} is the table of the base image in pins.toml", "give the upstream another name")
    if name == LANES:
        raise StackError(f"{LANES!r} is the table of the lanes in pins.toml", "give the upstream another name")


def _table(pin: Pin) -> tomlkit.items.Table:
    table = tomlkit.table()
    for key, value in (("git", pin.git), ("tag", pin.tag), ("commit", pin.commit)):
        if value is not None:
            table.add(key, value)
    if pin.archive is not None:
        archive = {"package": pin.archive.package, "version": pin.archive.version, "sha256": pin.archive.sha256}
        table.add("archive", _inline({key: value for key, value in archive.items() if value is not None}))
    if pin.tree is not None:
        table.add("tree", pin.tree)
    if pin.within is not None:
        table.add("within", _inline({"upstream": pin.within.upstream, "path": pin.within.path}))
    if pin.stated_source is not None:
        table.add("source", pin.stated_source)
    if pin.tags is not None:
        table.add("tags", pin.tags)
    return table


def _inline(values: dict[str, str]) -> tomlkit.items.InlineTable:
    table = tomlkit.inline_table()
    table.update(values)
    return table
