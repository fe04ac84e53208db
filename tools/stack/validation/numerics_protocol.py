# SPDX-License-Identifier: Apache-2.0
"""Read the output of `python -m stack.validation.numerics` strictly: one line per case, each requested case once."""

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
"""Name of a line in errors."""


def table(line: bytes) -> Table:
    """Parse a line as a JSON object.

    Raises:
        StackError: it is not a JSON object.

    """
    return Table(verdicts.parse(line, FROM), file=Path("the numerics"))


def _case(line: bytes) -> Case:
    """Parse a case, and the modules that its process imported, if the line lists them."""
    content = verdicts.parse(line, FROM)
    imports = content.pop("imports", None)
    case = verdicts.case(Table(content, file=Path("the numerics")))
    if imports is None:
        return case
    if not isinstance(imports, list) or not all(isinstance(path, str) and re.fullmatch(_MODULE, path) for path in imports):
        raise StackError(f"{FROM} has imports that are not paths", "this is a defect, please report it")
    return replace(case, used=bound.used(case.name, case.needs, imports))


def cases(lines: Iterable[bytes], left: dict[str, None]) -> Iterator[Case]:
    """Yield the cases as they arrive, and remove each from `left`, which in the end has the cases that are missing.

    Raises:
        StackError: a line is not a case, or the case was not requested.

    """
    for line in lines:
        case = _case(line)
        if case.name not in left:
            raise StackError(
                f"the numerics handed back {case.name}, which was not requested", "this is a defect, please report it"
            )
        del left[case.name]
        yield case
