# SPDX-License-Identifier: Apache-2.0
"""`[lint]` in `stacks/stack.toml`: what `stack lint` requires of this stack's patches beyond being sound."""

from dataclasses import dataclass
from typing import Literal

from stack.model.document import Table

Rule = Literal["optional", "required"]
_RULES: tuple[Rule, ...] = ("optional", "required")
_LONGEST = 1000
_SHORTEST = 20


@dataclass(frozen=True, slots=True)
class LintPolicy:
    """The rules that a stack sets for itself; the default demands nothing.

    `signed_off_by`: every patch has that trailer. `subject_length`: characters of the longest subject, None for any. `proof`: every
    series that carries patches names something in `proves`.
    """

    signed_off_by: Rule = "optional"
    subject_length: int | None = None
    proof: Rule = "optional"


def read(table: Table | None) -> LintPolicy:
    """Read a `[lint]` table; an absent one demands nothing.

    Raises:
        StackError: A key is unknown, or its value is not one of its rules.

    """
    if table is None:
        return LintPolicy()
    policy = LintPolicy(_rule(table, "signed-off-by"), _length(table, "subject-length"), _rule(table, "proof"))
    table.finish()
    return policy


def _rule(table: Table, key: str) -> Rule:
    given = table.optional_text(key, pattern="|".join(_RULES), meaning="optional or required")
    return "required" if given == "required" else "optional"


def _length(table: Table, key: str) -> int | None:
    if not table.given(key):
        return None
    length = table.whole(key)
    if not _SHORTEST <= length <= _LONGEST:
        raise table.error(key, f"is {length}", f"write a number of characters from {_SHORTEST} to {_LONGEST}")
    return length
