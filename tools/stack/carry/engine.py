# SPDX-License-Identifier: Apache-2.0
"""Carry a chain of patches from one base to another, rung by rung; try every patch and give each its outcome."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from stack.carry import apply, blame, hoisted_calls, judgement, landing, unmerged_remainder
from stack.carry.export import Diffs
from stack.carry.history import Index
from stack.carry.judgement import Fate, Judgement, Part
from stack.carry.ladder import Rung
from stack.carry.landing import LandingCandidates
from stack.carry.merge import APART, Edits, FileMerges, Merged, ahead, edits, merge
from stack.carry.outcome import Carried, Conflict, Landed, Outcome, Step
from stack.carry.presence import Extent, Marked
from stack.carry.rung_index import Way
from stack.model.diff import parse, places
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.patch import files as files_of
from stack.store import git
from stack.store.objects import FILES, Entry, Objects

if TYPE_CHECKING:
    from stack.carry.resolutions import Resolutions

_SIBLINGS = 4
"""Upper bound of the commits that are examined because they have a patch's lines."""

_SQUASHED = 4
"""Upper bound of later patches that are squashed with a patch in conflict."""

_Trees = tuple[TreeId, TreeId, TreeId]
"""The trees before the patch, on the new base, and after the patch."""


@dataclass(frozen=True, slots=True)
class Aids:
    """Optional knowledge for a carry, in addition to the trees.

    `index`: upstream's changes between the bases, for landing and blame. `resolutions`: conflicts that a person has resolved
    before. `pulls`: further pull requests of a patch, by its path below `stacks/`; the patch names others itself. `behaviour`:
    patches, by path, that are not needed from a rung on, since their proofs pass there without them.
    """

    index: Index | None = None
    resolutions: "Resolutions | None" = None
    pulls: Mapping[str, frozenset[int]] = field(default_factory=dict)
    behaviour: Mapping[str, Landed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Carry:
    """The carried patches of one upstream: their commits on the old base, their outcomes and the new patch files.

    `exported` holds the bytes of every patch that is still needed, by the patch's path below `stacks/`.
    """

    base: CommitId
    rungs: tuple[Rung, ...]
    sources: tuple[CommitId, ...]
    rows: tuple[Carried, ...]
    exported: Mapping[str, bytes]

    @property
    def onto(self) -> CommitId:
        """Return the new base."""
        return self.rungs[-1].commit

    @property
    def complete(self) -> bool:
        """Return whether no patch needs a person."""
        return not any(row.needs_person for row in self.rows)

    @property
    def source_tip(self) -> CommitId:
        """Return the last commit on the old base."""
        return self.sources[-1] if self.sources else self.base

    @property
    def tip(self) -> CommitId:
        """Return the last commit on the new base."""
        commits = [row.commit for row in self.rows if row.commit is not None]
        return commits[-1] if commits else self.onto


def carry(
    objects: Objects,
    base: CommitId,
    onto: CommitId,
    patches: Sequence[Patch],
    *,
    name: str = "",
    through: Sequence[Rung] = (),
    resolved: Mapping[str, TreeId] | None = None,
    aids: Aids | None = None,
) -> Carry:
    """Carry `patches`, a chain on `base`, onto `onto`.

    A patch in conflict is left out and the next ones are tried without it.

    Args:
        objects: the repository that has both bases.
        base: where the patches apply.
        onto: where they go.
        patches: the chain.
        name: what the user calls `onto`.
        through: the rungs on the way.
        resolved: by `step_name`, the tree after a patch whose conflict a person has resolved.
        aids: optional knowledge; without it, only a three-way merge decides a patch's outcome.

    Raises:
        DoesNotApply: a patch does not fit `base`.

    """
    rungs = (*through, Rung(name or onto, onto))
    apply.announce(objects, base, rungs[0].commit, patches)
    sources = apply.chain(objects, base, patches)
    climb = _Climb(objects, base, rungs, resolved or {}, aids)
    climb.edits = edits(patches)
    pairs = zip((base, *sources), sources, strict=False)
    links = [
        _Link(patch, pair[1], pair, told=_of_another_base(objects, pair[0], patch))
        for patch, pair in zip(patches, pairs, strict=True)
    ]
    before = {link.patch.ref.path: link.pair[0] for link in links}
    with _Export(objects, before, {link.patch.ref.path for link in links if link.told}) as export:
        for number in range(len(rungs)):
            climb.rung(number, links, export.add if number == len(rungs) - 1 else None)
        exported = export.finish()
    rows = tuple(_placed(link.finished(), exported) for link in links)
    return Carry(base, rungs, sources, rows, exported)


def _of_another_base(objects: Objects, before: CommitId, patch: Patch) -> list[str]:
    """Return a note that names the files of a patch that were changed on another base than `before`."""
    paths = [file.path for file in apply.foreign(objects, objects.tree_of(before), patch)]
    return [f"made on another base: {', '.join(paths)}"] if paths else []


def step_name(path: str, rung: str) -> str:
    """Return a name for a patch at a rung."""
    return f"{path} on {rung}"


class _Export:
    """Exports the carried patches as files; git exports the first ones while the last ones are merged.

    `before` has the commit below each patch on the old base; `foreign` has the patches that were made on another base.
    """

    def __init__(self, objects: Objects, before: Mapping[str, CommitId], foreign: Collection[str]) -> None:
        self._objects = objects
        self._before = before
        self._foreign = foreign
        self._diffs = Diffs(objects)
        self._same: dict[str, bytes] = {}
        self._made: list[tuple[Patch, CommitId]] = []

    def __enter__(self) -> Self:
        self._diffs.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._diffs.__exit__(kind, value, trace)

    def add(self, origin: CommitId, row: Carried) -> None:
        """Add a carried patch; `origin` is its commit on the old base."""
        assert row.commit is not None
        path = row.patch.ref.path
        before = self._before[path]
        same_copies = _same_copies(self._objects, row.patch, before, row.tip)
        if path not in self._foreign and same_copies and _same_change(self._objects, (before, origin), (row.tip, row.commit)):
            self._same[path] = row.patch.raw
        else:
            self._diffs.add(row.commit)
            self._made.append((row.patch, row.commit))

    def finish(self) -> dict[str, bytes]:
        """Return all patch files, by their paths."""
        return self._same | self._diffs.finish(self._made)


@dataclass(slots=True)
class _Link:
    """A patch that is being carried: its commit on the old base, its current commits, and what happened so far."""

    patch: Patch
    origin: CommitId
    pair: tuple[CommitId, CommitId]
    """The commits before and after the patch, at the last rung that it was carried to."""
    row: Carried | None = None
    gone: Landed | None = None
    """Where upstream took the patch in, if it dropped it again."""
    stopped: Carried | None = None
    """Its row at the first rung, other than the last, to which it could not be carried."""
    told: list[str] = field(default_factory=list)
    outcome: Outcome = Outcome.CLEAN
    residue: bytes = b""
    by_hand: bool = False
    landed: Landed | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.row is None or self.row.commit is not None

    def finished(self) -> Carried:
        assert self.row is not None
        steps = tuple(self.steps)
        outcome = self.row.outcome if self.row.outcome is not Outcome.CLEAN else self.outcome
        evidence = tuple(dict.fromkeys((*self.told, *self.row.evidence)))
        if self.gone is not None and self.row.outcome not in (Outcome.LANDED, Outcome.LEFT_OUT):
            return replace(self.row, outcome=Outcome.DROPPED_UPSTREAM, landed=self.gone, evidence=evidence, steps=steps)
        return replace(
            self.row,
            outcome=outcome,
            evidence=evidence,
            residue=self.row.residue or self.residue,
            by_hand=self.by_hand or self.row.by_hand,
            landed=self.row.landed or self.landed,
            steps=steps,
        )


class _Climb:
    """One run of `carry`, with its inputs and the merges that it has made."""

    def __init__(
        self, objects: Objects, base: CommitId, rungs: Sequence[Rung], resolved: Mapping[str, TreeId], aids: Aids | None
    ) -> None:
        self.objects = objects
        self.base = base
        self.rungs = rungs
        self.resolved = resolved
        self.aids = aids
        self.merges: FileMerges = {}
        self.edits: Edits = {}
        self.way = Way(objects, base, rungs, aids.index) if aids is not None and aids.index is not None else None
        self.found: dict[str, LandingCandidates | None] = {}

    def rung(self, number: int, links: Sequence[_Link], written: Callable[[CommitId, Carried], None] | None) -> None:
        """Carry the remaining patches to the next rung; call `written` for each patch that gets a commit there."""
        tip = self.rungs[number].commit
        last = number == len(self.rungs) - 1
        alive = [link for link in links if link.alive]
        trees = [self.objects.tree_of(commit) for link in alive[:1] for commit in link.pair[:1]]
        trees += [self.objects.tree_of(link.pair[1]) for link in alive]
        # Every patch is searched for later on: git merges meanwhile.
        search = partial(self._search_all, alive)
        self.merges |= ahead(self.objects, self.objects.tree_of(tip), trees, self.edits, search)
        rows: list[Carried] = []
        squashed: dict[str, Carried] = {}
        for place, link in enumerate(alive):
            together = squashed.get(link.patch.ref.path)
            if together is not None:
                row = replace(together, patch=link.patch, source=link.pair[1], tip=tip, tree=self.objects.tree_of(tip))
            else:
                row = self._by_behaviour(number, link, self._one(number, link, *link.pair, tip))
            if row.commit is None and row.needs_person:
                squashed |= self._squashed(number, alive[place:], row)
                row = squashed.get(link.patch.ref.path, row)
            if row.outcome is Outcome.CONFLICT:
                row = replace(row, evidence=(*row.evidence, *_follows(row, rows)))
            rows.append(row)
            link.steps.append(Step(self.rungs[number].name, row.outcome, row.needs_person))
            if row.commit is None and not last and not row.by_hand:
                # A release branch may have the patch, or conflict with it, where the new base does not: the last rung decides.
                link.stopped = link.stopped or row
                continue
            if last and link.stopped is not None:
                if row.outcome is Outcome.CLEAN and link.stopped.outcome is Outcome.LANDED and self._passed(link.stopped.rung):
                    link.gone = link.gone or self._brought_at(link.stopped)
                row = _concluded(row, link.stopped, link.gone is not None)
            self._note(number, link, row)
            if row.commit is not None:
                link.pair = (row.tip, row.commit)
                tip = row.commit
                if written is not None:
                    written(link.origin, row)

    def _passed(self, name: str) -> bool:
        """Return whether a rung is an ancestor of the new base; without common history, assume that it is."""
        rung = next(rung for rung in self.rungs if rung.name == name)
        asked = ["merge-base", rung.commit, self.rungs[-1].commit]
        done = git.run(asked, env={"GIT_DIR": str(self.objects.repository)}, accept=(0, 1))
        return done.returncode == 1 or done.stdout.decode("ascii").strip() == rung.commit

    def _brought_at(self, stopped: Carried) -> Landed:
        """Return the landing that a lower rung found, or the rung itself if no commit is known."""
        rung = next(rung for rung in self.rungs if rung.name == stopped.rung)
        return stopped.landed or Landed(rung.commit, rung.name, 1.0, rung.name)

    def _squashed(self, number: int, links: Sequence[_Link], row: Carried) -> dict[str, Carried]:
        """Find patches that upstream squashed, where later patches change the first one's lines again.

        Upstream then has only their last version. Return a row for each of these patches, by its path; empty if there are none.
        """
        first, paths = links[0], set(apply.touched(links[0].patch))
        members = [first]
        before, ours = self.objects.tree_of(first.pair[0]), self.objects.tree_of(row.tip)
        for link in links[1:]:
            if not paths & set(apply.touched(link.patch)):
                continue
            members.append(link)
            if len(members) > _SQUASHED:
                break
            paths |= set(apply.touched(link.patch))
            last = self.objects.tree_of(link.pair[1])
            after = self.objects.replaced(before, {path: self.objects.entry(last, path) for path in paths})
            landing_and_text = self._landed_as_one(number, (before, ours, after))
            if landing_and_text is not None:
                brought, text = landing_and_text
                landed = replace(row, outcome=Outcome.LANDED, landed=brought, conflicts=(), residue=b"", left=None)
                names = [member.patch.ref.path for member in members]
                return {name: replace(landed, evidence=(f"together with {_others(names, name)}: {text}",)) for name in names}
        return {}

    def _landed_as_one(self, number: int, trees: _Trees) -> tuple[Landed | None, str] | None:
        """Find the commits that brought the change of several patches, as (landing, text); None if it has not landed."""
        before, ours, after = trees
        if before == after:
            return None  # The patches undo each other: nothing that upstream could have.
        merged = merge(self.objects, self.merges, *trees)
        is_there = not merged.conflicts and merged.tree == ours
        judged: Judgement | None = None
        if self.aids is not None and self.aids.index is not None and self.way is not None:
            files = parse(unmerged_remainder.difference(self.objects, before, after))
            found = landing.search(self.aids.index, files, objects=self.objects)
            if found is not None and self.way.reached(found, number):
                judged = judgement.judge(self.objects, self.merges, self.aids.index, files, found, trees)
        if judged is not None and self.way is not None and (is_there or judged.landed):
            return self.way.landed(judged.found), self.way.word(judged.found)
        return (None, "nothing left to change") if is_there else None

    def _note(self, number: int, link: _Link, row: Carried) -> None:
        """Keep a lower rung's outcome and evidence; the patch merges cleanly at the rungs above it."""
        if row.outcome not in (Outcome.CLEAN, Outcome.LANDED, Outcome.CONFLICT):
            link.outcome = row.outcome
            link.residue = row.residue or link.residue
            link.landed = row.landed or link.landed
        last = number == len(self.rungs) - 1
        link.told += [text if last else f"{text} (at {self.rungs[number].name})" for text in row.evidence]
        link.by_hand = link.by_hand or row.by_hand
        link.row = replace(row, evidence=())

    def _one(self, number: int, link: _Link, before: CommitId, source: CommitId, tip: CommitId) -> Carried:
        patch, rung = link.patch, self.rungs[number]
        ours = self.objects.tree_of(tip)
        blank = Carried(patch, Outcome.CLEAN, source, tip, None, ours, rung.name)
        by_hand = self.resolved.get(step_name(patch.ref.path, rung.name))
        if by_hand is not None:
            link.gone = None
            return self._by_hand(blank, by_hand)
        trees = self.objects.tree_of(before), ours, self.objects.tree_of(source)
        merged = merge(self.objects, self.merges, *trees)
        if not merged.conflicts and merged.tree == ours:
            return self._empty(blank, number, trees)
        known = self._known(number, link, trees, blank)
        if known is not None:
            return known
        if merged.conflicts:
            return self._conflict(blank, trees, merged)
        return self._carried(blank, merged.tree, (*merged.notes, *self._twice(number, link, trees)))

    def _twice(self, number: int, link: _Link, trees: _Trees) -> Iterator[str]:
        """Yield a hint if upstream added one of the patch's lines elsewhere in the same definition."""
        found = self._search(link.patch)
        if found is None or self.way is None or link.gone is not None or not self.way.reached(found, number):
            return
        for call in hoisted_calls.find(self.objects, *trees):
            yield f"{call.path}:{call.line}, in `{call.definition}`, has a line that it adds: {self.way.word(found)}"
            return

    def _by_behaviour(self, number: int, link: _Link, row: Carried) -> Carried:
        """Return `row` as landed if the patch's proofs pass without it from this rung on, whatever the merge gave."""
        landed = self.aids.behaviour.get(row.patch.ref.path) if self.aids is not None else None
        if landed is None or row.by_hand or landed.rung in [rung.name for rung in self.rungs[number + 1 :]]:
            return row
        link.gone = None
        text = f"landed by behaviour in {landed.rung}: {landed.subject}"
        if row.outcome is Outcome.LANDED:
            return replace(row, evidence=(*row.evidence, text))
        blank = Carried(row.patch, Outcome.LANDED, row.source, row.tip, None, self.objects.tree_of(row.tip), landed.rung)
        return replace(blank, landed=landed, evidence=(text,))

    def _by_hand(self, row: Carried, tree: TreeId) -> Carried:
        """Return the row of a patch whose conflict a person resolved with `tree`."""
        if tree == row.tree:
            return replace(row, outcome=Outcome.LEFT_OUT, evidence=("a person left it out",), by_hand=True)
        return replace(self._carried(row, tree, ("resolved by hand",)), by_hand=True)

    def _known(self, number: int, link: _Link, trees: _Trees, row: Carried) -> Carried | None:
        """Decide from upstream's commits whether a patch landed, wholly or partly, although its merge leaves a diff."""
        judged = self._brought(number, link.patch, trees)
        if judged is None or self.way is None:
            return None
        if judged.landed:
            return self._landed(row, judged)
        if judged.dropped:
            text = f"upstream had it ({self.way.word(judged.found)}) and dropped it again{_by(judged.having(Fate.TAKEN_BACK))}"
            link.gone = self.way.landed(judged.found)
            link.told += [text] if text not in link.told else []
            return None
        return self._partly(row, judged, trees)

    def _carried(self, row: Carried, tree: TreeId, evidence: tuple[str, ...], outcome: Outcome = Outcome.CLEAN) -> Carried:
        commit = apply.commit(self.objects, tree, row.tip, row.patch)
        return replace(row, outcome=outcome, commit=commit, tree=tree, evidence=evidence)

    def _search_all(self, links: Sequence[_Link]) -> None:
        for link in links:
            self._search(link.patch)

    def _search(self, patch: Patch) -> LandingCandidates | None:
        if self.aids is None or self.aids.index is None:
            return None
        path = patch.ref.path
        if path not in self.found:
            pulls = landing.recorded(patch) | self.aids.pulls.get(path, frozenset())
            self.found[path] = landing.search(self.aids.index, files_of(patch), pulls, objects=self.objects)
        return self.found[path]

    def _brought(self, number: int, patch: Patch, trees: _Trees) -> Judgement | None:
        """Find the commits up to a rung that brought a patch, or a part of it, to its place.

        Another change may have the same lines. Then try the next commits that have them.
        """
        if self.aids is None or self.aids.index is None or self.way is None:
            return None
        files = files_of(patch)
        found = self._search(patch)
        other: set[int] = set()
        for _ in range(_SIBLINGS):
            if found is None or not self.way.reached(found, number):
                return None
            judged = judgement.judge(self.objects, self.merges, self.aids.index, files, found, trees)
            if judged is not None:
                return judged
            other |= {step.number for step in found.steps}
            found = landing.search(self.aids.index, files, objects=self.objects, without=other)
        return None

    def _empty(self, row: Carried, number: int, trees: _Trees) -> Carried:
        """Return the row of a patch whose merge leaves no diff: the base has the change by now."""
        row = replace(row, outcome=Outcome.LANDED)
        judged = self._brought(number, row.patch, trees)
        if judged is not None:
            return self._landed(row, judged)
        return replace(row, evidence=("nothing left to change",))

    def _landed(self, row: Carried, judged: Judgement) -> Carried:
        assert self.way is not None
        evidence = [self.way.word(judged.found)]
        if changed := judged.having(Fate.REWORKED):
            evidence.append(f"{_files(changed)} changed again since{_by(changed)}")
        landed = self.way.landed(judged.found)
        return replace(row, outcome=Outcome.LANDED, landed=landed, evidence=("; ".join(evidence),))

    def _partly(self, row: Carried, judged: Judgement, trees: _Trees) -> Carried:
        """Carry the parts of a patch that upstream lacks or took back; a conflict in them needs a person."""
        assert self.way is not None
        before, ours, _ = trees
        kept = judged.having(Fate.LACKING, Fate.BLOCKED, Fate.TAKEN_BACK)
        left = unmerged_remainder.only(self.objects, before, [part.group for part in kept])
        evidence = [self.way.word(judged.found)]
        if missing := judged.having(Fate.LACKING, Fate.BLOCKED):
            evidence.append(f"missing in {_files(missing)}")
        if back := judged.having(Fate.TAKEN_BACK):
            evidence.append(f"upstream dropped its part in {_files(back)} again{_by(back)}: carried on")
        row = replace(
            row,
            outcome=Outcome.PARTLY_LANDED,
            landed=self.way.landed(judged.found),
            left=left,
            residue=unmerged_remainder.difference(self.objects, before, left),
            evidence=tuple(evidence),
        )
        again = merge(self.objects, self.merges, before, ours, left)
        tree = again.tree if not again.conflicts else self._extended(judged, again)
        if tree is None:
            return self._rescued(row, (before, ours, left), again)
        if tree == ours:
            return self._landed(replace(row, residue=b"", left=None), judged)
        return self._carried(row, tree, row.evidence, Outcome.PARTLY_LANDED)

    def _extended(self, judged: Judgement, merged: Merged) -> TreeId | None:
        """Return the merged tree with the missing lines of a group added to those that upstream has.

        Return None if a conflict is about anything else.
        """
        short = {part.group for part in judged.having(Fate.LACKING) if part.now is Extent.SHORT}
        changes: dict[str, Entry | None] = {}
        for path in dict.fromkeys(conflict.path for conflict in merged.conflicts):
            entry = self.objects.entry(merged.tree, path)
            added = {line for group in short if group.path == path for line in group.added}
            marked = Marked.read(self.objects.read(entry.id)) if entry is not None and entry.mode in FILES else None
            if entry is None or marked is None or not marked.extends(added):
                return None
            changes[path] = Entry(entry.mode, self.objects.write_blob(marked.theirs))
        return self.objects.replaced(merged.tree, changes)

    def _conflict(self, row: Carried, trees: _Trees, merged: Merged) -> Carried:
        return self._rescued(replace(row, outcome=Outcome.CONFLICT), trees, merged)

    def _rescued(self, row: Carried, trees: _Trees, merged: Merged) -> Carried:
        """Resolve the conflict of a patch or its remainder automatically, or else return it with the commits to blame."""
        evidence = row.evidence
        if self.aids is not None and all(conflict.reason != APART for conflict in merged.conflicts):
            from stack.carry.auto_resolve import rescue  # noqa: PLC0415  (a twentieth of a second that only a conflict needs)

            rescued = rescue(self.objects, self.aids.resolutions, *trees, merged)
            evidence = (*row.evidence, *rescued.evidence)
            if rescued.tree is not None and rescued.tree != trees[1]:
                outcome = row.outcome if row.outcome is Outcome.PARTLY_LANDED else rescued.outcome
                return self._carried(row, rescued.tree, evidence, outcome)
        return replace(row, conflicts=self._blamed(row, trees, merged), evidence=evidence)

    def _blamed(self, row: Carried, trees: _Trees, merged: Merged) -> tuple[Conflict, ...]:
        if self.aids is None:
            return merged.conflicts
        number = [rung.name for rung in self.rungs].index(row.rung)
        unpatched = self.objects.tree_of(self.rungs[number - 1].commit if number else self.base)
        rung = self.rungs[number]
        return blame.conflicts(self.objects, self.merges, self.aids.index, rung, unpatched, trees, merged.conflicts)


def _concluded(row: Carried, stopped: Carried, gone: bool) -> Carried:
    """Return the row of a patch that stopped at a lower rung, with the outcome and evidence of the rung that explains it best."""
    had = stopped.outcome is Outcome.LANDED
    if row.commit is not None:
        text = f"{stopped.rung} had it, and upstream dropped it again" if had else f"was in conflict at {stopped.rung}"
        return replace(row, evidence=row.evidence if gone and not had else (text, *row.evidence))
    if row.outcome is Outcome.LANDED:
        if not had:
            return row
        # Only the new base's evidence names what upstream changed after the rung.
        evidence = row.evidence if row.landed is not None and row.landed == stopped.landed else stopped.evidence
        return replace(row, rung=stopped.rung, evidence=evidence)
    if had and (gone or row.outcome is Outcome.PARTLY_LANDED):
        return row
    if had:
        return replace(stopped, tree=row.tree, tip=row.tip, evidence=(*stopped.evidence, "changed again since"))
    return replace(stopped, evidence=(f"since {stopped.rung}", *stopped.evidence))


def _same_change(objects: Objects, was: tuple[CommitId, CommitId], now: tuple[CommitId, CommitId]) -> bool:
    """Return whether a patch replaces the same blobs by the same blobs as before; then its file is the same byte for byte."""
    changes = [list(objects.difference(objects.tree_of(old), objects.tree_of(new))) for old, new in (was, now)]
    return changes[0] == changes[1]


def _same_copies(objects: Objects, patch: Patch, was: CommitId, now: CommitId) -> bool:
    """Return whether the files that the patch copies are the same on both bases.

    The diff of a copy names only the differences from the copied file.
    """
    trees = objects.tree_of(was), objects.tree_of(now)
    copied = [file.old for file in files_of(patch) if file.copied and file.old is not None]
    return all(objects.entry(trees[0], path) == objects.entry(trees[1], path) for path in copied)


def _follows(row: Carried, earlier: Sequence[Carried]) -> tuple[str, ...]:
    """Name the first earlier conflict in the same file, if any; it may be the cause of this one."""
    paths = {conflict.path for conflict in row.conflicts}
    for other in earlier:
        if other.outcome is Outcome.CONFLICT and paths & set(apply.touched(other.patch)):
            return (f"may only follow from {other.patch.ref.path}",)
    return ()


def _placed(row: Carried, exported: Mapping[str, bytes]) -> Carried:
    """Return a clean row as `moved` if the exported patch applies at other lines or in other files."""
    data = exported.get(row.patch.ref.path)
    if data is None or data == row.patch.raw:
        return row
    was, now = places(row.patch.diff), places(row.patch.diff_of(data))
    if was == now:
        return row
    outcome = Outcome.MOVED if row.outcome is Outcome.CLEAN else row.outcome
    return replace(row, outcome=outcome, evidence=(*row.evidence, f"now {_shift(was, now)}"))


def _others(names: Sequence[str], name: str) -> str:
    return ", ".join(other for other in names if other != name)


def _files(parts: Sequence[Part]) -> str:
    """Return the files that the parts change, as text for people."""
    return ", ".join(sorted({part.group.path for part in parts}))


def _by(parts: Sequence[Part]) -> str:
    """Return the steps that changed the parts again, as the end of a sentence; empty if no step is known."""
    steps = sorted({part.by for part in parts if part.by is not None})
    return f" with {' and '.join(f'{step.commit[:12]} {step.subject}' for step in steps)}" if steps else ""


def _shift(was: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]]) -> str:
    """Return where a patch applies now: the first file or hunk that moved, and the number of further ones."""
    if [bool(line) for _, line in was] != [bool(line) for _, line in now]:
        return "in other hunks"
    pairs = [(old, new) for old, new in zip(was, now, strict=True) if old != new]
    files = [f"in {_file(new[0])}, was {_file(old[0])}" for old, new in pairs if old[0] != new[0] and not new[1]]
    hunks = [f"at {_file(new[0])}:{new[1]}, was {old[1]}" for old, new in pairs if old[0] == new[0]]
    moves = files or hunks
    return moves[0] + (f" and {len(moves) - 1} more" if len(moves) > 1 else "")


def _file(name_line: str) -> str:
    """Return the new path in `a/old b/new`; for display only, since a path may contain ` b/`."""
    return name_line.rpartition(" b/")[2] or name_line
