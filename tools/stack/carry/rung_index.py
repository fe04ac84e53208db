# SPDX-License-Identifier: Apache-2.0
"""Find the first rung that contains an upstream commit."""

from collections.abc import Sequence

from stack.carry.history import Index, Step
from stack.carry.ladder import Rung
from stack.carry.landing import LandingCandidates
from stack.carry.outcome import Landed
from stack.model.ids import CommitId
from stack.store import git
from stack.store.objects import Objects


class Way:
    """The rungs of a carry and the index of the upstream steps between them."""

    def __init__(self, objects: Objects, base: CommitId, rungs: Sequence[Rung], index: Index) -> None:
        self._objects = objects
        self._base = base
        self._rungs = rungs
        self._index = index
        self._inside: dict[int, frozenset[str]] = {}

    def reached(self, found: LandingCandidates, number: int) -> bool:
        """Return whether a rung contains all commits of a landing."""
        return all(self.rung(step) <= number for step in found.steps)

    def landed(self, found: LandingCandidates) -> Landed:
        """Return a landing with the commit that has most of the patch, and the first rung that has all of it."""
        best = found.steps[0]
        last = max(self.rung(step) for step in found.steps)
        return Landed(best.commit, best.subject, found.score, self._rungs[last].name)

    def rung(self, step: Step) -> int:
        """Return the number of the first rung that contains a step."""
        if self._index.releases:
            return step.number
        for number in range(len(self._rungs) - 1):
            if step.commit in self._commits(number):
                return number
        return len(self._rungs) - 1

    def _commits(self, number: int) -> frozenset[str]:
        if number not in self._inside:
            listed = ["rev-list", f"{self._base}..{self._rungs[number].commit}"]
            self._inside[number] = frozenset(git.text(listed, env={"GIT_DIR": str(self._objects.repository)}).splitlines())
        return self._inside[number]

    def word(self, found: LandingCandidates) -> str:
        """Describe a landing: the share of the patch, and the commits or releases that have it."""
        commits = " and ".join(
            step.subject if self._index.releases else f"{step.commit[:12]} {step.subject}" for step in found.steps
        )
        share = f"{found.score:.0%} in " if round(found.score, 2) < 1 else "in " if self._index.releases else ""
        number = f" (its pull request #{found.pull})" if found.pull is not None else ""
        return f"{share}{commits}{number}"
