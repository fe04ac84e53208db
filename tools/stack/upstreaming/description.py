# SPDX-License-Identifier: Apache-2.0
"""Write a pull request's description: upstream's template, filled in from the patches' messages and recorded results.

The description is kept as a file that a person edits. Generated parts stand between marks; a part is written again only if
nobody has edited it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stack.base.text import counted
from stack.model import document
from stack.model.patch import Patch, trailers
from stack.model.series import Series
from stack.upstreaming import blocks, pr_sidecar_files, template
from stack.upstreaming.blocks import Renewed
from stack.upstreaming.evidence import Evidence, Measured
from stack.upstreaming.markdown import cell, escaped, unwrapped
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.rules import Rules
from stack.upstreaming.titles import tags

NOTHING_RECORDED = "Nothing is recorded that validates this change by itself."
NOT_SEARCHED = "No search for pull requests that do the same is recorded."
NOT_MEASURED = "No measurement against a baseline is recorded."
_SUFFIX = ".md"
_NEAREST = 5
_WHOLE = 100
"""Numbers from here on are shown without a fraction."""
_ROLES = ("summary", "claims", "validation", "details")


class Near(Protocol):
    """An open pull request that a search has found."""

    @property
    def number(self) -> int:
        """The pull request's number."""

    @property
    def title(self) -> str:
        """The title, as its author wrote it."""

    @property
    def score(self) -> float:
        """The share of added lines in common with ours, from 0 to 1."""


class Searched(Protocol):
    """The record of a search for pull requests that do the same."""

    @property
    def made(self) -> str:
        """The time of the search, in ISO 8601."""

    @property
    def queries(self) -> tuple[str, ...]:
        """The texts that were searched for."""

    @property
    def found(self) -> Sequence[Near]:
        """The pull requests that were found, the most similar first."""


@dataclass(frozen=True, slots=True)
class Material:
    """The inputs of a description.

    `since` is the range-diff to the version that was pushed before, None if there is none.
    """

    proposal: Proposal
    series: Series
    title: str
    evidence: Evidence
    searched: Searched | None = None
    since: str | None = None


def load(root: Path, proposal: Proposal) -> str | None:
    """Read the description that is kept; None if there is none.

    Raises:
        StackError: the file cannot be read, or is not UTF-8.

    """
    file = pr_sidecar_files.file(root, proposal, _SUFFIX)
    return document.read_text(file) if file.exists() else None


def save(root: Path, proposal: Proposal, text: str) -> Path:
    """Write a description to its file, and return the file's path.

    Raises:
        StackError: the file cannot be written.

    """
    return pr_sidecar_files.put(root, proposal, _SUFFIX, text)


def body(text: str) -> str:
    """Return the description as it is sent to the forge: without the marks."""
    return blocks.bare(text).strip() + "\n"


def renewed(before: str | None, given: str | None, rules: Rules, material: Material) -> Renewed:
    """Write the description again.

    The text starts from `before`, the description that is kept. Without it, the text starts from `given`, upstream's template;
    without both, from the headings in the rules.
    """
    parts = _parts(rules, material)
    if before is not None:
        return blocks.renewed(before, parts)
    return Renewed(_filled(given if given is not None else template.made(rules.template), rules, parts))


def _filled(text: str, rules: Rules, parts: Mapping[str, str]) -> str:
    """Put each part into its section of a template; a part without a section goes into the first section with a heading."""
    sections_of_template = template.sections(text)
    words = [section.words for section in sections_of_template]
    homes = {role: getattr(rules.template, role) for role in _ROLES}
    first = next((number for number, section in enumerate(sections_of_template) if section.line), 0)
    made = []
    for number, section in enumerate(sections_of_template):
        here = [role for role in _ROLES if (words.index(homes[role]) if homes[role] in words else first) == number]
        made.append(
            (f"{section.line}\n" if section.line else "")
            + _with(section.text, [blocks.block(role, parts[role]) for role in here])
        )
    return "\n".join(made)


