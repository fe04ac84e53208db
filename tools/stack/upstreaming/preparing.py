# SPDX-License-Identifier: Apache-2.0
"""What planned pull requests would be opened with: title, description, what is recorded of them; and what the linter says of that."""

from collections.abc import Iterable
from functools import cached_property

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import document
from stack.model.ids import CommitId
from stack.model.series import Series
from stack.model.verdict import Verdict
from stack.store import cache as places
from stack.store import remote
from stack.upstreaming import description, duplicate_search, evidence, linting, person, recorded, rules, template, versions
from stack.upstreaming.blocks import Renewed
from stack.upstreaming.change import change
from stack.upstreaming.description import Material
from stack.upstreaming.linting import Desk, Finding, Subject
from stack.upstreaming.person import Person
from stack.upstreaming.proposal import Plan, Proposal
from stack.upstreaming.rules import Rules
from stack.upstreaming.titles import title


class Preparation:
    """The pull requests of some plans, as they would be opened now."""

    def __init__(self, stores: Stores, plans: Iterable[Plan]) -> None:
        self._stores = stores
        self._plans = {plan.upstream: plan for plan in plans}
        self._rules: dict[str, Rules] = {}
        self._ahead: dict[CommitId, int] = {}

    def record(self) -> None:
        """Write down how the proofs ended that planning has run.

        Raises:
            StackError: an earlier record is not as it was written, or it cannot be written.

        """
        evidence.record(self._stores.stack, [one for plan in self._plans.values() for one in plan.proposals])

    @cached_property
    def _verdicts(self) -> tuple[Verdict, ...]:
        return evidence.verdicts(self._stores.stack)

    @cached_property
    def _person(self) -> Person | None:
        try:
            return person.configured(self._stores.stack.root)
        except StackError:  # the linter says it, in its place
            return None

    def rules(self, upstream: str) -> Rules:
        """The rules of an upstream.

        Raises:
            StackError: they cannot be read.

        """
        if upstream not in self._rules:
            self._rules[upstream] = rules.load(upstream, self._stores.stack.root)
        return self._rules[upstream]

    def series(self, proposal: Proposal) -> Series:
        """The series of a pull request."""
        return self._stores.stack.get(proposal.series)

    def title(self, proposal: Proposal) -> str:
        """The title of a pull request."""
        return title(proposal, self.series(proposal))

    def description(self, proposal: Proposal) -> str | None:
        """The description that is kept of a pull request; None before it is written.

        Raises:
            StackError: it cannot be read.

        """
        return description.load(self._stores.stack.root, proposal)

    def material(self, proposal: Proposal) -> Material:
        """What a description is made of.

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
        """The description made anew, over the one that is kept.

        Raises:
            StackError: a record or the description cannot be read.

        """
        return description.renewed(
            self.description(proposal), self._template(proposal), self.rules(proposal.upstream), self.material(proposal)
        )

    def _template(self, proposal: Proposal) -> str | None:
        objects = self._stores.objects(proposal.upstream)
        return template.read(objects, objects.tree_of(proposal.base), self.rules(proposal.upstream).template)

    def findings(self, proposal: Proposal, desk: Desk | None) -> tuple[Finding, ...]:
        """What is against upstream's rules, errors first; without a desk style is not looked at.

        Raises:
            StackError: records, description, or upstream's own settings cannot be read, or one of its tools cannot be run.

        """
        material = self.material(proposal)
        subject = Subject(
            proposal=proposal,
            change=change(self._stores.objects(proposal.upstream), proposal, self._plans[proposal.upstream].proposals),
            title=material.title,
            description=self.description(proposal),
            template=self._template(proposal),
            evidence=material.evidence,
            searched=material.searched is not None,
            person=self._person,
            behind=self._behind(proposal) if proposal.real else None,
        )
        return linting.lint(subject, self.rules(proposal.upstream), desk)

    def _behind(self, proposal: Proposal) -> int:
        """How many commits upstream has by now that the base of a pull request lacks."""
        objects = self._stores.objects(proposal.upstream)
        base = remote.ungrafted(objects, proposal.base)
        if base not in self._ahead:
            store = objects.repository
            with places.lock(store, lambda: self._stores.tell("waiting for another process")):
                self._ahead[base] = remote.behind(store, self._stores.stack.pins.get(proposal.upstream).git, base)
        return self._ahead[base]

    def at_once(self, upstream: str, chosen: Iterable[Proposal]) -> tuple[Finding, ...]:
        """Whether so many may be open at once: those that can be opened now, and those that series.toml knows to be."""
        wanted = [one for one in chosen if one.upstream == upstream and one.wave == 1]
        opened = recorded.submitted(self._stores.stack, upstream)
        return tuple(linting.at_once(self.rules(upstream), wanted, len(opened)))


def write(stores: Stores, proposal: Proposal, renewed: Renewed) -> str:
    """Keep a description; the file, as it is shown.

    Raises:
        StackError: it cannot be written, or is larger than anybody takes.

    """
    if len(renewed.text) > template.LARGEST * 4:
        raise StackError(
            f"the description of {proposal.name} has {len(renewed.text)} characters", "shorten the patch's message"
        )
    return str(description.save(stores.stack.root, proposal, renewed.text))
