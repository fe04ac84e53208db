# SPDX-License-Identifier: Apache-2.0
"""Find which patches of a chain need which others, and why: by their text, by names, and by problems that the drift check finds."""

import builtins
from collections.abc import Callable, Hashable, Iterable, Sequence, Set

from stack.carry.drift import added_between, check
from stack.carry.drift.outline import Known
from stack.model.ids import TreeId
from stack.store.objects import Objects
from stack.upstreaming import graph
from stack.upstreaming.chain import Chain
from stack.upstreaming.minimize import smallest
from stack.upstreaming.names import Names, absent, absent_from, names

_SHOWN = 3
"""Maximal number of names or files in a reason."""
_EVERYBODYS = frozenset(
    (*dir(builtins), "self", "torch", "logger", "info", "value", "values", "items", "append", "name", "type")
)
"""Names too common to relate two changes."""


class Relations:
    """The direct needs of the patches of a chain, by number, with their reasons; each analysis adds to them."""

    def __init__(self, objects: Objects, chain: Chain, groups: Sequence[Hashable] = ()) -> None:
        """`groups` names the change that each patch is a part of; without it, each patch is a change of its own."""
        self._objects = objects
        self._chain = chain
        self._groups = groups or range(len(chain))
        self._known = Known()
        self._names: dict[int, Names] = {}
        self.reasons: dict[int, dict[int, str]] = {number: {} for number in range(len(chain))}

    @property
    def needs(self) -> dict[int, frozenset[int]]:
        """The direct needs of each patch."""
        return {number: frozenset(reasons) for number, reasons in self.reasons.items()}

    def closure(self, chosen: Iterable[int]) -> frozenset[int]:
        """Return some patches with all that they need."""
        reach, chosen = graph.closed(self.needs), frozenset(chosen)
        return chosen.union(*(reach[number] for number in chosen))

    def add(self, number: int, needed: int, reason: str) -> None:
        """Add a need; if it is known already, its first reason stays."""
        self.reasons[number].setdefault(needed, reason)

    def spelled(self) -> None:
        """Find needs by text and by names.

        Raises:
            StackError: the repository cannot be read.

        """
        self._by_text()
        self._by_names()

    def drifting(self, tell: Callable[[int], None] = lambda _: None) -> None:
        """Find needs with the drift check; `tell` is called with the number of patches that are done.

        Raises:
            StackError: the repository cannot be read.

        """
        for number in range(len(self._chain)):
            self._by_drift(number)
            tell(number + 1)

    def _by_text(self) -> None:
        changed = [
            {path for path, _, _ in self._objects.difference(*self._chain.alone(number))} for number in range(len(self._chain))
        ]
        for number in range(len(self._chain)):
            for needed in sorted(self._chain.needs(number), reverse=True):
                # A need that another need implies is left out, unless both change the same file.
                common = changed[number] & changed[needed]
                reason = f"stands on its lines in {_some(common)}" if common else "stands on what stands on it"
                if common or needed not in self.closure(self.reasons[number]):
                    self.add(number, needed, reason)

    def _by_names(self) -> None:
        numbers = range(len(self._chain))
        self._names = {number: names(self._objects, *self._chain.alone(number)) for number in numbers}
        # If several patches add a name, the first one adds it, and the others use it.
        first = {name: number for number in reversed(numbers) for name in self._names[number].added}
        common: dict[tuple[int, int], set[str]] = {}
        for number in numbers:
            for name in self._names[number].used:
                if first.get(name, number) != number:
                    common.setdefault((number, first[name]), set()).add(name)
        paths = {path for number in numbers for path, _, _ in self._objects.difference(*self._chain.alone(number))}
        # Within a change, a name that is new to its files ties two parts, even if other files of the tree have it.
        near = absent_from(self._objects, self._chain.base, {name for shared in common.values() for name in shared}, paths)
        apart = [shared for (user, adder), shared in common.items() if self._groups[user] != self._groups[adder]]
        new = absent(self._objects, self._chain.base, near.intersection(name for shared in apart for name in shared))
        for (user, adder), shared in common.items():
            names_shared = shared & (near if self._groups[user] == self._groups[adder] else new)
            if names_shared:
                self.add(user, adder, f"uses {_some(names_shared)}, which it adds")

    def speak_alike(self, first: int, second: int) -> bool:
        """Return whether the lines that two patches add share a name that is not too common."""
        names_of_both = [names.added | names.used for names in (self._names[first], self._names[second])]
        return bool(names_of_both[0] & names_of_both[1] - _EVERYBODYS)

    def _by_drift(self, number: int) -> None:
        mine = self.closure((number,))
        problems = self._problems(number, mine)
        if not problems:
            return
        everything = frozenset(range(len(self._chain)))
        problems = {kind: text for kind, text in problems.items() if kind not in self._problems(number, everything)}
        rest = [other for other in (*reversed(range(number)), *range(number + 1, len(self._chain))) if other not in mine]
        needed = smallest(rest, lambda more: not problems.keys() & self._problems(number, self.closure(mine | more)).keys())
        for other in needed or () if problems else ():
            self.add(number, other, f"without it {next(iter(problems.values()))}")

    def _problems(self, number: int, chosen: frozenset[int]) -> dict[str, str]:
        """Return the drift check's problems in a patch's lines on a tree with the chosen patches only, by their kind."""
        objects, chain = self._objects, self._chain
        tree = chain.tree(chosen)
        if tree is None:
            return {"conflict": "git finds a conflict"}
        lower = self._below(number, chosen)
        paths = [path for path, _, _ in objects.difference(*chain.alone(number))]
        added = added_between(objects, lower, tree, paths)
        drifts = check(objects, tree, added, before=chain.trees[-1], upstream=chain.base, known=self._known, hints=False)
        return {f"{drift.path}: {drift.problem.partition(': ')[0]}": str(drift) for drift in drifts}

    def _below(self, number: int, chosen: Set[int]) -> TreeId:
        """Return the tree without one of the chosen patches if none of the others needs it, else upstream's tree."""
        rest = frozenset(chosen) - {number}
        tree = None if any(number in self._chain.needs(other) for other in rest) else self._chain.tree(rest)
        return tree if tree is not None else self._chain.base


def _some(items: Iterable[str]) -> str:
    ordered: Sequence[str] = sorted(items)
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