def _with(text: str, added: Sequence[str]) -> str:
    """Append parts to a section's own text, but before a rule or checkboxes at its end."""
    if not added:
        return text
    end = re.search(r"^(?:---\s*$|\s*[-*] \[[ xX]\] |<details>)", text, re.MULTILINE)
    head, tail = (text[: end.start()], text[end.start() :]) if end else (text, "")
    above = head.rstrip("\n") + "\n" if head.strip() else ""
    return "\n".join([above, *added, *filter(None, [tail.lstrip("\n")])])


def _parts(rules: Rules, material: Material) -> dict[str, str]:
    messages = [part.patch for part in material.proposal.parts]
    fast = rules.title is not None and any(tag in rules.title.speeds for tag in tags(material.title))
    return {
        "summary": "\n\n".join(filter(None, (_paragraphs(patch)[0] for patch in messages))) or escaped(material.series.title),
        "claims": "\n".join(f"- {escaped(patch.subject)}" for patch in messages),
        "validation": "\n\n".join(
            filter(None, (_validation(material.evidence), _measurements(material.evidence) if fast else ""))
        ),
        "details": "\n\n".join(filter(None, _details(material, messages))),
    }


def _paragraphs(patch: Patch) -> tuple[str, str]:
    """Return the first paragraph of a message, and the rest without the trailers."""
    body = patch.message.partition("\n")[2].strip("\n")
    if trailers(patch.message):
        body = body.rpartition("\n\n")[0]
    first, _, rest = body.partition("\n\n")
    return unwrapped(escaped(first.strip())), unwrapped(escaped(rest.strip("\n")))


def _validation(evidence: Evidence) -> str:
    table = ["| command | where | result |", "|---|---|---|"]
    table += [f"| `{row.command}` | {cell(row.where)} | {cell(row.outcome)} |" for row in evidence.rows]
    rows = "\n".join(table) if evidence.rows else ""
    return "\n\n".join(filter(None, (rows, "" if evidence.proves else NOTHING_RECORDED)))


def _measurements(evidence: Evidence) -> str:
    against = [measured for measured in evidence.measured if "ratio" in measured.numbers]
    if not against:
        return NOT_MEASURED
    runs = {measured.name: measured.numbers["runs"] for measured in evidence.measured if "runs" in measured.numbers}
    table = ["| measured | tokens/s | baseline | ratio | spread | where |", "|---|---|---|---|---|---|"]
    for measured in against:
        numbers = [_number(measured, key) for key in ("tok/s", "tok/s of the other", "ratio", "spread")]
        table.append(f"| {' | '.join([cell(measured.name), *numbers, cell(measured.where)])} |")
    entries = [f"- {cell(name)}: {cell(str(each))}" for name, each in runs.items()]
    each = ["<details><summary>Each run, tokens/s</summary>", "", *entries, "", "</details>"] if entries else []
    return "\n".join([*table, "", *each]).strip()


def _number(measured: Measured, key: str) -> str:
    value = measured.numbers.get(key, "")
    return cell(value) if isinstance(value, str) else f"{value:.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"


def _details(material: Material, messages: Iterable[Patch]) -> Iterable[str]:
    yield from (_paragraphs(patch)[1] for patch in messages)
    yield _folded("What the series is for that this belongs to", escaped(material.series.why.strip()))
    if material.proposal.needs:
        yield "It stands on: " + ", ".join(cell(name) for name in material.proposal.needs)
    yield "Why it is no duplicate: " + _search(material.searched)
    if material.since:
        yield _folded("What has changed since the last version", _quoted(material.since))


def _search(searched: Searched | None) -> str:
    if searched is None:
        return NOT_SEARCHED
    queried = ", ".join(f"`{' '.join(query.replace('`', ' ').split())}`" for query in searched.queries)
    nearest = [f"- {near.score:.2f} of {cell(f'#{near.number} {near.title}')}" for near in searched.found[:_NEAREST]]
    shared = (
        "\n\nThe share of added lines that it has in common with the nearest of them:\n\n" + "\n".join(nearest)
        if nearest
        else ""
    )
    compared = counted(len(searched.found), "open pull request was", "open pull requests were")
    return f"{compared} compared on {cell(searched.made[:10])}, found by {queried or 'no query'}.{shared}"


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def _quoted(text: str) -> str:
    """Quote a text as a code block, with a fence longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.strip()}\n{fence}"
