# SPDX-License-Identifier: Apache-2.0
"""Match names of layers against the patterns of a checkpoint, which may be hostile: what they may do is bounded."""

import re
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase

from stack.base.errors import StackError

_LONGEST = 300
"""Characters of the longest regular expression; real ones have less than 100."""
_UNBOUNDED = 3
"""Repetitions in one; none may repeat a group. A match then takes at most the third power of a name's length."""
_PATIENCE = 10.0
"""Seconds that all patterns of a file may take together."""


class Patterns:
    """Names, `re:` expressions and, if `loose`, wildcards and parts of names, as ModelOpt's lists have them."""

    def __init__(self, patterns: Sequence[str], where: str, *, loose: bool = False) -> None:
        self._where, self._until = where, time.monotonic() + _PATIENCE
        self._exact = {pattern for pattern in patterns if not pattern.startswith("re:")}
        self._expressions = [self._compiled(pattern[3:]) for pattern in patterns if pattern.startswith("re:")]
        self._loose = [*map(_plain, self._exact)] if loose else []

    def match(self, names: Sequence[str]) -> bool:
        """Return whether one of a layer's names matches.

        Raises:
            StackError: the patterns take too long.

        """
        if not self._exact.isdisjoint(names):
            return True
        for name in names:
            if time.monotonic() > self._until:
                raise StackError(f"the patterns of {self._where} take more than {_PATIENCE:.0f} s", "shorten that list")
            if any(expression.match(name) for expression in self._expressions) or self._loosely(name):
                return True
        return False

    def _loosely(self, name: str) -> bool:
        return any(part in name or (wild is not None and fnmatchcase(name, wild)) for part, wild in self._loose)

    def _compiled(self, text: str) -> "re.Pattern[str]":
        repeated = re.sub(r"\\.|\[[^\]]*\]", "a", text)
        if len(text) > _LONGEST or len(re.findall(r"[*+{]", repeated)) > _UNBOUNDED or re.search(r"\)[*+{?]", repeated):
            raise StackError(f"{self._where}: the pattern {text!r:.60} is too complex", "name the layers in it")
        try:
            return re.compile(text)
        except (re.error, RecursionError, OverflowError) as bad:
            raise StackError(f"{self._where}: {text!r:.60} is not a regular expression", "correct the list") from bad


def _plain(pattern: str) -> tuple[str, str | None]:
    """Split a loose pattern into a part of a name and a wildcard; vLLM reads `path*` as `path` and all below it."""
    if "*" not in pattern and "?" not in pattern and "[" not in pattern:
        return pattern, None
    stem = pattern[:-1] if pattern.endswith("*") and not pattern.endswith(".*") else ""
    if stem and not set("*?[") & set(stem):
        return stem, None
    return _NOWHERE, pattern


_NOWHERE = "\0"
"""A part that no name has."""
