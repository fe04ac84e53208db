# SPDX-License-Identifier: Apache-2.0
"""Build pull requests as commits on upstream's commit, with the same commit ids for the same proposal and person everywhere."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry import apply
from stack.carry.merge import FileMerges, merge
from stack.carry.person import SIGNED, Person
from stack.carry.trailers import PATCH, SERIES, with_trailers, without_trailers
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.store.objects import Identity, Objects
from stack.store.remote import ungrafted
from stack.upstreaming.proposal import Part, Proposal, needed

# Narrower than git's rules for branch names: a part becomes the name of a file, with `.range-diff` appended.
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_COMMITTED = re.compile(rb"^committer .*> ([0-9]+) ([+-][0-9]{4})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Branch:
    """A proposal's commits on `base`, the oldest first, including those of the proposals that it needs."""

    proposal: Proposal
    base: CommitId
    commits: tuple[CommitId, ...]

    @property
    def name(self) -> str:
        """The branch's name."""
        return self.proposal.branch

    @property
    def tip(self) -> CommitId:
        """The last commit."""
        return self.commits[-1]


def build(objects: Objects, proposals: Sequence[Proposal], planned: Sequence[Proposal], person: Person) -> tuple[Branch, ...]:
    """Write the commits of some proposals of a plan, without touching any ref.

    Raises:
        StackError: a name is not a valid branch name or occurs twice, a need is not planned, or a patch does not apply.

    """
    for proposal in proposals:
        _check_name(proposal)
    names = [proposal.name for proposal in proposals]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StackError(f"two pull requests are called {twice}", "rename a series or a patch")
    building = _Building(objects, {proposal.name: proposal for proposal in (*planned, *proposals)}, person)
    return tuple(building.branch(proposal) for proposal in proposals)


def message(patch: Patch, person: Person) -> str:
    """Return the commit message for upstream: the patch's message without the stack's own trailers, signed off by the person."""
    text = without_trailers(patch.message, (SERIES, PATCH))
    if f"{SIGNED}: {person}" in text.splitlines():
        return text
    return with_trailers(text, {SIGNED: str(person)})


def _check_name(proposal: Proposal) -> None:
    for part in (proposal.upstream, f"{proposal.series}-{proposal.slug}", *filter(None, (proposal.lane,))):
        if not _PART.fullmatch(part) or ".." in part or part.endswith((".", ".lock")):
            raise StackError(
                f"{part[:200]!r} cannot be a part of a branch's name", "use up to 200 letters, digits, '.', '_', '-' and '+'"
            )


class _Building:
    """The branches of a plan; each is built only once."""

    def __init__(self, objects: Objects, planned: Mapping[str, Proposal], person: Person) -> None:
        self._objects = objects
        self._planned = planned
        self._person = person
        self._built: dict[str, Branch] = {}
        self._merges: FileMerges = {}

    def branch(self, proposal: Proposal) -> Branch:
        if proposal.name not in self._built:
            base = ungrafted(self._objects, proposal.base)
            commits = [base]
            for below in needed(proposal, self._planned):
                self._pick(commits, below)
            for part in proposal.parts:
                tree = apply.apply(self._objects, self._objects.tree_of(commits[-1]), part.patch)
                if isinstance(tree, apply.Misfit):
                    raise _misfit(part, proposal, str(tree))
                commits.append(self._commit(tree, commits[-1], part.patch))
            self._built[proposal.name] = Branch(proposal, base, tuple(commits[1:]))
        return self._built[proposal.name]

    def _pick(self, commits: list[CommitId], below: Proposal) -> None:
        """Add a needed proposal's own commits.

        Its patches fit a tree with its own needs only. A merge brings them onto the tree with everything else that is there.
        """
        built = self.branch(below)
        count = len(below.parts)
        pairs = itertools.pairwise((built.base, *built.commits)[-count - 1 :])
        for part, (before, after) in zip(below.parts, pairs, strict=True):
            trees = (self._objects.tree_of(commit) for commit in (before, commits[-1], after))
            merged = merge(self._objects, self._merges, *trees)
            if merged.conflicts:
                raise _misfit(part, below, f"{merged.conflicts[0].path}: conflict with an earlier commit")
            commits.append(self._commit(merged.tree, commits[-1], part.patch))

    def _commit(self, tree: TreeId, parent: CommitId, patch: Patch) -> CommitId:
        author = Identity(patch.author.name, patch.author.mail, patch.author.date)
        committer = Identity(self._person.name, self._person.mail, _date(self._objects, parent, patch))
        return self._objects.write_commit(tree, (parent,), message(patch, self._person), author, committer)


def _misfit(part: Part, proposal: Proposal, why: str) -> StackError:
    return StackError(f"{part.path} of {proposal.name} does not apply on {proposal.onto} ({why})", "plan again")


def _date(objects: Objects, parent: CommitId, patch: Patch) -> str:
    """Choose a commit's date so that the commit id is reproducible.

    It is the author's date, but not before the parent's date, because git walks history by date.
    """
    parent_line = _COMMITTED.search(objects.read(parent).partition(b"\n\n")[0])
    if parent_line is None or int(parent_line[1]) <= int(patch.author.date.partition(" ")[0]):
        return patch.author.date
    return f"{parent_line[1].decode()} {parent_line[2].decode()}"
