# SPDX-License-Identifier: Apache-2.0
"""Lists of patches with their outcomes: a summary, then what needs a person with all evidence, then the rest in few lines.

On a terminal the rest is grouped by series, one line a patch. What does not fit the screen is only counted: first patches that
are carried as they were, then those that moved to other lines. In a pipe each patch has its line with its whole name.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import click

from stack.base.text import counted
from stack.cli.rendering import settings, table, terminal, text

_ORDER = ("conflict", "drifted", "dropped-upstream", "landed", "partly-landed", "resolved", "relocated", "clean", "moved")
_COUNTED = (frozenset[str](), frozenset({"clean"}), frozenset({"clean", "moved"}))
"""The outcomes that are only counted, from a high screen to a low one."""
_LOWEST = 24
_REST = 4
"""Lines of the screen for the prompt and the last sentences."""
_NARROW = 12
"""Columns below which evidence is left out, unless the line has to name it."""
_NAMED = frozenset({"landed", "partly-landed", "resolved"})
"""The outcomes whose lines name their evidence on every terminal."""
_BY_HAND = "resolved by hand"
_COMMIT = re.compile(r"\b[0-9a-f]{12}\b")


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A patch to list: its name, `series` (empty without one), outcome and evidence; `details` are the lines below."""

    name: str
    series: str
    outcome: str
    needs_person: bool
    evidence: str = ""
    details: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name below its series."""
        return self.name.rpartition("/")[2] if self.series else self.name

    @property
    def names_evidence(self) -> bool:
        """Whether the line always names its evidence: the commit that brought the patch, or that a person resolved it."""
        return bool(self.evidence) and (self.outcome in _NAMED or _BY_HAND in self.evidence)


@dataclass(frozen=True, slots=True)
class Section:
    """Patches of one upstream, below its own lines."""

    heads: tuple[str, ...]
    lines: tuple[PatchLine, ...]
    hidden: int = 0
    """How many patches are left out since they are as before."""


def all_option() -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Return the option `--all` of verbs that list patches."""
    return click.option(
        "--all",
        "output_every",
        is_flag=True,
        expose_value=False,
        callback=lambda _context, _option, value: settings.use(every=True) if value else None,
        help="List every patch, also where the screen is too low for all.",
    )


def summary(lines: Sequence[PatchLine], onto: str = "") -> str:
    """Return how many patches have which outcome: `27 patches onto vllm v0.33.0: 9 clean, 18 moved`."""
    found = Counter(line.outcome for line in lines)
    known = [name for name in (*_ORDER, *sorted(found.keys() - set(_ORDER))) if name in found]
    return f"{counted(len(lines), 'patch')}{onto and f' onto {onto}'}: " + ", ".join(f"{found[name]} {name}" for name in known)


def print_sections(sections: Sequence[Section], colour: Callable[[str], str | None]) -> None:
    """Print sections of patches."""
    columns = terminal.columns()
    if columns is None:
        for section in sections:
            _print_plain(section, colour)
        return
    for block in _fitting(sections, columns):
        for line, style in block:
            text.echo(text.styled(line, colour(style) or style) if style else line)


def _print_plain(section: Section, colour: Callable[[str], str | None]) -> None:
    for head in section.heads:
        text.echo(head)
    shown = [line for line in section.lines if line.needs_person or not settings.current().quiet]
    ordered = sorted(shown, key=lambda line: not line.needs_person)
    rows = [row for line in ordered for row in _rows(line)]
    if rows:
        table.print_table(("patch", "outcome", ""), rows, colour=colour)
    if section.hidden:
        text.echo(_as_before(section.hidden))
    text.echo()


def _rows(line: PatchLine) -> Iterator[tuple[str, str, str]]:
    yield line.name, line.outcome, line.evidence
    yield from (("", "", detail) for detail in line.details)


def _as_before(number: int) -> str:
    return f"{counted(number, 'patch')} as before"


_Line = tuple[str, str]
"""A line and its style, or the outcome that decides its colour."""


