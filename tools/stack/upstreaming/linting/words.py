# SPDX-License-Identifier: Apache-2.0
"""Title and commits: their form, who signed them off, and whether they say that AI assisted."""

import re
from collections.abc import Iterator

from stack.model.patch import Patch, trailers
from stack.upstreaming.linting.finding import Finding, error, warning
from stack.upstreaming.markdown import STEERING
from stack.upstreaming.person import SIGNED, Person
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.rules import Assistance, Title
from stack.upstreaming.titles import tags

_LONG = 100
"""Characters of a title that a list of pull requests shows."""


def title(rule: Title | None, written: str) -> Iterator[Finding]:
    """The form of a title."""
    if odd := STEERING.search(written):
        yield error("title", "title", f"has the character {odd[0]!a}", "take it out of the patch's subject")
    if len(written) > _LONG:
        yield warning("title", "title", f"has {len(written)} characters", "say it in fewer words")
    if rule is None:
        return
    if not rule.pattern.fullmatch(written):
        yield error(
            "title",
            "title",
            f"is {_shown(written)}, and has to be {rule.form}",
            "name the patch's tags in series.toml: tags = [...]",
        )
    for tag in tags(written):
        if rule.tags and tag not in rule.tags:
            yield warning(
                "title",
                "title",
                f"has the tag [{_shown(tag)}], which is none of the known ones",
                "take a known one if one fits",
            )


def commits(proposal: Proposal, *, signed_off: bool, person: Person | None) -> Iterator[Finding]:
    """Messages, and who signed off; `person` is who is going to commit."""
    for patch in (part.patch for part in proposal.parts):
        if odd := STEERING.search(patch.message):
            yield error("message", patch.subject, f"has the character {odd[0]!a}", "take it out of the message")
        if not _body(patch):
            yield warning("message", patch.subject, "says nothing but its subject", "say why in the patch's message")
        if signed_off:
            yield from _signed(patch, person)


def _signed(patch: Patch, person: Person | None) -> Iterator[Finding]:
    if person is None:
        yield error(
            "sign-off", patch.subject, "nobody can sign it off: git knows no identity", "git config user.name and user.email"
        )
        return
    names = [value for key, value in trailers(patch.message) if key.lower() == SIGNED.lower()]
    author = f"{patch.author.name} <{patch.author.mail}>"
    # The one who commits is signed off when the commit is made.
    if author not in names and author != str(person):
        yield error(
            "sign-off",
            patch.subject,
            f"is not signed off by its author, {author}",
            "have the author add `Signed-off-by:`; it vouches for the origin, so nobody else can",
        )


def assistance(rule: Assistance | None, proposal: Proposal, description: str | None) -> Iterator[Finding]:
    """Whether commits and description say the same about AI assistance."""
    if rule is None:
        return
    assisted = [part.patch.subject for part in proposal.parts if _assisted(rule, part.patch)]
    said = _said(rule, description) if description is not None else None
    if assisted and said is False:
        yield error(
            "assistance", "description", f"does not say `{rule.said}`, as a commit's trailer does", "tick the box, or write it"
        )
    elif said and not assisted:
        names = ", ".join(f"`{name}:`" for name in rule.trailers)
        yield error(
            "assistance",
            proposal.parts[0].patch.subject,
            "names no assistant, as the description does",
            f"add a trailer {names}",
        )
    elif not assisted and not said:
        yield warning(
            "assistance", "description", "nothing says that AI assisted", f"if it did: tick `{rule.said}` and add a trailer"
        )


def _assisted(rule: Assistance, patch: Patch) -> bool:
    """Whether a trailer names an assistant; people are co-authors, too, by name and mail."""
    keys = {name.lower() for name in rule.trailers}
    return any(
        key.lower() in keys and (key.lower() != "co-authored-by" or not _is_person(value))
        for key, value in trailers(patch.message)
    )


def _is_person(value: str) -> bool:
    return re.search(r"<[^<>@\s]+@[^<>\s]+>", value) is not None and "noreply" not in value


def _said(rule: Assistance, description: str) -> bool:
    """Whether the words stand there: in a box that is ticked, or outside of one."""
    lines = [line for line in description.splitlines() if rule.said in line]
    return any(not re.match(r"\s*[-*] \[ \]", line) for line in lines)


def _body(patch: Patch) -> str:
    """A message without its subject and trailers."""
    body = patch.message.partition("\n")[2].strip()
    return "" if trailers(patch.message) and "\n\n" not in body else body


def _shown(text: str) -> str:
    return f"`{text[:_LONG]}`" if len(text) <= _LONG else f"`{text[:_LONG]}...`"
