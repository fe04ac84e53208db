# SPDX-License-Identifier: Apache-2.0
"""Recipes that change another one: `base = "NAME"`, with changes on top.

Arguments are merged by flag, tables by key; anything else in the recipe replaces what its base has. `without` takes out flags,
environment variables and expected backends (`backends.linear`). A title, speeds and a proof are of one recipe only: a base passes none on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stack.base.did_you_mean import unknown_name
from stack.model import document
from stack.model.document import Table

NAME = r"[a-z][a-z0-9-]*"
_OWN = frozenset({"title", "speed", "proven"})
_TABLES = ("environment", "variables", "hardware", "backends")
_LARGEST = 2**17
"""Bytes of the largest recipe; the longest of ours has 4,000."""
_FLAG = re.compile(r"--?[A-Za-z]")
_BACKEND = "backends."


def load(file: Path, folder: Path) -> tuple[Table, str | None]:
    """Read a recipe's table, with what it takes from its base, and the name of that base.

    Args:
        file: the recipe.
        folder: where a base is looked for if it is not beside the recipe.

    Raises:
        StackError: a file cannot be read, the base is unknown or has a base itself, or the changes do not fit it.

    """
    table = document.load(file, largest=_LARGEST)
    if not table.given("base"):
        if table.given("without"):
            raise table.error("without", "is given, and base is not", "name the recipe that it changes")
        return table, None
    name = table.text("base", pattern=NAME, meaning="the name of a recipe")
    without = table.texts("without")
    changes = document.parse(document.read_text(file))
    changed = _merged(table, _base(table, name, folder), changes, without)
    return Table(changed, file=file), name


def _base(table: Table, name: str, folder: Path) -> dict[str, Any]:
    """Read the base of a recipe; one in the same folder comes before one of the package."""
    beside = table.file.parent
    place = next((each / f"{name}.toml" for each in (beside, folder) if (each / f"{name}.toml").is_file()), None)
    if place is None or name == table.file.stem:
        others = sorted({path.stem for each in (beside, folder) for path in each.glob("*.toml")} - {table.file.stem})
        raise unknown_name("base", name, others, holder=str(table.file), lister="stack recipe list")
    base = document.load(place, largest=_LARGEST)
    if base.given("base"):
        raise table.error("base", f"is {name}, which has a base itself", f"name {base.text('base')}, and repeat the changes")
    return document.parse(document.read_text(place))


def _merged(table: Table, base: Mapping[str, Any], changes: Mapping[str, Any], without: Sequence[str]) -> dict[str, Any]:
    merged = {key: value for key, value in base.items() if key not in _OWN}
    merged |= {key: value for key, value in changes.items() if key not in ("base", "without", "arguments", *_TABLES)}
    for key in _TABLES:
        if table.given(key):
            # Through the table, which refuses anything else with the recipe's name in the error.
            merged[key] = {**_dict(base.get(key)), **{name: changes[key][name] for name in table.table(key)}}
    merged["arguments"] = _arguments(table, base, without)
    for name in without:
        _take_out(table, merged, name)
    return merged


def _dict(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _arguments(table: Table, base: Mapping[str, Any], without: Sequence[str]) -> list[str]:
    """Merge the arguments: a flag of the recipe takes the place of the base's, a new one comes last."""
    old = [*_groups(Table(base, file=table.file).texts("arguments", unique=False))]
    own = [*_groups(table.texts("arguments", unique=False))]
    if own and not _FLAG.match(own[0][0]):
        raise table.error("arguments", f"begin with {own[0][0]!r:.100}", "begin with the flag that the recipe changes")
    changed = {_flag(group) for group in own}
    if twice := sorted(changed.intersection(without)):
        raise table.error("without", f"takes out {twice[0]}, and arguments have it", "keep one of both")
    made = list[str]()
    placed = set[str]()
    for group in old:
        flag = _flag(group)
        if flag not in changed:
            made += group
        elif flag not in placed:
            placed.add(flag)
            made += (word for each in own if _flag(each) == flag for word in each)
    return made + [word for each in own if _flag(each) not in placed for word in each]


def _groups(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Split a command line into flags with their values."""
    group = list[str]()
    for word in arguments:
        if _FLAG.match(word) and group:
            yield group
            group = []
        group.append(word)
    if group:
        yield group


def _flag(group: Sequence[str]) -> str:
    return group[0].partition("=")[0]


def _take_out(table: Table, merged: dict[str, Any], name: str) -> None:
    if name.startswith("-"):
        kept = [word for group in _groups(merged["arguments"]) if _flag(group) != name for word in group]
        if kept != merged["arguments"]:
            merged["arguments"] = kept
            return
    elif name.startswith(_BACKEND):
        if _dict(merged.get("backends")).pop(name.removeprefix(_BACKEND), None) is not None:
            merged["backends"] = {key: value for key, value in merged["backends"].items() if f"{_BACKEND}{key}" != name}
            return
    elif name in _dict(merged.get("environment")):
        merged["environment"] = {key: value for key, value in merged["environment"].items() if key != name}
        return
    raise table.error("without", f"names {name!r:.100}, which the base does not have", "take it out")
