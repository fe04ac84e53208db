# SPDX-License-Identifier: Apache-2.0
"""Check a pull request against its upstream's rules."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stack.carry.person import Person
from stack.upstreaming.change import Change
from stack.upstreaming.evidence import Evidence
from stack.upstreaming.linting import contents, described, extent, words
from stack.upstreaming.linting.finding import LintFinding, Severity
from stack.upstreaming.linting.style import Desk
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.rules import Rules

__all__ = ["Desk", "LintFinding", "LintTarget", "Severity", "at_once", "lint"]

at_once = extent.at_once


@dataclass(frozen=True, slots=True)
class LintTarget:
    """A pull request before it is opened, with everything that the checks read.

    `description` is None before it is written; `template` is the upstream's own, None if its tree has none. `evidence` is the
    recorded validation, and `searched` is true if a search for duplicates is recorded. `person` is the identity that commits,
    None if git has none configured. `behind` is the number of commits that the base lacks, None if unknown.
    """

    proposal: Proposal
    change: Change
    title: str
    description: str | None = None
    template: str | None = None
    evidence: Evidence = field(default_factory=Evidence)
    searched: bool = False
    person: Person | None = None
    behind: int | None = None


def lint(subject: LintTarget, rules: Rules, desk: Desk | None) -> tuple[LintFinding, ...]:
    """Return the violations of the rules, errors first; without a desk, style is not checked.

    Raises:
        StackError: upstream's configuration cannot be read, or one of its tools cannot be installed or run.

    """
    found = list(_findings(subject, rules))
    if desk is not None:
        found += desk.check(rules.style, subject.change)
    return tuple(sorted(found, key=lambda finding: not finding.blocks))


def _findings(subject: LintTarget, rules: Rules) -> Iterator[LintFinding]:
    proposal, change, description = subject.proposal, subject.change, subject.description
    texts: Sequence[str] = [*(part.patch.message for part in proposal.parts), description or ""]
    yield from words.title(rules.title, subject.title)
    yield from words.commits(proposal, signed_off=rules.signed_off, person=subject.person)
    yield from words.assistance(rules.assistance, proposal, description)
    yield from extent.standing(proposal, subject.behind)
    yield from extent.size(rules, change, subject.title, texts)
    yield from contents.tests(rules.tests, change)
    yield from contents.docs(rules.docs, change)
    yield from contents.headers(rules.header, change)
    yield from contents.forbidden(rules.forbidden, change)
    yield from contents.names(change)
    yield from described.described(rules, description, subject.template)
    yield from described.recorded(rules, subject.title, description, subject.evidence, searched=subject.searched)
