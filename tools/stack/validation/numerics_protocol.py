# SPDX-License-Identifier: Apache-2.0
"""What `python -m stack.validation.numerics` hands back, read strictly: a case a line, each of those that were asked for, once."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from stack.base.errors import StackError
from stack.model import verdict as verdicts
from stack.model.document import Table
from stack.model.verdict import Case
from stack.validation import bound

_MODULE = r"[\w./+-]+"
FROM = "a line of the numerics"
"""What errors call a line."""


def table(line: bytes) -> Table:
    """A line's object.

    Raises:
        StackError: it is no JSON object.

    """
    return Table(verdicts.parse(line, FROM), file=Path("the numerics"))


def _case(line: bytes) -> Case:
    """A case with the modules that its process has imported, where that came to say them."""
    content = verdicts.parse(line, FROM)
    told = content.pop("imports", None)
    case = verdicts.case(Table(content, file=Path("the numerics")))
    if told is None:
        return case
    if not isinstance(told, list) or not all(isinstance(path, str) and re.fullmatch(_MODULE, path) for path in told):
        raise StackError(f"{FROM} has imports that are no paths", "this is a defect, please report it")
    return replace(case, used=bound.used(case.name, case.needs, told))


def cases(lines: Iterable[bytes], left: dict[str, None]) -> Iterator[Case]:
    """The cases as they come; each leaves `left`, in which those stay that never came.

    Raises:
        StackError: what is handed back is no case, or one that nobody asked for.

    """
    for line in lines:
        case = _case(line)
        if case.name not in left:
            raise StackError(
                f"the numerics handed back {case.name}, which was not to run", "this is a defect, please report it"
            )
        del left[case.name]
        yield case
