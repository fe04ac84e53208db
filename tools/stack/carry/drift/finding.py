# SPDX-License-Identifier: Apache-2.0
"""The finding of a drift check, and the added lines that the checks examine."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stack.model.diff import FileDiff, Hunk, parse
from stack.store import git
from stack.store.objects import Objects

_NEAR = 0.75


@dataclass(frozen=True, slots=True)
class Drift:
    """A place where a patch applies and is still wrong. `problem` is one sentence, with a hint after a colon.

    `variable`: the environment variable concerned, if any.
    """

    path: str
    line: int | None
    problem: str
    variable: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}" if self.line else f"{self.path}: {self.problem}"


def added_lines(files: Sequence[FileDiff]) -> dict[str, frozenset[int]]:
    """Return the lines that diffs add, by path, numbered as after the last diff.

    Several diffs of one file apply one after the other, like the patches of a series.
    """
    known: dict[str, frozenset[int]] = {}
    for file in files:
        earlier = known.pop(file.taken, frozenset()) if file.taken is not None else frozenset()
        if file.new is not None:
            known[file.new] = after(earlier, file.hunks)
    return {path: lines for path, lines in known.items() if lines}


def added_between(objects: Objects, old: str, new: str, paths: Sequence[str] = ()) -> dict[str, frozenset[int]]:
    """Return the lines that the tree `new` has and `old` lacks, by path; only of `paths`, if there are any.

    Raises:
        StackError: git cannot compare them.

    """
    settings = ("-c", "core.quotePath=false", "-c", "diff.renames=true")
    show = ("diff", "-U0", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules", old, new)
    diff = git.run(["--literal-pathspecs", *settings, *show, "--", *paths], env={"GIT_DIR": str(objects.repository)}).stdout
    return added_lines(parse(diff)) if diff else {}


def after(earlier: frozenset[int], hunks: Sequence[Hunk], *, adding: bool = True) -> frozenset[int]:
    """Return the numbers, after `hunks`, of the `earlier` added lines, and (if `adding`) of those that the hunks add."""
    added: set[int] = set()
    gone: set[int] = set()
    shifts: list[tuple[int, int]] = []
    for hunk in hunks:
        # If a side has no lines, its start is the line before it.
        old, new = hunk.old_start + (not hunk.old_count), hunk.new_start + (not hunk.new_count)
        for line in hunk.lines:
            kind = line[:1]
            if kind == b"+" and adding:
                added.add(new)
            elif kind == b"-":
                gone.add(old)
            new += kind in (b"+", b" ", b"")
            old += kind in (b"-", b" ", b"")
            shifts.append((old, new - old))
    for number in earlier - gone:
        added.add(number + next((shift for start, shift in reversed(shifts) if start <= number), 0))
    return frozenset(added)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a missing name; None if none is similar."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=_NEAR)
    return matches[0] if matches else None


def touches(added: frozenset[int], first: int, last: int | None) -> bool:
    """Return whether one of the lines from `first` to `last` is among `added`."""
    return any(number in added for number in range(first, (last or first) + 1))
