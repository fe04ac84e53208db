# SPDX-License-Identifier: Apache-2.0
"""Collect what a planned pull request would be opened with (title, description, recorded results), and lint it."""

from collections.abc import Iterable
from functools import cached_property

from stack.base.errors import StackError
from stack.carry import person
from stack.carry.person import Person
from stack.carry.upstream_stores import Stores
from stack.model import document
from stack.model.ids import CommitId
from stack.model.series import Series
from stack.model.verdict import Verdict
from stack.store import cache as places
from stack.store import remote
from stack.upstreaming import description, duplicate_search, evidence, linting, recorded, rules, template, versions
from stack.upstreaming.blocks import Renewed
from stack.upstreaming.change import change
from stack.upstreaming.description import Material
from stack.upstreaming.linting import Desk, LintFinding, LintTarget
from stack.upstreaming.proposal import Proposal, UpstreamPlan
from stack.upstreaming.rules import Rules
from stack.upstreaming.titles import title


class Preparation:
    """The pull requests of some plans, as they would be opened now."""

    def __init__(self, stores: Stores, plans: Iterable[UpstreamPlan]) -> None:
        self._stores = stores
        self._plans = {plan.upstream: plan for plan in plans}
        self._rules: dict[str, Rules] = {}
        self._ahead: dict[CommitId, int] = {}

    def record(self) -> None:
        """Record the results of the proofs that planning ran.

        Raises:
            StackError: an earlier record is damaged, or the record cannot be written.

        """
        evidence.record(self._stores.stack, [proposal for plan in self._plans.values() for proposal in plan.proposals])

    @cached_property
    def _verdicts(self) -> tuple[Verdict, ...]:
        return evidence.verdicts(self._stores.stack)

    @cached_property
    def _person(self) -> Person | None:
        try:
            return person.configured(self._stores.stack.root)
        except StackError:  # the linter reports a missing identity
            return None

    def rules(self, upstream: str) -> Rules:
        """Load the rules of an upstream.

        Raises:
            StackError: they cannot be read.

        """
        if upstream not in self._rules:
            self._rules[upstream] = rules.load(upstream, self._stores.stack.root)
        return self._rules[upstream]

    def series(self, proposal: Proposal) -> Series:
        """Return the series of a pull request."""
        return self._stores.stack.get(proposal.series)

    def title(self, proposal: Proposal) -> str:
        """Return the title of a pull request."""
        return title(proposal, self.series(proposal))

    def description(self, proposal: Proposal) -> str | None:
        """Load the description that is kept for a pull request; None before it is written.

        Raises:
            StackError: it cannot be read.

        """
        return description.load(self._stores.stack.root, proposal)

    def material(self, proposal: Proposal) -> Material:
        """Collect the inputs of a pull request's description.

        Raises:
            StackError: a record cannot be read.

        """
        root = self._stores.stack.root
        since = versions.file_of(root, proposal)
        return Material(
            proposal=proposal,
            series=self.series(proposal),
            title=self.title(proposal),
            evidence=evidence.evidence(proposal, self._verdicts),
            searched=duplicate_search.kept(root, proposal),
            since=document.read_text(since) if since.is_file() else None,
        )

    def renewed(self, proposal: Proposal) -> Renewed:
        """Write the description again, starting from the one that is kept.

        Raises:
            StackError: a record or the description cannot be read.

        """
        return description.renewed(
            self.description(proposal), self._template(proposal), self.rules(proposal.upstream), self.material(proposal)
        )

    def _template(self, proposal: Proposal) -> str | None:
        objects = self._stores.objects(proposal.upstream)
        return template.read(objects, objects.tree_of(proposal.base), self.rules(proposal.upstream).template)

    def findings(self, proposal: Proposal, desk: Desk | None, text: str | None = None) -> tuple[LintFinding, ...]:
        """Check a pull request against upstream's rules, errors first; without a desk, style is not checked.

        `text` is its description; by default the one that is kept.

        Raises:
            StackError: records, the description or upstream's settings cannot be read, or one of its tools cannot be run.

        """
        material = self.material(proposal)
        subject = LintTarget(
            proposal=proposal,
            change=change(self._stores.objects(proposal.upstream), proposal, self._plans[proposal.upstream].proposals),
            title=material.title,
            description=self.description(proposal) if text is None else text,
            template=self._template(proposal),
            evidence=material.evidence,
            searched=material.searched is not None,
            person=self._person,
            behind=self._behind(proposal) if proposal.real else None,
        )
        return linting.lint(subject, self.rules(proposal.upstream), desk)

    def _behind(self, proposal: Proposal) -> int:
        """Count the commits of upstream that a pull request's base lacks."""
        objects = self._stores.objects(proposal.upstream)
        base = remote.ungrafted(objects, proposal.base)
        if base not in self._ahead:
            store = objects.repository
            with places.lock(store, lambda: self._stores.tell("waiting for another process")):
                self._ahead[base] = remote.behind(store, self._stores.stack.pins.get(proposal.upstream).git, base)
        return self._ahead[base]

    def at_once(self, upstream: str, chosen: Iterable[Proposal]) -> tuple[LintFinding, ...]:
        """Check the number of pull requests open at once: those that can be opened now, and those recorded in `series.toml`."""
        wanted = [proposal for proposal in chosen if proposal.upstream == upstream and proposal.wave == 1]
        opened = recorded.submitted(self._stores.stack, upstream)
        return tuple(linting.at_once(self.rules(upstream), wanted, len(opened)))


def write(stores: Stores, proposal: Proposal, renewed: Renewed) -> str:
    """Write a description to its file, and return the file's path as text.

    Raises:
        StackError: the file cannot be written, or the description is too large for a forge.

    """
    if len(renewed.text) > template.LARGEST * 4:
        raise StackError(
            f"the description of {proposal.name} has {len(renewed.text)} characters", "shorten the patch's message"
        )
    return str(description.save(stores.stack.root, proposal, renewed.text))
