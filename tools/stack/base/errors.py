# SPDX-License-Identifier: Apache-2.0
"""The one error that a user meets: a line that says what is wrong and what to do."""


class StackError(Exception):
    """Wrong usage, bad input or a broken environment; the command line prints it in one line and exits 2.

    Args:
        problem: what is wrong, with the place (file, key, path, field); no full stop.
        remedy: what to do about it; no full stop. May be empty where the problem says it already.

    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.problem}: {self.remedy}" if self.remedy else self.problem
        return " ".join(text.split())
