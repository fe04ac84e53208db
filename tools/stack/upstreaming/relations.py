# SPDX-License-Identifier: Apache-2.0
"""What each patch of a chain needs of the others, and why: by its text, by names, and by what the drift check misses without them."""

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
"""So many names or files are told as a reason."""
_EVERYBODYS = frozenset(
    (*dir(builtins), "self", "torch", "logger", "info", "value", "values", "items", "append", "name", "type")
)
"""Names that say nothing of what a change is about."""


class Relations:
    """What patches of a chain need directly, by number, with the reasons; it grows with each thing that is looked at."""

    def __init__(self, objects: Objects, chain: Chain, groups: Sequence[Hashable] = ()) -> None:
        """`groups`: for each patch what it is a part of; without, each is by itself."""
        self._objects = objects
        self._chain = chain
        self._groups = groups or range(len(chain))
        self._known = Known()
        self._names: dict[int, Names] = {}
        self.reasons: dict[int, dict[int, str]] = {number: {} for number in range(len(chain))}

    @property
    def needs(self) -> dict[int, frozenset[int]]:
        """What each patch needs directly."""
        return {number: frozenset(found) for number, found in self.reasons.items()}

    def closure(self, chosen: Iterable[int]) -> frozenset[int]:
        """Some patches with all that they need."""
        reach, chosen = graph.closed(self.needs), frozenset(chosen)
        return chosen.union(*(reach[number] for number in chosen))

    def add(self, number: int, needed: int, reason: str) -> None:
        """One more need; the first reason stays."""
        self.reasons[number].setdefault(needed, reason)

    def spelled(self) -> None:
        """Look at text and names.

        Raises:
            StackError: the repository cannot be read.

        """
        self._by_text()
        self._by_names()

    def drifting(self, tell: Callable[[int], None] = lambda _: None) -> None:
        """Look at what the drift check misses; `tell` is told how many patches are done.

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
                # What that one stands on comes along, unless this one touches it, too.
                common = changed[number] & changed[needed]
                told = f"stands on its lines in {_some(common)}" if common else "stands on what stands on it"
                if common or needed not in self.closure(self.reasons[number]):
                    self.add(number, needed, told)

    def _by_names(self) -> None:
        numbers = range(len(self._chain))
        self._names = {number: names(self._objects, *self._chain.alone(number)) for number in numbers}
        # Of several that add the same name, the first one has added it, and the others use it.
        first = {name: number for number in reversed(numbers) for name in self._names[number].added}
        common: dict[tuple[int, int], set[str]] = {}
        for number in numbers:
            for name in self._names[number].used:
                if first.get(name, number) != number:
                    common.setdefault((number, first[name]), set()).add(name)
        paths = {path for number in numbers for path, _, _ in self._objects.difference(*self._chain.alone(number))}
        # Parts of one change are about the same: a name that is new to their files ties them, wherever else the tree has it.
        near = absent_from(self._objects, self._chain.base, {name for shared in common.values() for name in shared}, paths)
        apart = [shared for (one, other), shared in common.items() if self._groups[one] != self._groups[other]]
        new = absent(self._objects, self._chain.base, near.intersection(name for shared in apart for name in shared))
        for (one, other), shared in common.items():
            found = shared & (near if self._groups[one] == self._groups[other] else new)
            if found:
                self.add(one, other, f"uses {_some(found)}, which it adds")

    def speak_alike(self, one: int, other: int) -> bool:
        """Whether the lines that two patches add have a name in common that is not everybody's."""
        said = [names.added | names.used for names in (self._names[one], self._names[other])]
        return bool(said[0] & said[1] - _EVERYBODYS)

    def _by_drift(self, number: int) -> None:
        mine = self.closure((number,))
        problems = self._problems(number, mine)
        if not problems:
            return
        everything = frozenset(range(len(self._chain)))
        problems = {kind: said for kind, said in problems.items() if kind not in self._problems(number, everything)}
        rest = [other for other in (*reversed(range(number)), *range(number + 1, len(self._chain))) if other not in mine]
        needed = smallest(rest, lambda more: not problems.keys() & self._problems(number, self.closure(mine | more)).keys())
        for other in needed or () if problems else ():
            self.add(number, other, f"without it {next(iter(problems.values()))}")

    def _problems(self, number: int, chosen: frozenset[int]) -> dict[str, str]:
        """What is wrong in the lines of a patch where only some patches are, by its kind."""
        objects, chain = self._objects, self._chain
        tree = chain.tree(chosen)
        if tree is None:
            return {"conflict": "git sees a conflict"}
        lower = self._below(number, chosen)
        paths = [path for path, _, _ in objects.difference(*chain.alone(number))]
        added = added_between(objects, lower, tree, paths)
        found = check(objects, tree, added, before=chain.trees[-1], upstream=chain.base, known=self._known, hints=False)
        return {f"{drift.path}: {drift.problem.partition(': ')[0]}": str(drift) for drift in found}

    def _below(self, number: int, chosen: Set[int]) -> TreeId:
        """The tree with the same patches but one, where none of them stands on it; else the bare one."""
        rest = frozenset(chosen) - {number}
        tree = None if any(number in self._chain.needs(other) for other in rest) else self._chain.tree(rest)
        return tree if tree is not None else self._chain.base


def _some(found: Iterable[str]) -> str:
    ordered: Sequence[str] = sorted(found)
    more = len(ordered) - _SHOWN
    return ", ".join(ordered[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
