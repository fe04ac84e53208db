# SPDX-License-Identifier: Apache-2.0
"""Judge the guards of a stack: at its pins, and at the releases to which a rebase moves them."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from stack.carry import upstream_stores
from stack.carry.guards import causes
from stack.carry.guards.elsewhere import Elsewhere
from stack.carry.guards.judgement import Cause, Guarded, Judgement, State
from stack.carry.guards.judging import Earlier, Text, judge, text_of
from stack.carry.guards.own import Own
from stack.carry.guards.view import Cache, View
from stack.carry.upstream_stores import Stores
from stack.model.guards import Guard, Kind
from stack.model.ids import CommitId
from stack.store.objects import MissingError, Objects
from stack.store.sources import SourceTree


@dataclass(frozen=True, slots=True)
class Point:
    """A revision of an upstream: its name, the commit in the store, the commit with upstream's history, and the pinned id."""

    name: str
    commit: CommitId
    history: CommitId
    named: str


class Judge:
    """Judges guards of one upstream: `here` is the revision, `before` an earlier one at which they may have held."""

    def __init__(self, objects: Objects, here: Point, own: Own, before: Point | None = None) -> None:
        self.objects = objects
        self.here = here
        self.own = own
        self.before = before
        self.cache = Cache()
        self._searches: dict[CommitId | None, Elsewhere] = {}

    def judged(self, guard: Guard) -> Guarded:
        """Judge a guard, and find what caused the change.

        Raises:
            StackError: the repository cannot be read.

        """
        if guard.file and (fault := self.own.fault(guard.file)):
            return Guarded(guard, Judgement(State.BROKEN, guard.path, None, fault), self.here.name)
        here = judge(guard, self._view(self.here.commit), self._earlier(guard))
        if here.state is State.HELD:
            return Guarded(guard, here, self.here.name)
        found = self._elsewhere(guard).judged(guard, here, self._earlier(guard))
        return Guarded(guard, found, self.here.name, self._cause(guard, found))

    def _elsewhere(self, guard: Guard) -> Elsewhere:
        """Return the search in this tree for what an earlier one had."""
        start = next(iter([*([self.before.commit] if self.before is not None else []), *self._at(guard)]), None)
        if start not in self._searches:
            before = self.objects.tree_of(start) if start is not None else None
            here = self.objects.tree_of(self.here.commit)
            self._searches[start] = Elsewhere(self.objects, here, before, self.cache)
        return self._searches[start]

    def _view(self, commit: CommitId) -> View:
        return View(self.objects, self.objects.tree_of(commit), self.cache)

    def _earlier(self, guard: Guard) -> Earlier:
        """Return a function that returns the copied text: from the store by its id, or from the trees where it was copied."""

        def earlier() -> bytes | None:
            with contextlib.suppress(MissingError):
                return self.objects.read(guard.hash)
            for commit in (*([self.before.commit] if self.before is not None else []), *self._at(guard)):
                text = text_of(guard, self._view(commit))
                if isinstance(text, Text):
                    return text.data
            return None

        return earlier

    def _at(self, guard: Guard) -> Sequence[CommitId]:
        return [causes.full_id(self.objects, guard.at)] if guard.at and causes.is_known(self.objects, guard.at) else []

    def _cause(self, guard: Guard, found: Judgement) -> Cause | None:
        """Return the first commit after the last known good one; without history, the release."""
        starts = [*([self.before.history] if self.before is not None else []), *self._at(guard)]
        changed, end = self._changed(guard, found), self.here.history
        for start in starts:
            if start != end and not changed(start):
                looked = self._looked(guard, start) | self._looked(guard, end) | {guard.path, found.path}
                cause = causes.find(self.objects, start, end, looked, changed)
                if cause is not None:
                    return cause
        return self._release(guard, changed, known=bool(starts))

    def _release(self, guard: Guard, changed: Callable[[CommitId], bool], *, known: bool) -> Cause | None:
        """Return the release as the cause, if the target was as it should be at an earlier one."""
        if self.before is not None:
            held = not changed(self.before.commit)
        else:
            named = self.here.named
            held = bool(guard.at) and not known and not (named.startswith(guard.at) or guard.at.startswith(named))
        return Cause(self.here.commit, self.here.name, release=True) if held else None

    def _looked(self, guard: Guard, commit: CommitId) -> frozenset[str]:
        view = self._view(commit)
        judge(guard, view, shares=False)
        return view.looked

    def _changed(self, guard: Guard, found: Judgement) -> Callable[[CommitId], bool]:
        """Return a function that tells whether the target differs at a commit, also at the place to which it moved before."""
        known: dict[CommitId, bool] = {}
        fine = (State.HELD,) if found.state is State.MOVED else (State.HELD, State.MOVED)
        places = [guard]
        if found.state is State.BROKEN and guard.kind is not Kind.PATCHED and found.path != guard.path:
            places.append(_at_path(guard, found.path))

        def changed(commit: CommitId) -> bool:
            if commit not in known:
                judged = (judge(each, self._view(commit), shares=False) for each in places)
                known[commit] = not any(each.state in fine for each in judged)
            return known[commit]

        return changed


