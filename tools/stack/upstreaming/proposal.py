# SPDX-License-Identifier: Apache-2.0
"""Plain values for planned pull requests, made by planning, and used by linting, pushing and opening."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry.outcome import Carried
from stack.model import lane_marks
from stack.model.ids import CommitId
from stack.model.patch import Patch
from stack.model.series import PatchRef
from stack.proof.series_proofs import Result
from stack.upstreaming import graph


@dataclass(frozen=True, slots=True)
class Part:
    """One commit of a pull request: a patch of the stack, or a part of one, as it applies upstream.

    `path` is the patch's path below `stacks/`. `patch` has the message, author and diff for upstream. `cut` names the part; it
    is empty for a whole patch.
    """

    path: str
    patch: Patch
    cut: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One pull request: its commits in order, on the upstream's commit `base` (shown as `onto`) and on the proposals that it needs.

    `wave` counts from 1: a proposal without needs can be opened now. `needs` has names of other proposals, and `why` the reason
    for each, in the same order. `real` is true if `base` is a commit of the upstream's history; a branch on a commit made from
    an archive cannot be pushed. `proof` is the result of its tests on `base` with its needs and itself but without the rest of
    the stack. It is None if they were not run, or if there are none. `apart` lists the parts that it could be split into.
    `lane` is the stack's lane, None for no lane.
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
    lane: str | None = None

    @property
    def name(self) -> str:
        """The name in plans, branches, descriptions and records; it ends with the lane, if the stack is of one."""
        return lane_marks.named(f"{self.upstream}/{self.series}-{self.slug}", self.lane)

    @property
    def branch(self) -> str:
        """The branch in the store and in the user's fork."""
        return f"pr/{self.name}"


@dataclass(frozen=True, slots=True)
class Aside:
    """A patch that is not proposed, with the reason."""

    ref: PatchRef
    reason: str


@dataclass(frozen=True, slots=True)
class UpstreamPlan:
    """The plan of one upstream: its pull requests, and the patches that are not proposed.

    `landed` patches are upstream already, `stuck` ones need a person, and `aside` ones have another reason. `real` is true if
    `base` is a commit of the upstream's history.
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
        """The proposals of each wave, the first wave first."""
        last = max((proposal.wave for proposal in self.proposals), default=0)
        return tuple(tuple(item for item in self.proposals if item.wave == number) for number in range(1, last + 1))


def needed(proposal: Proposal, planned: Mapping[str, Proposal]) -> Sequence[Proposal]:
    """Return all planned proposals that a proposal needs, directly or through others, in the order of the waves.

    Raises:
        StackError: a need is not planned.

    """
    known = {**planned, proposal.name: proposal}
    for other in known.values():
        missing = next((name for name in other.needs if name not in known), None)
        if missing is not None:
            raise StackError(f"{other.name} needs {missing}, which is not planned", "plan both together")
    reach = graph.closed({name: {*other.needs} for name, other in known.items()})[proposal.name]
    return sorted((other for name, other in known.items() if name in reach), key=lambda other: other.wave)
