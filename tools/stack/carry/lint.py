# SPDX-License-Identifier: Apache-2.0
"""Lint the stack: every patch applies and is byte-stable, the pins meet each other's requirements, named files exist."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry import apply, lacking, links, patch_sources, pin_requirements, rebase, upstream_stores
from stack.carry.apply import Misfit
from stack.carry.export import export
from stack.carry.person import is_signed
from stack.carry.upstream_stores import Stores
from stack.model import extras, lane_files, lanes, series
from stack.model import stack as stacks
from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.model.series import State
from stack.model.stack import FILE, FOLDER, Stack

_PLURAL = {"has": "have", "is": "are", "does": "do", "names": "name", "stands": "stand"}
_OVER = frozenset({State.MERGED, State.DECLINED, State.INAPPROPRIATE})


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of the stack; `place` is a file of the stack, or an upstream. `remedy` is empty where the problem says it all."""

    place: str
    problem: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Findings with the same problem and the same remedy."""

    places: tuple[str, ...]
    problem: str
    remedy: str


def grouped(findings: Sequence[Finding]) -> tuple[Group, ...]:
    """Join equal findings, each group where its first one stands."""
    places: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        places.setdefault((finding.problem, finding.remedy), []).append(finding.place)
    return tuple(Group(tuple(where), *key) for key, where in places.items())


def in_plural(places: Sequence[str], problem: str) -> str:
    """Say of several places what a problem says of one: `patches have no Signed-off-by`."""
    verb, _, rest = problem.partition(" ")
    noun = "patches" if all(place.endswith(".patch") for place in places) else "places"
    return f"{noun} {_PLURAL[verb]} {rest}" if verb in _PLURAL else f"{noun}: {problem}"


def lint(stores: Stores) -> tuple[Finding, ...]:
    """Find all problems of a stack that can be loaded.

    Raises:
        StackError: a pinned source cannot be obtained.

    """
    stack = stores.stack
    patches = (finding for pin in stack.pins for finding in _patches(stores, pin.upstream))
    return (*_pins(stores), *_series(stack), *patches, *_lanes(stack))


def _lanes(stack: Stack) -> Iterator[Finding]:
    """Find a lane's files with unfit names, or that equal the common ones; for the stack without a lane, lanes that do not load."""
    for lane in stack.pins.lanes if stack.lane is None else (stack.lane,):
        for path, fault in lanes.unfit(stack.root, lane):
            yield Finding(f"{lane_files.FOLDER}/{lane}", f"has {path!r}, which {fault}", "remove or rename that file")
    if stack.lane is not None:
        for path in lanes.needless(stack):
            yield Finding(path, "is the same as the common file", "remove it: the lane uses that one without it")
        return
    for lane in stack.pins.lanes:
        try:
            stacks.load(stack.root, lane)
        except StackError as bad:
            yield Finding(f"{lane_files.FOLDER}/{lane}", bad.problem.replace(f"{stack.root}/", ""), bad.remedy)


def _pins(stores: Stores) -> Iterator[Finding]:
    pins = stores.stack.pins
    for need in pin_requirements.unmet(rebase.needs_at_pins(stores), pins):
        yield Finding("pins.toml", need.sentence(pins.get(need.needs)))
    for problem in extras.disagreements(stores.stack.root, pins) if stores.stack.lane is None else ():
        yield Finding(extras.FILE, problem)
    for pin in pins:
        if pin.within is not None:
            objects = stores.objects(pin.upstream)
            tree = objects.tree_of(upstream_stores.vendored_base(objects, pin, stores.obtain(pin.within.upstream).commit))
            for path, actual in upstream_stores.changed_subtrees(objects, pin, tree).items():
                yield Finding("pins.toml", f"{pin.upstream}.subtrees.{path} is {pin.subtrees[path]}, the source has {actual}")