def _fitting(sections: Sequence[Section], columns: int) -> list[list[_Line]]:
    """Return the sections' lines, with as many patches one by one as fit the screen."""
    room = max(shutil.get_terminal_size((80, 40)).lines, _LOWEST) - _REST
    chosen = settings.current()
    blocks: list[list[_Line]] = []
    for folded in _COUNTED:
        blocks = [list(_block(section, folded, columns)) for section in sections]
        if chosen.every or chosen.verbose or chosen.quiet or sum(map(len, blocks)) <= room:
            break
    return blocks


def _block(section: Section, folded: frozenset[str], columns: int) -> Iterator[_Line]:
    yield from ((part, "bold") for head in section.heads for part in table.wrap(head, columns))
    for line in section.lines:
        if line.needs_person:
            yield from _expanded(line, columns)
    rest = [] if settings.current().quiet else [line for line in section.lines if not line.needs_person]
    for series, members in groupby(rest, key=lambda line: line.series):
        yield from _group(series, list(members), folded, columns)
    if section.hidden:
        yield _as_before(section.hidden), ""


def _expanded(line: PatchLine, columns: int) -> Iterator[_Line]:
    """Yield the lines of a patch that needs a person: nothing is shortened."""
    yield f"{line.outcome}  {line.name}", line.outcome
    for detail in (line.evidence, *line.details):
        yield from ((f"    {part}", "") for part in (table.wrap(text.one_line(detail), columns - 4) if detail else ()))


def _group(series: str, members: Sequence[PatchLine], folded: frozenset[str], columns: int) -> Iterator[_Line]:
    """Yield the lines of a series' patches: a heading, or the series in front of a single one."""
    shown = [line for line in members if line.outcome not in folded or line.details or line.names_evidence]
    number = Counter(line.outcome for line in members if line not in shown)
    counts = ", ".join(f"{number[name]} {name}" for name in _ORDER if number[name])
    alone = len(members) == 1
    if series and not alone:
        yield (f"{series}: {counts}" if counts else series), ""
    elif counts:
        yield (f"{series}: {counts}" if series else counts), ""
    for line in shown:
        label = f"{series}/{line.label}" if series and alone else line.label
        yield from _short(line, label, "" if alone or not series else "  ", columns)


def _short(line: PatchLine, label: str, indent: str, columns: int) -> Iterator[_Line]:
    """Yield outcome, name and as much of the evidence as fits one line; all of it with `-v`.

    Evidence that has to be named goes to a second line if the first has no room for its commit.
    """
    lead = f"{indent}{line.outcome:<7} "
    if settings.current().verbose:
        yield lead + label, line.outcome
        for detail in (line.evidence, *line.details):
            yield from (
                (f"{indent}    {part}", "") for part in (table.wrap(text.one_line(detail), columns - 6) if detail else ())
            )
        return
    name = text.shortened(text.one_line(label), columns - len(lead))
    evidence = text.one_line("; ".join(filter(None, (line.evidence, *line.details))))
    left = columns - len(lead) - len(name) - 2
    beginning = _beginning(evidence, left) if evidence and left >= _NARROW else ""
    if line.names_evidence and not _names(beginning, evidence):
        yield f"{lead}{name}", line.outcome
        yield from ((f"{indent}    {part}", "") for part in _second(evidence, columns - len(indent) - 4))
    else:
        yield f"{lead}{name}  {beginning}".rstrip(), line.outcome


def _second(evidence: str, columns: int) -> list[str]:
    """Return one line of evidence; several lines if one does not reach to the commit."""
    beginning = _beginning(evidence, columns)
    return [beginning] if _names(beginning, evidence) else table.wrap(evidence, columns)


def _names(beginning: str, evidence: str) -> bool:
    """Return whether the beginning of evidence has the first commit of the evidence; without a commit, any beginning will do."""
    commit = _COMMIT.search(evidence)
    return bool(beginning) if commit is None else commit[0] in beginning


def _beginning(sentence: str, most: int) -> str:
    """Return the beginning of a sentence, cut between words; nothing if fewer than three words fit, and no commit."""
    if len(sentence) <= most:
        return sentence
    cut = sentence[: most - len(terminal.ellipsis())].rpartition(" ")[0]
    return cut + terminal.ellipsis() if cut.count(" ") > 1 or _COMMIT.search(cut) else ""
