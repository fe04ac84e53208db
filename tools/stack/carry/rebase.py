# SPDX-License-Identifier: Apache-2.0
"""Move the stack to other releases: plan every patch's outcome and the new files of the stack, then switch to them at once."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.carry import engine, history, landing, patch_sources, pin_requirements, upstream_stores
from stack.carry.drift import blame
from stack.carry.engine import Aids, Carry
from stack.carry.guards import standing
from stack.carry.guards.judgement import Guarded
from stack.carry.ladder import AUTO, Rung
from stack.carry.outcome import Carried, Landed, Outcome
from stack.carry.pin_requirements import Need
from stack.carry.resolutions import Resolutions
from stack.carry.upstream_stores import Stores
from stack.model import document, extras, guards, lane_files, lane_pins, lanes, pins, releases, series
from stack.model import stack as stacks
from stack.model.guards import Guard
from stack.model.ids import CommitId, TreeId
from stack.model.pins import Pin, Pins
from stack.model.series import PatchRef, Series
from stack.model.stack import FOLDER, RESOLUTIONS, Stack
from stack.store import git, remote
from stack.store.sources import SourceTree


@dataclass(frozen=True, slots=True)
class Request:
    """A user's request to rebase one upstream.

    `through`: the releases to carry the patches over, or `auto` for all in between. `resolved`: by `engine.step_name`, the tree
    after a patch whose conflict a person has resolved. `behaviour`: patches, by path, whose proofs pass on the new release
    without them.
    """

    upstream: str
    tag: str
    with_required: bool = False
    through: tuple[str, ...] = ()
    resolved: Mapping[str, TreeId] = field(default_factory=lambda: MappingProxyType({}))
    behaviour: Mapping[str, Landed] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Leg:
    """One upstream's part of a rebase: its pin before and after, and its carried patches."""

    upstream: str
    old: Pin
    new: Pin
    carry: Carry

    @property
    def moves(self) -> bool:
        """Return whether the pin changes."""
        return self.old != self.new


@dataclass(frozen=True, slots=True)
class Rebase:
    """A complete plan of a rebase; nothing is written to the stack yet."""

    stack: Stack
    request: Request
    legs: tuple[Leg, ...]
    unmet: tuple[Need, ...]
    guards: tuple[Guarded, ...] = ()
    """The guards of the upstreams that move, judged where they move to."""

    @property
    def broken_guards(self) -> tuple[Guarded, ...]:
        """Return the guards that need a person."""
        return tuple(each for each in self.guards if each.needs_person)

    @property
    def open(self) -> tuple[tuple[Leg, Carried], ...]:
        """Return the patches that need a person, in the order to resolve them: by upstream, then by rung."""
        rows = [(leg, row) for leg in self.legs for row in leg.carry.rows if row.needs_person]
        rungs = {leg.upstream: [rung.name for rung in leg.carry.rungs] for leg in self.legs}
        order = [leg.upstream for leg in self.legs]
        return tuple(sorted(rows, key=lambda row: (order.index(row[0].upstream), rungs[row[0].upstream].index(row[1].rung))))

    def rows(self) -> Iterable[Carried]:
        """Return every patch's outcome, leg by leg."""
        return (row for leg in self.legs for row in leg.carry.rows)

    def pins(self) -> Pins:
        """Return the pins after the rebase."""
        return self.stack.pins.replaced(*(leg.new for leg in self.legs))

    def files(self) -> dict[str, bytes | None]:
        """Return the files of the stack that the rebase writes (None: removes), by path below the root."""
        files = _pin_files(self.stack, self.pins())
        for row in self.rows():
            files[f"{FOLDER}/{row.patch.ref.path}"] = None
        for leg in self.legs:
            files |= {f"{FOLDER}/{path}": data for path, data in leg.carry.exported.items()}
            carried = {row.patch.ref: leg.carry.exported.get(row.patch.ref.path) for row in leg.carry.rows}
            files |= patch_sources.mirrored(self.stack, carried)
        dropped = self._dropped()
        known_landed = {record.ref: record for record in self._landed()}
        for member in self.stack.series:
            if dropped & set(member.patches):
                file = f"{FOLDER}/{member.name}/{series.FILE}"
                kept = tuple(ref for ref in member.patches if ref not in dropped)
                landed = [known_landed[ref] for ref in member.patches if ref in known_landed]
                files[file] = series.with_landed(series.edited(lanes.text(self.stack, file), kept), landed).encode()
        return files | self._guard_file()

    def _guard_file(self) -> dict[str, bytes | None]:
        """Return the file of the guards with those renewed that still hold."""
        pins_ = self.pins()
        changed: dict[str, Guard | None] = {}
        for leg in self.legs:
            its = [each for each in self.guards if each.guard.upstream == leg.upstream]
            changed |= standing.renewed(its, pins_.get(leg.upstream).commit)
        return {guards.PLACE: guards.edited(lanes.text(self.stack, guards.PLACE), changed).encode()} if changed else {}

    @property
    def emptied(self) -> tuple[str, ...]:
        """Return the series without a patch."""
        dropped = self._dropped()
        return tuple(member.name for member in self.stack.series if member.patches and dropped.issuperset(member.patches))

    def _dropped(self) -> set[PatchRef]:
        return {row.patch.ref for row in self.rows() if row.outcome in (Outcome.LANDED, Outcome.LEFT_OUT)}

    def _landed(self) -> Iterable[series.Landed]:
        """Yield the series' records of landed patches, so that their proofs keep running; skip those that a person left out."""
        dropped = self._dropped()
        for leg in self.legs:
            for row in leg.carry.rows:
                if row.patch.ref in dropped and row.outcome is not Outcome.LEFT_OUT and leg.old.within is None:
                    release = row.landed.rung if row.landed is not None else leg.new.revision
                    yield series.Landed(row.patch.ref, release, leg.old.revision)


