# SPDX-License-Identifier: Apache-2.0
"""What a check found, and which lines it looks at: those that patches added."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stack.model.diff import FileDiff, Hunk, parse
from stack.store import git
from stack.store.objects import Objects

_NEAR = 0.75


@dataclass(frozen=True, slots=True)
class Drift:
    """A place where a patch applies and is wrong all the same. `problem` is one sentence with what to look for.

    `variable`: the environment variable that it is about.
    """

    path: str
    line: int | None
    problem: str
    variable: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}" if self.line else f"{self.path}: {self.problem}"


def added_lines(files: Sequence[FileDiff]) -> dict[str, frozenset[int]]:
    """The lines that diffs add, by path, as they are numbered after the last of them.

    Several diffs of one file follow each other, as the patches of a series do.
    """
    known: dict[str, frozenset[int]] = {}
    for file in files:
        earlier = known.pop(file.taken, frozenset()) if file.taken is not None else frozenset()
        if file.new is not None:
            known[file.new] = after(earlier, file.hunks)
    return {path: lines for path, lines in known.items() if lines}


def added_between(objects: Objects, old: str, new: str, paths: Sequence[str] = ()) -> dict[str, frozenset[int]]:
    """The lines that one tree has and another one lacks, by path; only of some paths, if they are named.

    Raises:
        StackError: git cannot compare them.

    """
    settings = ("-c", "core.quotePath=false", "-c", "diff.renames=true")
    show = ("diff", "-U0", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules", old, new)
    diff = git.run(["--literal-pathspecs", *settings, *show, "--", *paths], env={"GIT_DIR": str(objects.repository)}).stdout
    return added_lines(parse(diff)) if diff else {}


def after(earlier: frozenset[int], hunks: Sequence[Hunk], *, adding: bool = True) -> frozenset[int]:
    """Lines added before and (unless not `adding`) by `hunks`, in the numbers after them."""
    added: set[int] = set()
    gone: set[int] = set()
    shifts: list[tuple[int, int]] = []
    for hunk in hunks:
        # A side without lines is named by the line before it.
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
    """The name that is most like the one that is missing; None where none is like it."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=_NEAR)
    return found[0] if found else None


def touches(added: frozenset[int], first: int, last: int | None) -> bool:
    """Whether one of the lines from `first` to `last` is among `added`."""
    return any(number in added for number in range(first, (last or first) + 1))
