# SPDX-License-Identifier: Apache-2.0
"""Check title and commits: their form, their sign-offs, and their statements about AI assistance."""

import re
from collections.abc import Iterator

from stack.carry.person import SIGNED, Person
from stack.model.patch import Patch, trailers
from stack.upstreaming.linting.finding import LintFinding, error, warning
from stack.upstreaming.markdown import STEERING
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.rules import Assistance, Title
from stack.upstreaming.titles import tags

_LONG = 100
"""Characters of a title that fit into a list of pull requests."""


def title(rule: Title | None, written: str) -> Iterator[LintFinding]:
    """Check a title's form."""
    if odd := STEERING.search(written):
        yield error("title", "title", f"has the character {odd[0]!a}", "take it out of the patch's subject")
    if len(written) > _LONG:
        yield warning("title", "title", f"has {len(written)} characters", "shorten it")
    if rule is None:
        return
    if not rule.pattern.fullmatch(written):
        yield error(
            "title",
            "title",
            f"is {_shown(written)}, but has to be {rule.form}",
            "name the patch's tags in series.toml: tags = [...]",
        )
    for tag in tags(written):
        if rule.tags and tag not in rule.tags:
            yield warning(
                "title",
                "title",
                f"has the tag [{_shown(tag)}], which is not a known one",
                "use a known one if one fits",
            )


def commits(proposal: Proposal, *, signed_off: bool, person: Person | None) -> Iterator[LintFinding]:
    """Check messages and sign-offs; `person` is the identity that will commit."""
    for patch in (part.patch for part in proposal.parts):
        if odd := STEERING.search(patch.message):
            yield error("message", patch.subject, f"has the character {odd[0]!a}", "take it out of the message")
        if not _body(patch):
            yield warning("message", patch.subject, "has no text below its subject", "say why in the patch's message")
        if signed_off:
            yield from _signed(patch, person)


def _signed(patch: Patch, person: Person | None) -> Iterator[LintFinding]:
    if person is None:
        yield error(
            "sign-off", patch.subject, "cannot be signed off: git knows no identity", "git config user.name and user.email"
        )
        return
    names = [value for key, value in trailers(patch.message) if key.lower() == SIGNED.lower()]
    author = f"{patch.author.name} <{patch.author.mail}>"
    # The committer's sign-off is added when the commit is made.
    if author not in names and author != str(person):
        yield error(
            "sign-off",
            patch.subject,
            f"is not signed off by its author, {author}",
            "have the author add `Signed-off-by:`; it vouches for the origin, so nobody else can",
        )


def assistance(rule: Assistance | None, proposal: Proposal, description: str | None) -> Iterator[LintFinding]:
    """Check that commits and description agree about AI assistance."""
    if rule is None:
        return
    assisted = [part.patch.subject for part in proposal.parts if _assisted(rule, part.patch)]
    declared = _said(rule, description) if description is not None else None
    if assisted and declared is False:
        yield error(
            "assistance", "description", f"does not say `{rule.said}`, but a commit's trailer does", "tick the box, or write it"
        )
    elif declared and not assisted:
        names = ", ".join(f"`{name}:`" for name in rule.trailers)
        yield error(
            "assistance",
            proposal.parts[0].patch.subject,
            "names no assistant, but the description does",
            f"add a trailer {names}",
        )
    elif not assisted and not declared:
        yield warning(
            "assistance", "description", "nothing says that AI assisted", f"if it did: tick `{rule.said}` and add a trailer"
        )


def _assisted(rule: Assistance, patch: Patch) -> bool:
    """Return whether a trailer names an assistant. A co-author with name and mail address is a person."""
    keys = {name.lower() for name in rule.trailers}
    return any(
        key.lower() in keys and (key.lower() != "co-authored-by" or not _is_person(value))
        for key, value in trailers(patch.message)
    )


def _is_person(value: str) -> bool:
    return re.search(r"<[^<>@\s]+@[^<>\s]+>", value) is not None and "noreply" not in value


def _said(rule: Assistance, description: str) -> bool:
    """Return whether the description contains the words outside of a checkbox or in a ticked one."""
    lines = [line for line in description.splitlines() if rule.said in line]
    return any(not re.match(r"\s*[-*] \[ \]", line) for line in lines)


def _body(patch: Patch) -> str:
    """Return a message without its subject and trailers."""
    body = patch.message.partition("\n")[2].strip()
    return "" if trailers(patch.message) and "\n\n" not in body else body


def _shown(text: str) -> str:
    return f"`{text[:_LONG]}`" if len(text) <= _LONG else f"`{text[:_LONG]}...`"