def rebase(stores: Stores, request: Request) -> Rebase:
    """Plan a rebase; the stack's files are only read.

    Raises:
        StackError: no such upstream or release, or a patch does not apply to its own pin.

    """
    stack = stores.stack
    pin = stack.pins.get(request.upstream)
    if pin.within is not None:
        raise StackError(
            f"{pin.upstream} is vendored in {pin.within.upstream}", f"rebase {pin.within.upstream}, and it comes along"
        )
    targets, stated = _targets(stores, request)
    legs: list[Leg] = []
    for name in stack.pins.names():
        if name in targets:
            legs.append(released(stores, name, targets[name], request))
            legs += [vendored(stores, inner, legs[-1], targets[name], request) for inner in stack.pins.vendored_in(name)]
    new_pins = stack.pins.replaced(*(leg.new for leg in legs))
    guarded = tuple(each for name in targets for each in standing.onto(stores, name, targets[name]))
    return Rebase(stack, request, tuple(legs), pin_requirements.unmet(stated, new_pins), guarded)


class Conclusion(StrEnum):
    """How a rebase ended."""

    SWITCHED = "switched"
    """The new pins and patch files were written."""
    UNCHANGED = "unchanged"
    """The stack already was at the requested release."""
    DRY_RUN = "dry-run"
    """The rebase would succeed; nothing was written."""
    CONFLICT = "conflict"
    """A patch needs a person; nothing was written."""
    DRIFT = "drift"
    """All patches apply, but one has drifted; nothing was written."""
    GUARD = "guard"
    """All patches apply, but what code beside them relies on has changed; nothing was written."""
    MISMATCH = "mismatch"
    """An upstream would require another pin of a second one; nothing was written."""


def conclude(
    work: Rebase,
    *,
    allow_mismatch: bool = False,
    allow_drift: bool = False,
    allow_guards: bool = False,
    dry_run: bool = False,
) -> Conclusion:
    """Switch pins and patch files together, if every patch is carried and the pins meet each other's requirements.

    Broken guards stop it, unless drift or guards are allowed; then they stay in their file as they are.

    Raises:
        StackError: the stack's files have changed since they were read, cannot be written, or a folder differs from the patch that
            adds its files; then nothing is changed.

    """
    open_ = {row.outcome for _, row in work.open}
    if open_ - {Outcome.DRIFTED}:
        return Conclusion.CONFLICT
    if open_ and not allow_drift:
        return Conclusion.DRIFT
    if work.broken_guards and not (allow_drift or allow_guards):
        return Conclusion.GUARD
    if work.unmet and not allow_mismatch:
        return Conclusion.MISMATCH
    if dry_run:
        return Conclusion.DRY_RUN
    change = _change(work)
    title = f"rebase {work.request.upstream} --onto {work.request.tag}"
    switched = lanes.apply(work.stack, change.files, title=title, expected=change.expected, landed=_landings([work]))
    return Conclusion.SWITCHED if switched else Conclusion.UNCHANGED


