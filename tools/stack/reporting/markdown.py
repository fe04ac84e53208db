# SPDX-License-Identifier: Apache-2.0
"""Write a report as Markdown for a pull request or a job summary.

Foreign text stands in code spans, where GitHub makes no links, mentions, references to issues, or markup of it.
"""

from collections.abc import Iterator

from stack.base.markdown import code, table_row, words
from stack.carry.evidence import CAUSE
from stack.reporting.charts import day
from stack.reporting.looks import LOOKS
from stack.reporting.report import Ladder, Report, Row, age_words, by_release, how_many

LARGEST = 60_000
"""Characters of the longest text: GitHub refuses the text of a pull request with more than 65,536."""
_WIDEST = 40
"""Releases in the widest table."""


def render(report: Report) -> str:
    """Return the text. If it would be too long for a pull request, it leaves out patches that need nobody, and says so."""
    for quiet in (True, False):
        text = "\n".join(_lines(report, quiet=quiet)) + "\n"
        if len(text) <= LARGEST:
            return text
    cut = text[: LARGEST - 100].rpartition("\n")[0]
    return f"{cut}\n\nThis text was cut, since it is too long for a pull request.\n"


def _summary(ladder: Ladder) -> str:
    counts = ", ".join(f"{number} {outcome.value}" for outcome, number in ladder.counts.items())
    upstream = f" of {words(ladder.upstream)}" if ladder.upstream else ""
    return f"{how_many(len(ladder.rows))}{upstream} onto {words(ladder.new)}: {counts}"


def _lines(report: Report, *, quiet: bool) -> Iterator[str]:
    yield f"# {words(report.title)}"
    yield ""
    for ladder in report.ladders:
        yield f"- {_summary(ladder)}"
    for note in report.notes:
        yield f"- {words(note)}"
    pins = ", ".join(code(f"{pin.upstream} {pin.tag or pin.commit}") for pin in report.pins)
    if pins:
        yield f"- Pins: {pins}"
    if report.digest is not None:
        yield f"- Stack digest: `{report.digest}`"
    yield from _needing(report)
    for ladder in report.ladders:
        yield from _ladder(ladder, quiet=quiet)
    if quiet:
        yield from _reasons(report)
    yield from _series(report)
    yield from _numbers(report)
    yield from _landed(report)
    yield ""
    yield f"Made by `stack` on {day(report.made)}."


def _needing(report: Report) -> Iterator[str]:
    rows = [row for ladder in report.ladders for row in ladder.open]
    if rows:
        yield from ("", "## Needs a person", "")
        for row in rows:
            yield from _reason(row)


def _reason(row: Row) -> Iterator[str]:
    where = f" at {code(row.decided)}" if row.decided else ""
    yield f"- {code(row.name)}: **{row.outcome.value}**{where}"
    for line in row.evidence:
        yield f"{'    - ' if line.startswith(CAUSE) else '  - '}{code(line)}"


def _ladder(ladder: Ladder, *, quiet: bool) -> Iterator[str]:
    upstream = f"{ladder.upstream}: " if ladder.upstream else ""
    yield from ("", f"## {words(f'{upstream}{ladder.old} to {ladder.new}')}", "")
    rows = [row for row in ladder.rows if quiet or row.open]
    releases = ladder.releases[-_WIDEST:]
    yield table_row(("patch", *(code(release) for release in releases), "result"))
    yield table_row(["---"] * (len(releases) + 2))
    for row in rows:
        cells = [f"**{LOOKS[cell.outcome].letter}**" if cell and cell.open else LOOKS[cell.outcome].letter if cell else ""
                 for cell in row.cells[-_WIDEST:]]  # fmt: skip
        where = f" ({code(row.decided)})" if row.decided and len(ladder.releases) > 1 else ""
        yield table_row((code(row.name), *cells, f"{row.outcome.value}{where}"))
    if len(rows) < len(ladder.rows):
        yield ""
        yield f"{len(ladder.rows) - len(rows)} patches that need nobody are left out, since the text would be too long."
    if len(releases) < len(ladder.releases):
        yield ""
        yield f"The first {len(ladder.releases) - len(releases)} releases are left out."
    seen = {cell.outcome for row in rows for cell in row.cells if cell is not None}
    yield ""
    yield ", ".join(f"{look.letter}: {outcome.value}" for outcome, look in LOOKS.items() if outcome in seen) + (
        "; bold: needs a person" if ladder.open else ""
    )


def _reasons(report: Report) -> Iterator[str]:
    rows = [row for ladder in report.ladders for row in ladder.rows if not row.open and row.evidence]
    if not rows:
        return
    yield from ("", "<details><summary>Why, patch by patch</summary>", "")
    for row in rows:
        yield from _reason(row)
    yield from ("", "</details>")


def _series(report: Report) -> Iterator[str]:
    if not report.series:
        return
    yield from ("", "## Series", "", table_row(("series", "state", "needs", "patches", "lines")), table_row(["---"] * 5))
    for each in report.series:
        patches = [patch for patch in report.patches if patch.series == each.name]
        size = f"+{sum(patch.added for patch in patches)} -{sum(patch.removed for patch in patches)}" if patches else ""
        yield table_row((code(each.name), each.state, code(", ".join(each.needs)), str(len(patches)), size))


def _numbers(report: Report) -> Iterator[str]:
    if report.patches:
        ages = ", ".join(f"{name}: {number}" for name, number in report.ages() if number)
        oldest = max(report.patches, key=lambda patch: report.age(patch) or 0)
        yield from ("", "## Ages", "")
        yield f"{ages}. The oldest is {code(oldest.name)} ({age_words(report.age(oldest))})."
    if report.points:
        first, last = report.points[0], report.points[-1]
        most = max(report.points, key=lambda point: point.lines)
        yield from ("", "## Lines carried over time", "", table_row(("", "date", "patches", "lines")), table_row(["---"] * 4))
        for name, point in (("first", first), ("most", most), ("now", last)):
            yield table_row((name, day(point.when), str(point.patches), str(point.lines)))


def _landed(report: Report) -> Iterator[str]:
    if not report.landings:
        return
    yield from ("", "## What landed when", "")
    for release, its in by_release(report.landings):
        yield f"- {code(release)}"
        for landing in its:
            commit = f" with {code(f'{landing.commit} {landing.subject or str()}')}" if landing.commit else ""
            yield f"  - {code(landing.name)}{commit}"
