# SPDX-License-Identifier: Apache-2.0
"""The files of a lane below `stacks/lanes/NAME/`: which file of the stack each one replaces, and how.

A patch file replaces the common patch file at the same place. The keys of a `series.toml`, `stack.toml` or `guards.toml` replace the
keys of the common file; keys that it does not have come from there. So a lane's file says only what differs.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import tomlkit

from stack.base.errors import StackError
from stack.model import guards, series
from stack.model.document import Table, load

FOLDER = "stacks/lanes"
NAME = "lanes"
"""The name of the folder below `stacks/`, which no series may have."""

_COMMON = "stacks/"
_STACK = f"{_COMMON}stack.toml"
_STATES_ITS_LIST = {_STACK: ("series",)}
_SERIES_LIST = ("needs", "landed", "patch")
_HEAD = "# Keys of this file replace those of {}, in this lane only.\n"


def place(lane: str, path: str) -> str:
    """Return where a lane keeps its own version of a file; both paths are below the stack's root."""
    return f"{FOLDER}/{lane}/{path.removeprefix(_COMMON)}"


def is_laned(path: str) -> bool:
    """Return whether a lane may have its own version of a file: of `stack.toml`, `guards.toml`, a `series.toml` and a patch file."""
    parts = PurePosixPath(path).parts
    if path in (_STACK, guards.PLACE):
        return True
    if len(parts) < 3 or parts[0] != "stacks" or parts[1] in (NAME, "resolutions"):
        return False
    return (len(parts) == 3 and parts[2] == series.FILE) or (len(parts) == 4 and path.endswith(".patch"))


def is_patch(path: str) -> bool:
    """Return whether a file that a lane may have is a patch file; the others are TOML."""
    return path.endswith(".patch")


def table(common: Path, own: Path | None) -> Table:
    """Load a TOML file of the stack with the keys of a lane's own version over it.

    Raises:
        StackError: A file is not valid TOML, or neither exists.

    """
    if own is None or not own.is_file():
        return load(common)
    return load(own).over(load(common)) if common.is_file() else load(own)


def joined(common: str | None, own: str | None) -> str | None:
    """Return the text that a lane sees: the common one with the keys of its own version in their place."""
    if common is None or own is None:
        return own if common is None else common
    head, tables, tail = series.cut(common)
    own_tables = series.cut(own)[1]
    toml = tomlkit.parse(head)
    replaced = tomllib.loads(own)
    for key, value in replaced.items():
        toml.pop(key, None)
        if value != [] and (key != "patch" or not own_tables):
            toml.append(key, _item(value))
    wanted = {key: value for key, value in (tomllib.loads(common) | replaced).items() if value != [] or key not in replaced}
    if "patch" in replaced:
        tables, tail = own_tables, ""
    text = "".join((_ended(tomlkit.dumps(toml), tables), *tables, tail))
    return text if _holds(text, wanted) else tomlkit.dumps(wanted)


def own_text(path: str, common: str | None, seen: str, held: str | None) -> str | None:
    """Return the text of a lane's own version such that the lane sees `seen`; None if it sees the common text then.

    Args:
        path: The common file's path, for a comment.
        common: The common text; None if there is none.
        seen: The text that the lane has to see.
        held: The lane's own version until now, whose comments stay.

    """
    if common is None:
        return seen
    shared, wanted = tomllib.loads(common), tomllib.loads(seen)
    own = {key: value for key, value in wanted.items() if shared.get(key) != value}
    own |= {key: [] for key in shared if key not in wanted}
    return _own(path, own, series.cut(seen)[1], held)


def kept_text(path: str, before: str | None, after: str | None, held: str | None) -> str | None:
    """Return the text of a lane's own version with which it lists the same patches after the common file has changed.

    Other values, such as the state of a series, follow the common file. Guards do not: they are judged where the lane stands.
    """
    seen = joined(before, held)
    if seen is None or after is None:
        return seen
    if path == guards.PLACE:
        return own_text(path, after, seen, held)
    own = {} if held is None else tomllib.loads(held)
    was, now = tomllib.loads(seen), tomllib.loads(after)
    for key in _STATES_ITS_LIST.get(path, _SERIES_LIST):
        if key not in own and _listed(was, key) != _listed(now, key):
            own[key] = was.get(key, [])
    return _own(path, own, series.cut(seen)[1], held)


def lists(text: str | None, file: str) -> bool:
    """Return whether the text of a `series.toml` lists a patch file, given by its path below the series' folder."""
    return text is not None and any(one.get("file") == file for one in tomllib.loads(text).get("patch", ()))


def _listed(values: Mapping[str, Any], key: str) -> object:
    """Return the entries of a list; of a patch only its upstream and file, since other keys may follow the common file."""
    entries = values.get(key, [])
    return [(one.get("upstream"), one.get("file")) for one in entries] if key == "patch" else entries


def _own(path: str, own: Mapping[str, Any], tables: Sequence[str], held: str | None) -> str | None:
    if not own:
        return None
    if held is not None and tomllib.loads(held) == own:
        return held
    toml = tomlkit.parse(_HEAD.format(path) if held is None else series.cut(held)[0])
    blocks = list(tables) if own.get("patch") else []
    for key in [key for key in toml if key not in own or (key == "patch" and blocks)]:
        toml.pop(key)
    for key, value in own.items():
        if (key != "patch" or not blocks) and toml.get(key) != value:
            toml.pop(key, None)
            toml.append(key, _item(value))
    text = "".join((_ended(tomlkit.dumps(toml), blocks), *blocks))
    if not _holds(text, own):
        text = _HEAD.format(path) + tomlkit.dumps(dict(own))
    if not _holds(text, own):
        raise StackError(f"{path} cannot be kept for a lane as it is written", "write [[patch]] tables below all other keys")
    return text


def _item(value: Any) -> tomlkit.items.Item:
    if not isinstance(value, list) or not any(isinstance(one, Mapping) for one in value):
        plain: tomlkit.items.Item = tomlkit.item(value)
        return plain
    listed = tomlkit.array().multiline(True)
    for one in value:
        entry = tomlkit.inline_table()
        entry.update(one)
        listed.append(entry)
    return listed


def _ended(head: str, tables: Sequence[str]) -> str:
    """Return the part above the [[patch]] tables with a blank line between the two."""
    if not head or not tables:
        return head
    return head.rstrip("\n") + ("\n" if tables[0].startswith("\n") else "\n\n")


def _holds(text: str, values: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == dict(values)
    except tomllib.TOMLDecodeError:
        return False