def conclude_together(
    works: Sequence[Rebase], *, allow_mismatch: bool = False, allow_drift: bool = False, dry_run: bool = False
) -> tuple[Conclusion, ...]:
    """Switch several lanes of a stack in one step, or none of them; return how each one's rebase ended.

    Raises:
        StackError: as `conclude`.

    """
    ended = [conclude(work, allow_mismatch=allow_mismatch, allow_drift=allow_drift, dry_run=True) for work in works]
    if dry_run or any(each is not Conclusion.DRY_RUN for each in ended):
        return tuple(ended)
    changes = {work.stack.lane: _change(work) for work in works}
    onto = " ".join(f"--onto {lanes.named(work.stack.lane)}={work.request.tag}" for work in works)
    title = f"rebase {works[0].request.upstream} --all-lanes {onto}"
    switched = bool(lanes.apply_all(works[0].stack.root, changes, title=title, landed=_landings(works)))
    return tuple(
        Conclusion.SWITCHED if switched and any(leg.moves for leg in work.legs) else Conclusion.UNCHANGED for work in works
    )


def _landings(works: Sequence[Rebase]) -> dict[str, str]:
    """Return the patches that leave since a release has them, by their paths in their lane, and that release."""
    landed: dict[str, str] = {}
    for work in works:
        lane = f"{lane_files.NAME}/{work.stack.lane}/" if work.stack.lane is not None else ""
        for leg in work.legs:
            rows = [row for row in leg.carry.rows if row.outcome is Outcome.LANDED]
            landed |= {f"{lane}{row.patch.ref.path}": row.landed.rung if row.landed else leg.new.shown for row in rows}
    return landed


def _change(work: Rebase) -> lanes.Change:
    """Return the files that a rebase writes, and those from which they were computed."""
    for leg in work.legs:
        patch_sources.check(work.stack, leg.upstream)
    expected = _present(work.stack)
    files = work.files()
    _check_unchanged(work.stack)
    return lanes.Change(files, expected)


def _present(stack: Stack) -> dict[str, bytes | None]:
    """Return the current bytes of the files with pins, series and patches."""
    paths = [pins.FILE, *(f"{FOLDER}/{member.name}/{series.FILE}" for member in stack.series)]
    paths += [f"{FOLDER}/{ref.path}" for ref in stack.patches]
    if _has_extras(stack):
        paths.append(extras.FILE)
    if stack.guards:
        paths.append(guards.PLACE)
    return lanes.contents(stack, paths)


def _check_unchanged(stack: Stack) -> None:
    if stacks.load(stack.root, stack.lane) != stack:
        raise StackError(f"{stack.root} was changed while this command ran", "nothing was written: run it again")


def needs_at_pins(stores: Stores) -> dict[str, tuple[Need, ...]]:
    """Return each released upstream's requirements on the others, at the current pins."""
    pins_ = stores.stack.pins
    return {pin.upstream: _needs(stores, pin, stores.obtain(pin.upstream)) for pin in pins_ if pin.within is None}


def repinned(stores: Stores, upstream: str, tag: str) -> tuple[Pins, tuple[Need, ...]]:
    """Return the pins with one upstream at another tag, and the requirements that they do not meet; ignore patches.

    Raises:
        StackError: no such upstream or release, or the commit of an upstream vendored there is unknown.

    """
    pin = stores.stack.pins.get(upstream)
    if pin.within is not None:
        raise StackError(f"{upstream} is vendored in {pin.within.upstream}", f"set {pin.within.upstream}, and it comes along")
    tree = _with_commit(stores, stores.obtain(upstream, tag))
    changed = [_pinned(pin, tree)]
    for inner in stores.stack.pins.vendored_in(upstream):
        vendored = upstream_stores.vendored_base(stores.objects(upstream), inner, tree.commit)
        changed.append(_vendored_pin(stores, inner, tree, stores.objects(upstream).tree_of(vendored)))
    new_pins = stores.stack.pins.replaced(*changed)
    stated = needs_at_pins(stores) | {upstream: _needs(stores, changed[0], tree)}
    return new_pins, pin_requirements.unmet(stated, new_pins)


def set_pins(stack: Stack, new: Pins, unmet: tuple[Need, ...], *, title: str, allow_mismatch: bool) -> bool:
    """Write only the pins; write nothing and return False if requirements are unmet and that is not allowed."""
    if unmet and not allow_mismatch:
        return False
    expected = _present(stack)
    files = _pin_files(stack, new)
    _check_unchanged(stack)
    lanes.apply(stack, files, title=title, expected=expected)
    return True


def _pin_files(stack: Stack, new: Pins) -> dict[str, bytes | None]:
    root, text = stack.root, document.read_text(stack.root / pins.FILE)
    edited = pins.edited(text, new) if stack.lane is None else lane_pins.edited(text, stack.lane, new)
    files: dict[str, bytes | None] = {pins.FILE: edited.encode()}
    if _has_extras(stack):
        files[extras.FILE] = extras.edited(document.read_text(root / extras.FILE), new).encode()
    return files


