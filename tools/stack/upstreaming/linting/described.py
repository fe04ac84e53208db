# SPDX-License-Identifier: Apache-2.0
"""Check the description: it keeps upstream's template, every section is filled in, and its results are those recorded."""

from collections.abc import Iterator, Sequence

from stack.upstreaming import blocks, description, template
from stack.upstreaming.evidence import Evidence
from stack.upstreaming.linting.finding import LintFinding, error, warning
from stack.upstreaming.rules import Rules
from stack.upstreaming.titles import tags

_WRITE = "`stack export-pr --edit` writes it"
_LONGEST = 65_536
"""Maximal characters of a description on GitHub."""


def described(rules: Rules, text: str | None, given: str | None) -> Iterator[LintFinding]:
    """Check the form: the template's sections in their order, and its checkboxes.

    `given` is upstream's own template, None if the tree has none.
    """
    if text is None:
        yield error("description", "description", "is not written", _WRITE)
        return
    if given is None and rules.template.files:
        yield warning(
            "template",
            rules.template.files[0],
            "is not in the tree: only the headings are known",
            "archives may lack it: --source git",
        )
    if len(text) > _LONGEST:
        yield error("description", "description", f"has {len(text)} characters, GitHub takes {_LONGEST}", "shorten it")
    wanted = template.sections(given if given is not None else template.made(rules.template))
    have = template.sections(description.body(text))
    yield from _order([section.line for section in wanted if section.line], [section.line for section in have])
    boxes = template.boxes(description.body(text))
    for box in template.boxes(given or ""):
        if box not in boxes:
            yield error(
                "template",
                "description",
                f"lacks the box `{box.strip()[:80]}`",
                "copy it unchanged from upstream's template",
            )
    filled = {
        role
        for role in (rules.template.summary, rules.template.claims, rules.template.validation, rules.template.details)
        if role
    }
    for section in have:
        if section.words in filled and section.is_empty:
            yield error("description", section.line, "is empty", "fill it in")


def _order(wanted: Sequence[str], have: Sequence[str]) -> Iterator[LintFinding]:
    missing = [line for line in wanted if line not in have]
    for line in missing:
        yield error("template", "description", f"lacks the section `{line[:80]}`", "copy it unchanged from upstream's template")
    places = [have.index(line) for line in wanted if line in have]
    if not missing and places != sorted(places):
        yield error("template", "description", "has the template's sections in another order", "use the template's order")


def recorded(rules: Rules, title: str, text: str | None, evidence: Evidence, *, searched: bool) -> Iterator[LintFinding]:
    """Check the contents: validation, measurements and the search for duplicates are recorded, and quoted unchanged."""
    if not evidence.proves:
        yield error(
            "validation",
            "description",
            "no validation of it is recorded",
            "run it without --no-tests, or `stack validate serve`",
        )
    elif text is not None and not blocks.intact(text, "validation"):
        yield error(
            "validation",
            "description",
            "its results were edited by hand, or are missing",
            "write outside of the marks; delete the file to have it generated again",
        )
    fast = rules.title is not None and any(tag in rules.title.speeds for tag in tags(title))
    if fast and not any("ratio" in measured.numbers for measured in evidence.measured):
        yield error(
            "measurements",
            "description",
            "it promises speed, but no measurement against a baseline is recorded",
            "`stack validate bench`",
        )
    if not searched:
        yield error(
            "duplicates",
            "description",
            "no search for pull requests that do the same is recorded",
            "--push and --open make it, with --source git",
        )
