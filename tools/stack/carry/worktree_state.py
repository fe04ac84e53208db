# SPDX-License-Identifier: Apache-2.0
"""Read the records that stack keeps in the `.git` folder of a working tree that it made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stack.base.errors import StackError
from stack.model.document import Table
from stack.model.pins import SOURCES, Source

_LARGEST = 64 * 2**20
_Noted = TypeVar("_Noted")


def read(file: Path, taken: Callable[[Table], _Noted], *, remedy: str) -> _Noted:
    """Read a JSON object and convert it with `taken`; a full disk or an editor may have damaged the file.

    Raises:
        StackError: it is not valid JSON, or not what stack writes there.

    """
    with file.open("rb") as opened:
        data = opened.read(_LARGEST)  # A larger file is truncated, and so not valid JSON.
    try:
        values = json.loads(data.decode("utf-8"))
        # Wrapped in a dict, since `Table` needs a mapping, which JSON need not be.
        return taken(Table({"record": values}, file=file).table("record"))
    except (ValueError, RecursionError, StackError) as bad:
        raise StackError(f"{file} is not what stack wrote", remedy) from bad


def source(table: Table) -> Source:
    """Return the kind of source in a record.

    Raises:
        StackError: it is neither an archive nor git.

    """
    return SOURCES[SOURCES.index(table.text("source", pattern="|".join(SOURCES)))]