def _at_path(guard: Guard, path: str) -> Guard:
    return replace(guard, target=f"{path}::{guard.member}" if guard.member else path)


def at_pins(stores: Stores, names: Sequence[str] = ()) -> tuple[Guarded, ...]:
    """Judge the guards of a stack at its pins, all of them or those that are named.

    Raises:
        StackError: a pinned source cannot be obtained.

    """
    wanted = [guard for guard in stores.stack.guards if not names or guard.name in names]
    own, found = Own(stores.stack.root), dict[str, Guarded]()
    for upstream in dict.fromkeys(guard.upstream for guard in wanted):
        stores.tell(f"judging guards of {upstream}")
        judging = Judge(stores.objects(upstream), pinned(stores, upstream), own)
        found |= {guard.name: judging.judged(guard) for guard in wanted if guard.upstream == upstream}
    return tuple(found[guard.name] for guard in wanted)


def pinned(stores: Stores, upstream: str) -> Point:
    """Return the pinned revision of an upstream, without patches.

    Raises:
        StackError: its source cannot be obtained.

    """
    within = stores.stack.pins.get(upstream).within
    return inside(stores, upstream, stores.obtain(within.upstream if within is not None else upstream))


def inside(stores: Stores, upstream: str, tree: SourceTree) -> Point:
    """Return an upstream's revision in a tree, which is its own or that of the upstream in which it is vendored.

    Raises:
        StackError: the holder has no such folder.

    """
    pin = stores.stack.pins.get(upstream)
    if pin.within is None:
        return Point(tree.tag, tree.commit, upstream_stores.past(tree), tree.names_commit or tree.tag)
    commit = upstream_stores.vendored_base(stores.objects(upstream), pin, tree.commit)
    return Point(f"{pin.within.upstream} {tree.tag}", commit, commit, pin.commit)


def onto(stores: Stores, upstream: str, target: SourceTree) -> tuple[Guarded, ...]:
    """Judge the guards of an upstream, and of those vendored in it, at the tree to which it moves.

    Raises:
        StackError: the repository cannot be read.

    """
    stack = stores.stack
    names = [upstream, *(pin.upstream for pin in stack.pins.vendored_in(upstream))]
    wanted = [guard for guard in stack.guards if guard.upstream in names]
    found: list[Guarded] = []
    for name in dict.fromkeys(guard.upstream for guard in wanted):
        stores.tell(f"judging guards of {name}")
        here = inside(stores, name, target)
        judging = Judge(stores.objects(name), here, Own(stack.root), pinned(stores, name))
        found += (judging.judged(guard) for guard in wanted if guard.upstream == name)
    return tuple(found)


def renewed(guarded: Iterable[Guarded], commit: str) -> dict[str, Guard | None]:
    """Return the guards that still hold, as they are at a commit; the others stay as they are in the file."""
    kept = [each for each in guarded if not each.needs_person and each.judgement.renewed is not None]
    return {each.guard.name: replace(each.judgement.renewed, at=commit) for each in kept if each.judgement.renewed is not None}
