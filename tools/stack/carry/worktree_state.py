# SPDX-License-Identifier: Apache-2.0
"""Reading what stack has noted in the `.git` folder of a working tree that it made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stack.base.errors import StackError
from stack.model.document import Table
from stack.store.sources import SOURCES, Source

_LARGEST = 64 * 2**20
_Noted = TypeVar("_Noted")


def read(file: Path, taken: Callable[[Table], _Noted], *, remedy: str) -> _Noted:
    """What `taken` makes of a JSON object. It stands in a folder of the user's, where a full disk or an editor may damage it.

    Raises:
        StackError: it is anything else than what stack writes there.

    """
    with file.open("rb") as opened:
        data = opened.read(_LARGEST)  # cut off, it is no JSON
    try:
        values = json.loads(data.decode("utf-8"))
        # As a table's only key, since `Table` wants a mapping, which JSON need not be.
        return taken(Table({"record": values}, file=file).table("record"))
    except (ValueError, RecursionError, StackError) as bad:
        raise StackError(f"{file} is not what stack wrote", remedy) from bad


def source(table: Table) -> Source:
    """Where the sources came from.

    Raises:
        StackError: it is neither of both.

    """
    return SOURCES[SOURCES.index(table.text("source", pattern="|".join(SOURCES)))]
