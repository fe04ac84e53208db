# SPDX-License-Identifier: Apache-2.0
"""Make one patch of each commit of a branch, on the pin: flatten merges, and carry from an older base with the engine."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry import engine, history
from stack.carry.engine import Aids
from stack.carry.export import export
from stack.carry.importing import range_size
from stack.carry.importing.applying import as_patch
from stack.carry.importing.candidate import Candidate, LeftOut
from stack.carry.importing.clone import Clone, Commit
from stack.carry.importing.files import Read
from stack.carry.importing.marked import unmarked
from stack.carry.ladder import Rung
from stack.carry.merge import FileMerges, merge
from stack.carry.outcome import Carried, Outcome
from stack.model import patch as patches
from stack.model.ids import CommitId, TreeId
from stack.model.pins import Pin
from stack.model.series import PatchRef
from stack.store import git, users_clone
from stack.store.objects import FILES, Identity, Objects


@dataclass(frozen=True, slots=True)
class Branch:
    """The patches of a branch in order, and notes for the user."""

    read: Read
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Step:
    commit: Commit
    before: TreeId
    after: TreeId


def read(folder: Path, revision: str, pin: Pin, store: Objects, cache: Path) -> Branch:
    """Read a branch, or a range `BASE..TIP`, of a clone.

    Args:
        folder: The clone.
        revision: The branch or range.
        pin: The pin on which the patches shall stand.
        store: The upstream's store; it gets the contents on which the patches were made.
        cache: The cache folder, for what is known of upstream's history.

    Raises:
        StackError: The clone lacks a commit, or a merge changes something of its own.

    """
    with users_clone.read_only_here(folder), Clone(folder) as clone:
        objects = clone.objects
        stated, dots, tip_name = revision.partition("..")
        tip = clone.commit(tip_name.lstrip(".") if dots else revision)
        pinned = clone.find(pin.commit) or (clone.find(pin.tag) if pin.tag else None)
        base = clone.commit(stated) if dots else _fork_point(objects, clone, tip, pinned, pin)
        steps, notes = _line(objects, clone, base, tip)
        if clone.replaced:
            count = counted(clone.replaced, "object")
            notes = (f"the clone replaces {count} (git replace, grafts): commits are read as they are without that", *notes)
        if not steps:
            raise StackError(f"{revision} has no commit beyond {base[:12]}", "name the branch with your commits")
        read_ = _patches(objects, base, steps)
        if pinned is not None and objects.tree_of(base) != objects.tree_of(pinned):
            read_ = _carried(objects, base, Rung(pin.shown, pinned), read_, cache)
            notes = (f"the branch stands on {base[:12]}: its patches were carried to {pin.shown}", *notes)
        _lend(objects, store, read_)
    return Branch(read_, notes)


def _fork_point(objects: Objects, clone: Clone, tip: CommitId, pinned: CommitId | None, pin: Pin) -> CommitId:
    """Return the merge base of the branch and the pin."""
    range_ = "name the range of your commits instead of the branch: BASE..TIP"
    if pinned is None:
        raise StackError(
            f"{clone.folder} has neither the pinned commit {pin.commit[:12]} nor its tag", f"fetch it there, or {range_}"
        )
    found = _git(objects, ["merge-base", pinned, tip], accept=(0, 1))
    if not found:
        raise StackError(f"the branch has no commit in common with {pin.shown}", range_)
    return CommitId(found)


def _git(objects: Objects, command: Sequence[str], accept: Sequence[int] = (0,)) -> str:
    """Run git in the temporary repository, which has no settings of the clone."""
    return git.run(command, env={"GIT_DIR": str(objects.repository)}, accept=accept).stdout.decode("ascii").strip()


def _line(objects: Objects, clone: Clone, base: CommitId, tip: CommitId) -> tuple[list[_Step], tuple[str, ...]]:
    """Return the commits as one line from the base: each with the tree before and after it.

    Raises:
        StackError: A merge has another result than the commits in a line.

    """
    range_size.check(objects.repository, base, tip)
    ids = _git(objects, ["rev-list", "--reverse", "--topo-order", f"{base}..{tip}"]).split()
    commits = [clone.read(CommitId(commit)) for commit in ids]
    merges = [commit for commit in commits if len(commit.parents) != 1]
    steps: list[_Step] = []
    known: FileMerges = {}
    tree = objects.tree_of(base)
    for commit in commits:
        if commit in merges:
            continue
        before = objects.tree_of(commit.parents[0])
        merged = merge(objects, known, before, tree, commit.tree)
        if merged.conflicts:
            raise _refused(objects, merges, f"{commit.name} does not apply after the commits of the other side")
        steps.append(_Step(commit, tree, merged.tree))
        tree = merged.tree
    if merges and tree != objects.tree_of(tip):
        raise _refused(objects, merges, "the commits in a line give other files than the branch")
    notes = [
        f"{steps[place].commit.name}: changes nothing, left out"
        for place in range(len(steps))
        if steps[place].before == steps[place].after
    ]
    if merges:
        notes.append(f"{counted(len(merges), 'merge commit was', 'merge commits were')} flattened: the files are the same")
    return [step for step in steps if step.before != step.after], tuple(notes)


def _refused(objects: Objects, merges: Sequence[Commit], why: str) -> StackError:
    """Return the refusal to flatten; it names the merges that have changes of their own, or else all merges."""
    own = [commit for commit in merges if not _is_automatic(objects, commit)] or list(merges)
    named = "; ".join(commit.name for commit in own[:5])
    return StackError(
        f"{why}; merges with changes of their own: {named}", "rebase the branch to a line of commits, and import that"
    )


def _is_automatic(objects: Objects, commit: Commit) -> bool:
    if len(commit.parents) != 2:
        return False
    common = _git(objects, ["merge-base", *commit.parents], accept=(0, 1)).split()
    if not common:
        return False
    trees = [objects.tree_of(each) for each in (CommitId(common[0]), *commit.parents)]
    merged = merge(objects, {}, *trees)
    return not merged.conflicts and merged.tree == commit.tree


def _patches(objects: Objects, base: CommitId, steps: Sequence[_Step]) -> Read:
    """Return the patch of each commit."""
    parent, written = base, []
    for step in steps:
        author = step.commit.author
        parent = objects.write_commit(
            step.after, (parent,), step.commit.message, Identity(author.name, author.mail, author.date)
        )
        written.append(parent)
    raws = export(objects, base, written)
    return [_candidate(step.commit, raw) for step, raw in zip(steps, raws, strict=True)]


def _candidate(commit: Commit, raw: bytes) -> Candidate:
    parsed = patches.parse(raw, PatchRef("", "", commit.id), name=commit.name)
    found = Candidate(commit.id[:12], commit.name, raw, commit.author, commit.message, parsed.diff, by_lines=False)
    return unmarked(found)


def _carried(objects: Objects, base: CommitId, onto: Rung, read_: Read, cache: Path) -> Read:
    """Carry the patches from the branch's base to the pin; leave out what upstream has by then, or conflicts."""
    candidates = {f"x/{number}": one for number, one in enumerate(read_) if isinstance(one, Candidate)}
    chain = [patches.parse(one.raw, PatchRef("x", "", path[2:]), name=one.name) for path, one in candidates.items()]
    with contextlib.closing(history.index(objects, base, (onto,), cache)) as index:
        carry = engine.carry(objects, base, onto.commit, chain, name=onto.name, aids=Aids(index))
    return [_outcome(candidates[row.patch.ref.path], row, carry.exported, onto) for row in carry.rows]


def _outcome(candidate: Candidate, row: Carried, exported: Mapping[str, bytes], onto: Rung) -> Candidate | LeftOut:
    if row.outcome is Outcome.LANDED:
        by = f" with {row.landed.commit[:12]} {row.landed.subject}" if row.landed is not None else ""
        return LeftOut(candidate, f"{onto.name} has it{by}", landed=True)
    raw = exported.get(row.patch.ref.path)
    if row.commit is None or raw is None:
        conflict = next(iter(row.conflicts), None)
        where = f"{conflict.path}: {conflict.reason}" if conflict else "; ".join(row.evidence)
        return LeftOut(candidate, f"conflict with {onto.name} in {where}")
    return replace(candidate, diff=row.patch.diff_of(raw))


def _lend(objects: Objects, store: Objects, read_: Read) -> None:
    """Write the contents on which the patches were made to the store, so that they can be merged there."""
    for one in read_:
        if isinstance(one, Candidate):
            for file in patches.files(as_patch(one)):
                if file.old_id and file.old is not None and file.old_mode in FILES and set(file.old_id) != {"0"}:
                    store.write_blob(objects.read(file.old_id))
