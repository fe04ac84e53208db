# SPDX-License-Identifier: Apache-2.0
"""The exception for errors that a user sees: one line that says what is wrong and what to do."""

from collections.abc import Sequence


class StackError(Exception):
    """Raised for wrong usage, bad input or a broken environment; the command line prints it in one line and exits with 2.

    Args:
        problem: What is wrong, with its place (file, key, path, field); without a full stop.
        remedy: What to do about it; without a full stop. Empty if the problem already says it.

    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.problem}: {self.remedy}" if self.remedy else self.problem
        return " ".join(text.split())


class SeveralErrors(StackError):
    """Raised when several things are wrong at once; the command line prints each of `errors` in a line of its own first."""

    def __init__(self, problem: str, remedy: str, errors: Sequence[StackError]) -> None:
        super().__init__(problem, remedy)
        self.errors = tuple(errors)
