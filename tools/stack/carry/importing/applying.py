# SPDX-License-Identifier: Apache-2.0
"""Apply candidates one after the other; what does not fit, or is in the stack already, is left out with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stack.base.errors import StackError
from stack.carry import apply, lacking, links
from stack.carry.apply import Misfit
from stack.carry.importing import patching, plain
from stack.carry.importing.candidate import Candidate, LeftOut
from stack.carry.importing.files import Read
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.pins import Source
from stack.model.series import PatchRef
from stack.store.objects import Objects

_Content = tuple[tuple[str, tuple[bytes, ...]], ...]


@dataclass(slots=True)
class Applied:
    """The candidates that apply, with the commit of each, and those that are left out."""

    base: CommitId
    candidates: list[Candidate] = field(default_factory=list)
    commits: list[CommitId] = field(default_factory=list)
    left: list[LeftOut] = field(default_factory=list)

    @property
    def tip(self) -> CommitId:
        """The last commit."""
        return self.commits[-1] if self.commits else self.base


@dataclass(slots=True)
class _Known:
    """The patches that the stack has or that were just applied: by their hunks, and by their changed lines alone."""

    hunks: dict[_Content, str] = field(default_factory=dict)
    lines: dict[_Content, str] = field(default_factory=dict)
    stack: set[str] = field(default_factory=set)
    """The names of those that the stack has."""

    def add(self, found: Sequence[plain.Section], level: int, name: str) -> None:
        self.hunks.setdefault(_content(found, level, b" +-"), name)
        self.lines.setdefault(_content(found, level, b"+-"), name)


def apply_all(objects: Objects, tip: CommitId, existing: Sequence[Patch], read: Read, source: Source) -> Applied:
    """Apply every candidate on top of `tip`, the stack with its `existing` patches; the sources come from `source`."""
    done = Applied(tip)
    known = _Known()
    for patch in existing:
        known.add(plain.sections(patch.diff), 1, patch.ref.path)
        known.stack.add(patch.ref.path)
    for one in read:
        if isinstance(one, LeftOut):
            done.left.append(one)
            continue
        outcome = _tried(objects, objects.tree_of(done.tip), one, known, source)
        if isinstance(outcome, LeftOut):
            done.left.append(outcome)
        else:
            done.candidates.append(one)
            done.commits.append(apply.commit(objects, outcome, done.tip, as_patch(one)))
    return done


def _tried(objects: Objects, tree: TreeId, one: Candidate, known: _Known, source: Source) -> TreeId | LeftOut:
    try:
        found = _sections(one)
    except plain.Unreadable as bad:
        return LeftOut(one, str(bad))
    level = one.strip if one.strip is not None else 1 if not one.by_lines else patching.level_of(objects, tree, found)
    same = known.hunks.get(_content(found, level, b" +-")) if any(section.hunks for section in found) else None
    if same is not None and same in known.stack:
        return LeftOut(one, f"it is the same as {same}", known=same)
    after = _applied(objects, tree, one, found, level)
    if isinstance(after, Misfit):
        same = same or known.lines.get(_content(found, level, b"+-"))
        return (
            LeftOut(one, lacking.explained(after, source))
            if same is None
            else LeftOut(one, f"it is the same as {same}", known=same)
        )
    if same is not None:
        after = LeftOut(one, f"it is the same as {same}, and a stack holds it only once")
    if not isinstance(after, LeftOut):
        known.add(found, level, one.name)
    return after


def _sections(one: Candidate) -> tuple[plain.Section, ...]:
    """Return the changes of a candidate in the direction in which it is applied.

    Raises:
        Unreadable: It has no diff, or one that cannot be read.

    """
    try:
        found = plain.sections(one.diff)
    except plain.Unreadable as bad:
        raise plain.Unreadable(f"its diff cannot be read: {bad}") from bad
    if not found:
        raise plain.Unreadable("it has no diff")
    return tuple(plain.reverse(section) for section in reversed(found)) if one.reverse else found


def _applied(
    objects: Objects, tree: TreeId, one: Candidate, found: Sequence[plain.Section], level: int
) -> TreeId | Misfit | LeftOut:
    git_only = any(section.binary or section.copied for section in found)
    by_git = level == 1 and not one.reverse and one.diff.startswith(b"diff --git ")
    try:
        if by_git and (git_only or not one.by_lines):
            after = apply.apply(objects, tree, as_patch(one))
        else:
            after = patching.applied(objects, tree, found, level)
        if not isinstance(after, Misfit) and (fault := _link_fault(objects, tree, after)):
            return LeftOut(one, fault)
    except StackError as bad:
        return LeftOut(one, bad.problem)
    return after


def _link_fault(objects: Objects, before: TreeId, after: TreeId) -> str:
    """Return why a link that the patch adds may not stand in the tree; empty if it may."""
    changed = [path for path, _, new in objects.difference(before, after) if new is not None]
    return next(iter(links.faults(objects, after, changed)), "")


def as_patch(one: Candidate, ref: PatchRef | None = None) -> Patch:
    """Return a candidate as a patch, for code that applies and compares patches."""
    return Patch(ref or PatchRef("", "", one.name), one.raw, one.author, one.subject, one.message, one.diff)


def _content(found: Sequence[plain.Section], level: int, kinds: bytes) -> _Content:
    """Return what a diff changes, without line numbers and names of the old files."""
    return tuple(
        sorted(
            (
                patching.stripped(section.new or section.old or "", level) or "",
                tuple(line for hunk in section.hunks for line in hunk.lines if line[:1] in kinds),
            )
            for section in found
        )
    )
