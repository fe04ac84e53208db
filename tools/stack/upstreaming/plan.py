# SPDX-License-Identifier: Apache-2.0
"""Plan pull requests: find patches that apply to upstream's tree alone, patches that wait for others, and patches to leave out."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from stack.base.did_you_mean import unknown_name
from stack.base.errors import StackError
from stack.carry import apply
from stack.carry.export import export
from stack.carry.outcome import Carried, Outcome
from stack.carry.rebase import Leg, Request, released, vendored
from stack.carry.upstream_stores import Stores
from stack.model import lane_marks
from stack.model import patch as patches
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.series import PatchRef, State
from stack.proof import series_proofs
from stack.proof.runner import Runner
from stack.proof.series_proofs import Result
from stack.store import git
from stack.store.sources import SourceTree
from stack.upstreaming import graph, splitting
from stack.upstreaming.chain import Chain
from stack.upstreaming.minimize import smallest
from stack.upstreaming.proposal import Aside, Part, Proposal, UpstreamPlan
from stack.upstreaming.relations import Relations
from stack.upstreaming.splitting import By, Cut
from stack.upstreaming.trials import Trials, torch_tree

_DONE = {
    State.MERGED: "its series is merged",
    State.DECLINED: "its series was declined",
    State.INAPPROPRIATE: "its series is not for upstream",
}
"""States whose series are not proposed unless the user names them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's selection: series and upstreams, all if empty.

    `onto` maps an upstream to the base of its pull requests: a tag or, with the git source, a branch or commit. The default is
    the newest. `split` maps patches to cut, by their path below `stacks/`, to the way of cutting. `tests` says whether to run
    the tests that prove a patch; `python` replaces the cached environments for them.
    """

    series: tuple[str, ...] = ()
    upstreams: tuple[str, ...] = ()
    onto: Mapping[str, str] = field(default_factory=dict)
    split: Mapping[str, By] = field(default_factory=dict)
    tests: bool = True
    python: Path | None = None


def plans(stores: Stores, wanted: Wanted) -> tuple[UpstreamPlan, ...]:
    """Plan the pull requests of each upstream, without changing the stack.

    Raises:
        StackError: a series, upstream, release or patch to split is unknown; a target is older than the pin; nothing is to plan.

    """
    chosen = _chosen(stores, wanted)
    plans_made: list[UpstreamPlan] = []
    for pin in stores.stack.pins:
        inner = [one.upstream for one in stores.stack.pins.vendored_in(pin.upstream)]
        names = [name for name in (pin.upstream, *inner) if name in chosen]
        if pin.within is None and names:
            target = _target(stores, pin.upstream, wanted.onto.get(pin.upstream))
            legs = _legs(stores, target, names, wanted)
            plans_made += [
                _Planning(stores, wanted, leg, target).plan(chosen[leg.upstream]) for leg in legs if leg.upstream in names
            ]
    return tuple(plans_made)


def _chosen(stores: Stores, wanted: Wanted) -> dict[str, frozenset[PatchRef]]:
    """Return the selected patches by upstream."""
    stack = stores.stack
    series = [stack.get(name) for name in wanted.series] or list(stack.series)
    for name in (*wanted.upstreams, *wanted.onto):
        stack.pins.get(name)
    refs = [ref for one_series in series for ref in one_series.patches]
    for name in wanted.upstreams:
        if not any(ref.upstream == name for ref in refs):
            raise StackError(f"{_and(wanted.series) or 'the stack'} has no patch of {name}", "name a series that has one")
    chosen = [ref for ref in refs if not wanted.upstreams or ref.upstream in wanted.upstreams]
    if not chosen:
        raise StackError(f"{_and(wanted.series) or 'the stack'} has no patch", "name a series that has one")
    unknown = [path for path in wanted.split if path not in {ref.path for ref in chosen}]
    if unknown:
        raise unknown_name("patch", unknown[0], (ref.path for ref in chosen), holder="the plan", lister="stack export-pr")
    by_upstream: dict[str, set[PatchRef]] = {}
    for ref in chosen:
        by_upstream.setdefault(ref.upstream, set()).add(ref)
    idle = [
        name
        for name in wanted.onto
        if name not in by_upstream and not any(stack.pins.get(upstream).within for upstream in by_upstream)
    ]
    if idle:
        raise StackError(f"--onto names {idle[0]}, but none of its patches is planned", f"planned: {', '.join(by_upstream)}")
    return {name: frozenset(refs_of) for name, refs_of in by_upstream.items()}


def _target(stores: Stores, upstream: str, revision: str | None) -> SourceTree:
    """Obtain the tree that the pull requests are based on.

    Raises:
        StackError: the tree cannot be obtained, or is older than the pin, so that it lacks what the stack builds on.

    """
    pin = stores.stack.pins.get(upstream)
    stores.tell(f"looking for {revision or 'the newest'} of {upstream}")
    tag = stores.newest(upstream) if revision is None else stores.resolve(upstream, revision)
    target = stores.obtain(upstream, tag)
    if _is_older(stores, target):
        raise StackError(
            f"{upstream} {target.tag} is older than the pin {pin.tag or pin.commit[:12]}", "name a later one with --onto"
        )
    return target


def _is_older(stores: Stores, target: SourceTree) -> bool:
    pin = stores.stack.pins.get(target.upstream)
    if target.source == "git":
        target_commit = _own(target)
        pinned = _own(stores.obtain(target.upstream))
        env = {"GIT_DIR": str(stores.objects(target.upstream).repository)}
        done = git.run(["merge-base", "--is-ancestor", target_commit, pinned], env=env, accept=(0, 1))
        return done.returncode == 0 and target_commit != pinned
    then, now = pin.releases.version(target.tag), pin.releases.version(pin.revision)
    return then is not None and now is not None and then < now


def _own(tree: SourceTree) -> CommitId:
    """Return the upstream's own commit of a tree, without grafted submodules; without the git source, the tree's commit itself."""
    return CommitId(tree.names_commit) if tree.source == "git" and tree.names_commit is not None else tree.commit


def _legs(stores: Stores, target: SourceTree, names: Sequence[str], wanted: Wanted) -> tuple[Leg, ...]:
    """Carry the patches of an upstream and of its vendored upstreams onto a target, using the results of their proofs there."""
    request = Request(target.upstream, target.tag)
    leg = released(stores, target.upstream, target, request)
    if wanted.tests and leg.moves and leg.carry.rows and series_proofs.provable(stores):
        proofs = series_proofs.ProofRequest(series_proofs.provable(stores), {target.upstream: (target.tag,)}, wanted.python)
        with Runner(stores) as runner:
            results = list(series_proofs.behaviour(runner, proofs, stores.tell))
        landed = series_proofs.landings(results, {target.upstream: {target.tag: target.commit}})
        request = replace(request, behaviour=landed)
        leg = released(stores, target.upstream, target, request) if landed else leg
    inner = [pin for pin in stores.stack.pins.vendored_in(target.upstream) if pin.upstream in names]
    return (leg, *(vendored(stores, pin, leg, target, request) for pin in inner))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A carried patch, or a part of one, which `cut` names."""

    row: Carried
    tree: TreeId
    cut: str = ""
    aside: bool = False

    @property
    def ref(self) -> PatchRef:
        return self.row.patch.ref

    @property
    def name(self) -> str:
        return f"{self.ref.path.removesuffix('.patch')}{f' ({self.cut})' if self.cut else ''}"


