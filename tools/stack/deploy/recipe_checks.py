# SPDX-License-Identifier: Apache-2.0
"""Check the texts of a recipe: it may come from somebody else, and parts of it become lines of a shell, YAML or a terminal."""

import dataclasses
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from stack.base.errors import StackError
from stack.model.document import Table

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name that a shell takes for a variable's; any other text before an equals sign would be a command."""
PROOF = r"validation/verdicts/(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*\.json"
"""The path of a verdict; no part of it leads up."""


def pairs(table: Table) -> Mapping[str, str]:
    """Read variables with their values or meanings.

    Raises:
        StackError: a name is not one of a variable, or a value is no text.

    """
    for name in table:
        if not VARIABLE.fullmatch(name):
            raise table.error(repr(name)[:60], "is no name of a variable", "use letters, digits and _")
    found = {name: table.text(name) for name in table}
    table.finish()
    return MappingProxyType(found)


def demand_printable(table: Table, recipe: object) -> None:
    """Refuse control characters and line breaks in every text of a recipe, a dataclass that was read from `table`.

    Raises:
        StackError: a text has one.

    """
    for name, value in _fields(recipe):
        if odd := [text for text in texts(value) if not text.isprintable()]:
            raise table.error(name, f"has control characters in {odd[0]!r:.60}", "take them out")


def proof(validation: Path, proven: str) -> Path:
    """Return the file of the verdict `proven`, whose path begins with `validation/`, in a folder of validations.

    Raises:
        StackError: the path is not one of a verdict, or leads through a link.

    """
    if not re.fullmatch(PROOF, proven):
        raise StackError(f"{proven!r:.100} is no path of a verdict", "name a file below validation/verdicts")
    below = Path(proven).relative_to("validation")
    place = validation
    for part in below.parts:
        place /= part
        try:
            is_link = stat.S_ISLNK(place.lstat().st_mode)
        except OSError:
            break  # whoever reads it says why
        if is_link:
            raise StackError(f"{place} is a link", "put the verdict itself there")
    return validation / below


def texts(value: object) -> Iterator[str]:
    """Yield all texts of a recipe, or of a part of one, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from texts(name)
            yield from texts(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from texts(each)
    else:
        for _, each in _fields(value):
            yield from texts(each)


def _fields(value: object) -> Iterator[tuple[str, object]]:
    if dataclasses.is_dataclass(value):
        yield from ((each.name, getattr(value, each.name)) for each in dataclasses.fields(value))
