# SPDX-License-Identifier: Apache-2.0
"""A pull request as it is planned: plain values, which planning makes, and linting, pushing and opening take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry.outcome import Carried
from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.model.series import PatchRef
from stack.proof.series_proofs import Result
from stack.upstreaming import graph


@dataclass(frozen=True, slots=True)
class Part:
    """One commit of a pull request: a patch of the stack, whole or cut, as it stands upstream.

    `path` is the patch's own below `stacks/`; `patch` its message, author and diff there; `cut` says which part of it this is,
    and is empty for a whole one.
    """

    path: str
    patch: Patch
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One pull request: its commits in order, on the upstream's commit `base` (called `onto`) and on what it `needs`.

    `wave` counts from 1: what needs nothing can be opened now. `needs` are names of other proposals, and `why` says for each of
    them, in that order, what would be wrong without it. `real`: `base` is a commit of the upstream's own history, so that the branch
    can be pushed; a commit made of an archive is not. `proof`: how the tests that prove its patches end on `base` with what it needs
    and itself, and nothing else of the stack; None where they were not asked for, or there are none. `apart`: the parts into which it
    could be split.
    """

    upstream: str
    series: str
    slug: str
    base: CommitId
    onto: str
    real: bool
    parts: tuple[Part, ...]
    wave: int = 1
    needs: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    proof: Result | None = None
    apart: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How plans, branches and descriptions call it."""
        return f"{self.upstream}/{self.series}-{self.slug}"

    @property
    def branch(self) -> str:
        """Its branch, in the store and in the user's fork."""
        return f"pr/{self.name}"


@dataclass(frozen=True, slots=True)
class Aside:
    """A patch that is not proposed, and why."""

    ref: PatchRef
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The pull requests of one upstream, by waves, and what is none: patches that have landed, those that need a person, and others.

    `real`: `base` is a commit of the upstream's own history, as with its proposals.
    """

    upstream: str
    base: CommitId
    onto: str
    proposals: tuple[Proposal, ...]
    landed: tuple[Carried, ...] = ()
    stuck: tuple[Carried, ...] = ()
    aside: tuple[Aside, ...] = ()
    real: bool = False

    @property
    def waves(self) -> tuple[tuple[Proposal, ...], ...]:
        """The proposals of each wave, the first one first."""
        last = max((one.wave for one in self.proposals), default=0)
        return tuple(tuple(one for one in self.proposals if one.wave == number) for number in range(1, last + 1))


def needed(proposal: Proposal, planned: Mapping[str, Proposal]) -> Sequence[Proposal]:
    """What a proposal needs of those that are planned (by name), and what that needs, in the order of the waves.

    Raises:
        StackError: it, or one that is planned, needs what is not planned.

    """
    known = {**planned, proposal.name: proposal}
    for one in known.values():
        missing = next((name for name in one.needs if name not in known), None)
        if missing is not None:
            raise StackError(f"{one.name} needs {missing}, which is not planned", "plan both together")
    reach = graph.closed({name: {*one.needs} for name, one in known.items()})[proposal.name]
    return sorted((one for name, one in known.items() if name in reach), key=lambda one: one.wave)