def _series(stack: Stack) -> Iterator[Finding]:
    for member in stack.series:
        place = stack.place(f"{member.name}/{series.FILE}")
        empty = not member.patches and not member.landed and member.state not in _OVER
        if empty and not lanes.carriers(stack, member.name):
            yield Finding(
                place,
                f"has no patch, and its state is {member.state}",
                f"add one (`stack checkout`, commit with the trailer `Stack-Series: {member.name}`, `stack refresh`), take the series "
                f"out of {FOLDER}/{FILE} and remove its folder, or say in `state` what became of it",
            )
        if member.patches and not member.proves and stack.lint.proof == "required":
            yield Finding(place, "names no proof", "name a test of its patches in `proves` (docs/proofs.md)")
        for proof in member.proves:
            file = stack.root / proof
            if not file.exists() or not file.resolve().is_relative_to(stack.root.resolve()):
                yield Finding(place, f"proves names {proof}, which is not there")
        for command in member.commands:
            for path in (*command.paths, *filter(None, [command.requirements])):
                if not (stack.root / path).exists():
                    yield Finding(place, f"`{command.run}` in proves needs {path}, which is not there")
        for ref in member.patches:
            yield from _message(stack, stack.patches[ref])


def _message(stack: Stack, patch: Patch) -> Iterator[Finding]:
    """Check a patch's message by the stack's own rules."""
    place, longest = stack.place(patch.ref.path), stack.lint.subject_length
    if stack.lint.signed_off_by == "required" and not is_signed(patch.message):
        yield Finding(
            place, "has no Signed-off-by", f"`stack refresh {patch.ref.upstream} --signoff{lanes.option(stack)}` adds yours"
        )
    if longest is not None and len(patch.subject) > longest:
        yield Finding(
            place,
            f"has a subject of more than {longest} characters",
            f"shorten it in a working tree (`stack checkout {patch.ref.upstream} DIR{lanes.option(stack)}`), "
            f"or change subject-length in {FOLDER}/{FILE}",
        )


def _patches(stores: Stores, upstream: str) -> Iterator[Finding]:
    """Check each patch on top of the earlier ones; leave out a patch that does not apply."""
    patches = stores.stack.order(upstream)
    if not patches:
        return
    for place, problem in patch_sources.problems(stores.stack, upstream):
        yield Finding(place, problem, patch_sources.remedy(upstream))
    try:
        base = stores.base(upstream)
    except apply.DoesNotApply:
        yield Finding(upstream, "stands on a tree whose own patches do not apply")
        return
    objects = stores.objects(upstream)
    applied: list[tuple[Patch, CommitId]] = []
    unsure: set[str] = set()  # Files of patches that were left out: later patches of these files are not compared.
    tip = base
    for patch in patches:
        try:
            tree = apply.apply(objects, objects.tree_of(tip), patch)
        except StackError as bad:
            yield Finding(stores.stack.place(patch.ref.path), str(bad))
            continue
        if isinstance(tree, Misfit):
            yield Finding(
                stores.stack.place(patch.ref.path), f"does not apply: {lacking.explained(tree, stores.source(upstream))}"
            )
            unsure.update(apply.touched(patch))
            continue
        for problem in links.leaving(objects, tree, patch):
            yield Finding(stores.stack.place(patch.ref.path), problem)
        tip = apply.commit(objects, tree, tip, patch)
        applied.append((patch, tip))
    for (patch, _), data in zip(applied, export(objects, base, [commit for _, commit in applied]), strict=True):
        if data != patch.raw and unsure.isdisjoint(apply.touched(patch)):
            yield Finding(
                stores.stack.place(patch.ref.path),
                _unstable(patch.raw, data),
                f"`stack checkout{lanes.option(stores.stack)}` and `stack refresh` mend it",
            )


def _unstable(have: bytes, exported: bytes) -> str:
    """Describe where a patch file differs from git's export."""
    ours, theirs = have.split(b"\n"), exported.split(b"\n")
    line = next(
        (number for number, (our, their) in enumerate(zip(ours, theirs, strict=False)) if our != their),
        min(len(ours), len(theirs)),
    )
    return f"is not byte-stable: line {line + 1} is not what `git format-patch` would write"
