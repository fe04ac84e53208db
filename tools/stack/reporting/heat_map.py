# SPDX-License-Identifier: Apache-2.0
"""Draw the ladder as a table: patches by releases, with a letter and a colour for each outcome."""

from collections.abc import Iterator
from itertools import groupby
from xml.etree.ElementTree import Element

from stack.base.text import shortened
from stack.carry.outcome import Outcome
from stack.reporting.elements import add, clean, element
from stack.reporting.looks import LOOKS
from stack.reporting.report import Cell, Ladder, Row

_HOVER = 600
"""Characters of the longest text that a cell shows on hover; the list of reasons has all of it."""
_FEW, _SHORT = 12, 9
"""Releases, and characters of their names, up to which cells are wide and names are written across."""
NOT_TRIED = "not tried"


def section(ladder: Ladder, number: int) -> Element:
    """Return a ladder's heading, legend and table; `number` is its place in the report."""
    upstream = f"{ladder.upstream}: " if ladder.upstream else ""
    return element(
        "section",
        element("h2", f"{upstream}{ladder.old} to {ladder.new}"),
        _legend(ladder),
        element("p", "Each cell says what became of the patch at that release.", class_="quiet"),
        scrolling(_table(ladder, number), f"What became of each patch at each release, {upstream}{ladder.old} to {ladder.new}"),
        id=f"ladder-{number}",
    )


def identifier(ladder: int, row: int) -> str:
    """Return the id of a patch's entry in the list of reasons."""
    return f"patch-{ladder}-{row}"


def chip(outcome: Outcome, *, needs_person: bool = False) -> Element:
    """Return an outcome's letter on its colour. The caller writes the words next to it."""
    border = " open" if needs_person else ""
    return element("span", LOOKS[outcome].letter, class_=f"chip o-{outcome.value}{border}", aria_hidden="true")


def scrolling(content: Element, name: str) -> Element:
    """Wrap wide content so that it scrolls by itself, also by the keyboard."""
    return element("div", content, class_="scroll", role="region", tabindex=0, aria_label=name)


def _legend(ladder: Ladder) -> Element:
    seen = {cell.outcome for row in ladder.rows for cell in row.cells if cell is not None} | set(ladder.counts)
    counts = ladder.counts
    items = []
    for outcome in (outcome for outcome in Outcome if outcome in seen):
        count = f" ({counts[outcome]})" if outcome in counts else ""
        meaning = element("span", element("strong", outcome.value), f"{count}: {LOOKS[outcome].meaning}")
        items.append(element("li", chip(outcome), meaning))
    if ladder.open:
        border = element("span", class_="chip open", aria_hidden="true")
        items.append(element("li", border, element("span", "with a border: ", element("strong", "needs a person"))))
    return element("ul", *items, class_="legend", aria_label="Outcomes, and how many patches ended with each")


def _table(ladder: Ladder, number: int) -> Element:
    head = element("tr", element("th", "Patch", scope="col", class_="corner"))
    for release in ladder.releases:
        add(head, element("th", element("div", shortened(release, 26)), scope="col", class_="release", title=release))
    add(head, element("th", "Result", scope="col"))
    caption = element("caption", "What became of each patch at each release", class_="sr")
    few = len(ladder.releases) <= _FEW and all(len(release) <= _SHORT for release in ladder.releases)
    table = element("table", caption, element("thead", head), class_="heat few" if few else "heat")
    numbered = enumerate(ladder.rows)
    for series, rows in groupby(numbered, key=lambda each: _series(ladder, each[1])):
        body = element("tbody", class_="group")
        if series:
            width = len(ladder.releases) + 2
            add(body, element("tr", element("th", series, scope="rowgroup", colspan=width, class_="series")))
        for place, row in rows:
            add(body, _row(ladder, row, identifier(number, place)))
        add(table, body)
    return table


def _series(ladder: Ladder, row: Row) -> str:
    return row.name.partition("/")[0] if ladder.upstream else ""


def _row(ladder: Ladder, row: Row, target: str) -> Element:
    name = element("a", element("strong", row.subject) if row.open else row.subject, href=f"#{target}")
    made = element("tr", element("th", name, scope="row", title=row.name))
    for cell, tells in _telling(row):
        if cell is None:
            add(
                made,
                element("td", element("span", NOT_TRIED, class_="sr"), element("span", "·", aria_hidden="true"), class_="none"),
            )
            continue
        words = f"{cell.outcome.value}, needs a person" if cell.open else cell.outcome.value
        hover = "\n".join([f"{cell.release}: {words}", *(row.evidence if tells else ())])
        border = " open" if cell.open else ""
        letter = element("span", LOOKS[cell.outcome].letter, aria_hidden="true")
        drawn = element("td", element("span", words, class_="sr"), letter, class_=f"o-{cell.outcome.value}{border}")
        drawn.set("title", _hover(hover))
        add(made, drawn)
    where = f" ({row.decided})" if row.decided and len(ladder.releases) > 1 else ""
    add(made, element("td", f"{row.outcome.value}{where}", class_="result"))
    return made


def _telling(row: Row) -> Iterator[tuple[Cell | None, bool]]:
    """Yield each cell, and whether it shows the evidence: the last one, and each whose outcome is another than before."""
    before: Outcome | None = Outcome.CLEAN
    for place, cell in enumerate(row.cells):
        outcome = cell.outcome if cell is not None else None
        yield cell, place == len(row.cells) - 1 or outcome is not before
        before = outcome


def _hover(text: str) -> str:
    return "\n".join(clean(line) for line in shortened(text, _HOVER).split("\n"))