def _has_extras(stack: Stack) -> bool:
    """Return whether the project repeats these pins in its own dependencies: it states one release, that of no lane."""
    return stack.lane is None and (stack.root / extras.FILE).is_file()


def _targets(stores: Stores, request: Request) -> tuple[dict[str, SourceTree], dict[str, tuple[Need, ...]]]:
    """Return the trees to move to, and each release's requirements on the others after the move."""
    stack = stores.stack
    targets = {request.upstream: stores.obtain(request.upstream, request.tag)}
    stated = needs_at_pins(stores)
    waiting = [request.upstream]
    while waiting:
        name = waiting.pop()
        stated[name] = _needs(stores, stack.pins.get(name), targets[name])
        for need in stated[name]:
            other = stack.pins.get(need.needs)
            if request.with_required and need.needs not in targets and not need.met_by(other):
                targets[need.needs] = stores.obtain(need.needs, pin_requirements.tag_of(other, need.version))
                waiting.append(need.needs)
    return targets, stated


def _needs(stores: Stores, pin: Pin, tree: SourceTree) -> tuple[Need, ...]:
    return pin_requirements.needs(stores.objects(pin.upstream), tree.tree, pin, tree.tag, stores.stack.pins)


def released(stores: Stores, name: str, target: SourceTree, request: Request) -> Leg:
    """Carry one upstream's patches to another release.

    Raises:
        StackError: a source cannot be obtained, or a patch does not apply to its own pin.

    """
    pin = stores.stack.pins.get(name)
    target = _with_commit(stores, target)
    base = stores.obtain(name)
    way = [*_through(stores, pin, base, target, request), target]
    carried = _carried(stores, name, base.commit, _rungs(way), request, upstream_stores.past(base), _rungs(way, past=True))
    return Leg(name, pin, _pinned(pin, target), carried)


def _through(stores: Stores, pin: Pin, base: SourceTree, target: SourceTree, request: Request) -> list[SourceTree]:
    """Return the releases in between; `auto` applies to each upstream that moves, named releases to the requested one."""
    names: Iterable[str] = request.through if pin.upstream == request.upstream else ()
    if request.through == (AUTO,):
        names = _releases(stores, pin, base, target)
    return [stores.obtain(pin.upstream, name) for name in names if name not in (pin.revision, target.tag)]


def _releases(stores: Stores, pin: Pin, base: SourceTree, target: SourceTree) -> list[str]:
    """Return the releases between two trees: by version, or by history if one of the two has no release tag."""
    rule = pin.releases
    if target.source == "archive" or None not in (rule.version(pin.revision), rule.version(target.tag)):
        return rule.between(stores.tags(pin.upstream), pin.revision, target.tag)
    repository = stores.objects(pin.upstream).repository
    ends = f"{upstream_stores.past(base)}..{upstream_stores.past(target)}"
    between = set(git.text(["rev-list", ends], env={"GIT_DIR": str(repository)}).split())
    tags = stores.tag_commits(pin.upstream)
    return rule.ordered(tag for tag, commit in tags.items() if commit in between and commit != upstream_stores.past(target))


def _rungs(way: Iterable[SourceTree], *, past: bool = False) -> tuple[Rung, ...]:
    return tuple(Rung(tree.tag, upstream_stores.past(tree) if past else tree.commit) for tree in way)


def vendored(stores: Stores, pin: Pin, holder: Leg, target: SourceTree, request: Request) -> Leg:
    """Carry a vendored upstream's patches to the folder in its holder's tree, after the holder's own patches.

    Raises:
        StackError: as `released`; or another commit is vendored there, and an archive does not name it.

    """
    objects = stores.objects(pin.upstream)
    base = upstream_stores.vendored_base(objects, pin, holder.carry.source_tip)
    onto = upstream_stores.vendored_base(objects, pin, holder.carry.tip)
    unpatched = objects.tree_of(upstream_stores.vendored_base(objects, pin, target.commit))
    rungs = (Rung(target.tag, onto),)
    carried = _carried(stores, pin.upstream, base, rungs, request, base, rungs)
    return Leg(pin.upstream, pin, _vendored_pin(stores, pin, target, unpatched), carried)