class _Planning:
    """The planning of one upstream."""

    def __init__(self, stores: Stores, wanted: Wanted, leg: Leg, target: SourceTree) -> None:
        self._stores = stores
        self._wanted = wanted
        self._leg = leg
        self._target = target
        self._objects = stores.objects(leg.upstream)
        self._pieces = tuple(self._cut(leg.carry.rows))
        self._chain = Chain(self._objects, self._objects.tree_of(leg.carry.onto), [piece.tree for piece in self._pieces])
        self._relations = Relations(self._objects, self._chain, [piece.ref for piece in self._pieces])

    def plan(self, chosen: frozenset[PatchRef]) -> UpstreamPlan:
        """Plan the pull requests for the chosen patches and for those that they need."""
        self._tell("looking for what needs what", 0)
        self._relations.spelled()
        self._relations.drifting(lambda done: self._tell("looking for what needs what", done))
        self._tie(self._relations, self._pieces)
        blocked = self._blocked()
        requested = [number for number, piece in enumerate(self._pieces) if piece.ref in chosen and number not in blocked]
        results: dict[int, Result] = {}
        if self._wanted.tests and requested:
            torch = torch_tree(self._stores, self._target)
            with Trials(self._stores, self._leg.upstream, torch, self._wanted.python, self._stores.tell) as trials:
                self._prove(requested, trials)
                proposed = self._relations.closure(requested)
                results = {
                    number: trials.result(self._pieces[number].ref, self._tree((number,)))
                    for number in sorted(proposed)
                    if trials.proves(self._pieces[number].ref)
                }
        blocked = self._blocked()
        proposed = self._relations.closure(number for number in requested if number not in blocked)
        rows = [row for row in self._leg.carry.rows if row.patch.ref in chosen]
        base, real = self._base()
        return UpstreamPlan(
            self._leg.upstream,
            base,
            self._target.tag,
            self._proposals(proposed, results, base, real),
            landed=tuple(row for row in rows if row.outcome is Outcome.LANDED),
            stuck=tuple(row for row in rows if row.needs_person),
            aside=tuple(
                Aside(self._pieces[number].ref, why) for number, why in blocked.items() if self._is_listed(number, chosen)
            ),
            real=real,
        )

    def _tell(self, step: str, done: int) -> None:
        self._stores.tell(f"{self._leg.upstream}: {step}", done, len(self._pieces))

    def _cut(self, rows: Iterable[Carried]) -> Iterator[_Piece]:
        """Yield a piece for each carried patch, or one for each part if the user wants the patch cut."""
        before = self._objects.tree_of(self._leg.carry.onto)
        for row in rows:
            if row.commit is None:
                continue
            by = self._wanted.split.get(row.patch.ref.path)
            cuts = splitting.cut(self._objects, before, row.tree, by) if by is not None else ()
            if len(cuts) > 1:
                yield from (_Piece(row, part.tree, part.name, part.aside) for part in cuts)
            else:
                yield _Piece(row, row.tree)
            before = row.tree

    @staticmethod
    def _tie(relations: Relations, pieces: Sequence[_Piece]) -> None:
        """Tie tests and documentation to the code that they are about: the last part of their patch that they need, else its first."""
        for number, piece in enumerate(pieces):
            own = [other for other, part in enumerate(pieces) if part.cut and part.ref == piece.ref and not part.aside]
            if piece.aside and own:
                with_ = max((other for other in own if other in relations.needs[number]), default=own[0])
                relations.add(number, with_, "is about it")
                relations.add(with_, number, "has its tests or documentation there")

    def _blocked(self) -> dict[int, str]:
        """Return the patches that are not proposed, with the reasons, including those that need such a patch."""
        states = {series.name: series.state for series in self._stores.stack.series}
        first = {
            number: "it needs a person" if piece.row.needs_person else _DONE[states[piece.ref.series]]
            for number, piece in enumerate(self._pieces)
            if piece.row.needs_person or (states[piece.ref.series] in _DONE and piece.ref.series not in self._wanted.series)
        }
        reasons = dict(first)
        for number in range(len(self._pieces)):
            by = next((other for other in sorted(self._relations.closure((number,))) if other in first), None)
            if number not in first and by is not None:
                reasons[number] = f"it needs {self._pieces[by].name}, and {first[by]}"
        return reasons

    def _is_listed(self, number: int, chosen: frozenset[PatchRef]) -> bool:
        piece = self._pieces[number]
        return piece.ref in chosen and not piece.row.needs_person

    def _tree(self, numbers: Iterable[int]) -> TreeId:
        """Return upstream's tree with some patches and all that they need.

        Raises:
            StackError: git finds a conflict between them.

        """
        tree = self._chain.tree(self._relations.closure(numbers))
        if tree is None:
            raise self._conflict(min(numbers))
        return tree

    def _conflict(self, number: int) -> StackError:
        """Describe a conflict between patches that commute in pairs but not without the rest of the stack."""
        name = self._pieces[number].name
        return StackError(
            f"{name} is in conflict with what it needs where the rest of the stack is left out", "put them into one patch"
        )

    def _prove(self, requested: Sequence[int], trials: Trials) -> None:
        """Run each patch's tests with the patches that it needs, and search for missing needs.

        The search runs if the tests fail with the known needs; they pass with all patches.
        """
        passes = series_proofs.ProofState.PASSES
        for done, number in enumerate(requested):
            piece = self._pieces[number]
            self._tell(f"testing {piece.name}", done)
            if piece.cut or not trials.proves(piece.ref):
                continue
            mine = self._relations.closure((number,))
            alone = trials.result(piece.ref, self._tree(mine))
            if alone.state is not series_proofs.ProofState.FAILS:
                continue
            rest = [other for other in range(len(self._pieces)) if other not in mine]
            needed = smallest(
                rest,
                lambda more, mine=mine, ref=piece.ref: trials.result(ref, self._tree(mine | more)).state is passes,  # type: ignore[misc]
            )
            for other in needed or ():
                self._relations.add(number, other, f"without it {alone.reason}")

    def _base(self) -> tuple[CommitId, bool]:
        """Return the base commit of the branches, and whether it is a commit of upstream's history.

        Of a vendored upstream the store has only the tree, so its patches can be planned and written but not pushed.
        """
        own = self._target.source == "git" and self._stores.stack.pins.get(self._leg.upstream).within is None
        return (_own(self._target), True) if own else (self._leg.carry.onto, False)

    def _proposals(
        self, numbers: frozenset[int], results: Mapping[int, Result], base: CommitId, real: bool
    ) -> tuple[Proposal, ...]:
        needs = {number: self._relations.needs[number] for number in sorted(numbers)}
        knots = graph.knots(needs)
        names = self._names(knots)
        owner = {number: knot for knot in knots for number in knot}
        between = {knot: {owner[other] for number in knot for other in needs[number]} - {knot} for knot in knots}
        waves = graph.waves(between)
        proposals = []
        for knot in knots:
            direct = graph.reduced(between)[knot]
            ordered = sorted(direct)
            proposals.append(
                Proposal(
                    upstream=self._leg.upstream,
                    series=self._pieces[knot[0]].ref.series,
                    slug=names[knot],
                    base=base,
                    onto=self._target.tag,
                    real=real,
                    parts=self._parts(knot),
                    wave=waves[knot],
                    needs=tuple(self._name(other, names) for other in ordered),
                    why=tuple(self._why(knot, other) for other in ordered),
                    proof=series_proofs.worst([results[number] for number in knot if number in results]),
                    apart=self._apart(knot[0]) if len(knot) == 1 and not self._pieces[knot[0]].cut else (),
                    lane=self._stores.stack.lane,
                )
            )
        return tuple(sorted(proposals, key=lambda proposal: proposal.wave))

    def _name(self, knot: tuple[int, ...], names: Mapping[tuple[int, ...], str]) -> str:
        name = f"{self._leg.upstream}/{self._pieces[knot[0]].ref.series}-{names[knot]}"
        return lane_marks.named(name, self._stores.stack.lane)

    def _names(self, knots: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], str]:
        """Give each pull request a unique name: the patch's own, with the name of the part if it was cut."""
        names: dict[tuple[int, ...], str] = {}
        taken: set[str] = set()
        for knot in knots:
            first = self._pieces[knot[0]]
            whole = PurePosixPath(first.ref.file).stem
            place, _, within = first.cut.partition(":")
            bare = "-".join(filter(None, (whole, _slug(PurePosixPath(place).stem), _slug(within)))) if first.cut else whole
            name, count = bare, 1
            while f"{first.ref.series}-{name}" in taken:
                count += 1
                name = f"{bare}-{count}"
            taken.add(f"{first.ref.series}-{name}")
            names[knot] = name
        return names

    def _why(self, knot: tuple[int, ...], other: tuple[int, ...]) -> str:
        reasons = [self._relations.reasons[number].get(needed, "") for number in knot for needed in other]
        return "; ".join(dict.fromkeys(filter(None, reasons)))

    def _parts(self, knot: tuple[int, ...]) -> tuple[Part, ...]:
        """Export the commits of a pull request as they are on upstream's tree with the patches below them."""
        below = sorted(self._relations.closure(knot) - {*knot})
        onto = [self._chain.tree(frozenset(below[:count])) for count in range(1, len(below) + 1)]
        own = [self._chain.tree(frozenset((*below, *knot[:count]))) for count in range(1, len(knot) + 1)]
        commit = self._leg.carry.onto
        commits: list[CommitId] = []
        for number, tree in zip((*below, *knot), (*onto, *own), strict=True):
            if tree is None:
                raise self._conflict(number)
            commit = apply.commit(self._objects, tree, commit, self._message(self._pieces[number]))
            commits.append(commit)
        start = commits[len(below) - 1] if below else self._leg.carry.onto
        raws = export(self._objects, start, commits[len(below) :])
        return tuple(
            Part(
                self._pieces[number].ref.path,
                patches.parse(raw, self._pieces[number].ref, name=self._pieces[number].name),
                self._pieces[number].cut,
            )
            for number, raw in zip(knot, raws, strict=True)
        )

    @staticmethod
    def _message(piece: _Piece) -> Patch:
        """Return the patch; a part's name is added to its subject."""
        whole = piece.row.patch
        if not piece.cut:
            return whole
        subject, _, rest = whole.message.partition("\n")
        return replace(whole, message=f"{subject} ({piece.cut})\n{rest}")

    def _apart(self, number: int) -> tuple[str, ...]:
        """Return the independent parts of a patch, from the first way of cutting that finds more than one."""
        before, after = self._chain.alone(number)
        for by in (By.FILE, By.DEFINITION):
            cuts = splitting.cut(self._objects, before, after, by)
            groups = self._islands(self._pieces[number].row, before, cuts) if sum(not part.aside for part in cuts) > 1 else ()
            if len(groups) > 1:
                return tuple(", ".join(cuts[part].name for part in group) for group in groups)
        return ()

    def _islands(self, row: Carried, before: TreeId, cuts: Sequence[Cut]) -> tuple[tuple[int, ...], ...]:
        """Group the parts of a patch so that parts of different groups neither need each other nor share names."""
        pieces = [_Piece(row, part.tree, part.name, part.aside) for part in cuts]
        chain = Chain(self._objects, before, [part.tree for part in cuts])
        relations = Relations(self._objects, chain, [row.patch.ref for _ in cuts])
        relations.spelled()
        self._tie(relations, pieces)
        for first, other in itertools.combinations(range(len(cuts)), 2):
            if relations.speak_alike(first, other):
                relations.add(first, other, "speaks of the same")
        if len(graph.islands(relations.needs)) > 1:
            relations.drifting()
        return graph.islands(relations.needs)


def _slug(text: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", text.lower()))


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
