# SPDX-License-Identifier: Apache-2.0
"""What `python -m validation.numerics` hands back, read strictly: a case a line, each of those that were asked for, once."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from stack.model import verdict as verdicts
from stack.model.document import Table
from stack.model.errors import StackError
from stack.model.verdict import Case

FROM = "a line of the numerics"
"""What errors call a line."""


def table(line: bytes) -> Table:
    """A line's object.

    Raises:
        StackError: it is no JSON object.

    """
    return Table(verdicts.parse(line, FROM), file=Path("the numerics"))


def cases(lines: Iterable[bytes], left: dict[str, None]) -> Iterator[Case]:
    """The cases as they come; each leaves `left`, in which those stay that never came.

    Raises:
        StackError: what is handed back is no case, or one that nobody asked for.

    """
    for line in lines:
        case = verdicts.case(table(line))
        if case.name not in left:
            raise StackError(
                f"the numerics handed back {case.name}, which was not to run", "this is a defect, please report it"
            )
        del left[case.name]
        yield case