def _carried(
    stores: Stores,
    upstream: str,
    base: CommitId,
    rungs: tuple[Rung, ...],
    request: Request,
    past: CommitId,
    past_rungs: tuple[Rung, ...],
) -> Carry:
    """Carry an upstream's patches with all aids; `past` and `past_rungs` are the commits of both ends with history."""
    objects, stack = stores.objects(upstream), stores.stack
    patches = stack.order(upstream)
    onto = rungs[-1]
    if not patches or base == onto.commit:
        return engine.carry(objects, base, onto.commit, patches, name=onto.name, resolved=request.resolved)
    stores.tell("reading what changed upstream")
    if stores.source(upstream) == "git":
        remote.fetch_contents(objects.repository, past, past_rungs[-1].commit)
    known = Resolutions.load(stack.root / FOLDER / RESOLUTIONS)
    with contextlib.closing(history.index(objects, past, past_rungs, stores.place.cache)) as index:
        aids = Aids(index, known, _pulls(stack), request.behaviour)
        carried = engine.carry(
            objects, base, onto.commit, patches, name=onto.name, through=rungs[:-1], resolved=request.resolved, aids=aids
        )
        return blame.judged(objects, carried, index)


def _pulls(stack: Stack) -> dict[str, frozenset[int]]:
    """Return the pull requests of every patch that has any, by its path."""
    return {ref.path: numbers for member in stack.series for ref in member.patches if (numbers := _numbers(member, ref))}


def _numbers(series: Series, ref: PatchRef) -> frozenset[int]:
    """Return the numbers of a patch's own pull requests and of its series' pull request."""
    addresses = [series.pull, *(pull.address for pull in series.pulls if pull.ref == ref)]
    numbers = (landing.pull_number(address) for address in addresses if address)
    return frozenset(number for number in numbers if number is not None)


def _with_commit(stores: Stores, target: SourceTree) -> SourceTree:
    """Ask the git remote for the commit of a release whose source archive does not name it; unchanged if that fails."""
    if target.names_commit is not None:
        return target
    with contextlib.suppress(StackError):
        return replace(target, names_commit=stores.tag_commits(target.upstream).get(target.tag))
    return target


def _pinned(pin: Pin, target: SourceTree) -> Pin:
    """Return the pin of a released upstream at another tree.

    Raises:
        StackError: the archive does not name the commit that it was made from.

    """
    if target.tag == pin.revision and target.source == "archive":
        return replace(pin, archive=target.archive, tree=target.tree)
    if target.names_commit is None:
        problem = f"neither the source archive of {pin.upstream} {target.tag} nor {redacted(pin.git)} names its commit"
        raise StackError(problem, "use --source git")
    tag = None if target.names_commit.startswith(target.tag) else target.tag
    archive = target.archive
    if archive is None and pin.archive is not None and tag is not None and pin.releases.version(tag) is not None:
        archive = replace(pin.archive, version=target.version, sha256=None)
    tree = target.tree if target.source == "archive" else None
    # Without a tag, nothing else says how release tags look.
    tags = pin.releases.pattern if tag is None and pin.releases != releases.of(None) else pin.tags
    return replace(pin, tag=tag, commit=target.names_commit, archive=archive, tree=tree, subtrees={}, tags=tags)


def _vendored_pin(stores: Stores, pin: Pin, target: SourceTree, tree: TreeId) -> Pin:
    """Return the pin of a vendored upstream. The git source names its commit; with an archive, it must be unchanged.

    Raises:
        StackError: the vendored tree has changed, and an archive does not name its commit.

    """
    assert pin.within is not None
    objects = stores.objects(pin.upstream)
    if target.source == "git":
        assert target.names_commit is not None
        entry = objects.entry(objects.tree_of(CommitId(target.names_commit)), pin.within.path)
        if entry is not None and entry.mode == 0o160000:
            subtrees = {path: TreeId(new) for path, _, new in upstream_stores.subtrees(objects, pin, tree) if new is not None}
            return replace(pin, commit=entry.id, subtrees=subtrees)
    if pin.subtrees and not upstream_stores.changed_subtrees(objects, pin, tree):
        return pin
    old = objects.tree_of(upstream_stores.vendored_base(objects, pin, stores.obtain(pin.within.upstream).commit))
    if tree == old:
        return pin
    raise StackError(
        f"{pin.within.upstream} {target.tag} vendors another {pin.upstream}, and its archive does not name the commit",
        "use --source git",
    )


def range_diff(stores: Stores, leg: Leg, *, colour: bool = False) -> str:
    """Return `git range-diff` of a leg's patches before and after, for review; empty if the upstream has no patches."""
    if not leg.carry.sources:
        return ""
    ranges = [f"{leg.carry.base}..{leg.carry.source_tip}", f"{leg.carry.onto}..{leg.carry.tip}"]
    show = "--color" if colour else "--no-color"
    return git.text(["range-diff", show, *ranges], env={"GIT_DIR": str(stores.objects(leg.upstream).repository)})
