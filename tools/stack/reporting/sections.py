# SPDX-License-Identifier: Apache-2.0
"""The sections of the HTML page beside the ladders: reasons, series, ages, lines over time, and what landed."""

from xml.etree.ElementTree import Element

from stack.carry.evidence import CAUSE
from stack.reporting import charts, graph
from stack.reporting.elements import add, element, link
from stack.reporting.heat_map import chip, identifier, scrolling
from stack.reporting.report import Landing, PatchLine, Report, Row, SeriesLine, age_words, by_release, how_many, thinned

_TABLE_POINTS = 40
"""Rows of the table below the curve of lines."""


def needing(report: Report) -> Element | None:
    """List the patches that need a person, with their evidence in full."""
    items = [
        _reason(row, identifier(number, place), expanded=True)
        for number, ladder in enumerate(report.ladders)
        for place, row in enumerate(ladder.rows)
        if row.open
    ]
    return _section("needs", "Needs a person", element("div", *items, class_="cards")) if items else None


def reasons(report: Report) -> Element | None:
    """List all other patches with their evidence, folded."""
    items = [
        _reason(row, identifier(number, place), expanded=False)
        for number, ladder in enumerate(report.ladders)
        for place, row in enumerate(ladder.rows)
        if not row.open
    ]
    return _section("reasons", "Why, patch by patch", element("div", *items, class_="cards")) if items else None


def series(report: Report) -> Element | None:
    """Draw which series needs which, above a table of all series."""
    if not report.series:
        return None
    its = {each.name: [patch for patch in report.patches if patch.series == each.name] for each in report.series}
    labels = {each.name: f"{each.state}, {how_many(len(its[each.name]))}" for each in report.series}
    drawn = graph.draw(report.series, labels)
    with_pulls = any(each.pulls for each in report.series)
    heads = ("Series", "Title", "State", "Needs", "Patches", "Lines", "Oldest", *(["Pull requests"] if with_pulls else []))
    rows = [_series(report, each, its[each.name], with_pulls=with_pulls) for each in report.series]
    arrows = element("p", "An arrow leads from a series to one that needs it.", class_="quiet") if drawn is not None else None
    picture = scrolling(drawn, "Which series needs which") if drawn is not None else None
    return _section("series", "Series", arrows, picture, _table(heads, rows, "All series"))


def _series(report: Report, series: SeriesLine, patches: list[PatchLine], *, with_pulls: bool) -> Element:
    size = f"+{sum(patch.added for patch in patches)} -{sum(patch.removed for patch in patches)}"
    ages = [age for patch in patches if (age := report.age(patch)) is not None]
    cells: list[tuple[str, str | Element]] = [
        ("Title", series.title),
        ("State", series.state),
        ("Needs", ", ".join(series.needs)),
        ("Patches", str(len(patches))),
        ("Lines", size if patches else ""),
        ("Oldest", age_words(max(ages)) if ages else ""),
    ]
    if with_pulls:
        pulls = element("span")
        for number, address in enumerate(series.pulls):
            add(pulls, ", " if number else None, link(address, address.rpartition("/")[2] or address))
        cells.append(("Pull requests", pulls if series.pulls else ""))
    name = element("th", element("span", series.name, class_="name"), scope="row")
    return element("tr", name, *(_cell(label, value) for label, value in cells))


def ages(report: Report) -> Element | None:
    """Draw how many patches there are of each age, above a list of the patches."""
    if not report.patches:
        return None
    oldest = sorted(report.patches, key=lambda patch: -(report.age(patch) if report.age(patch) is not None else -1))  # type: ignore[operator]
    rows = [_patch(report, patch) for patch in oldest]
    listed = element(
        "details",
        element("summary", f"All {how_many(len(rows))}, the oldest first"),
        _table(("Patch", "Subject", "Age", "Lines"), rows, "All patches"),
    )
    text = element("p", "The age of a patch is the time since its author's date.", class_="quiet")
    return _section("ages", "Ages", text, charts.bars(report.ages(), name="Patches by age"), listed)


def lines(report: Report) -> Element | None:
    """Draw the lines that the stack carried over time, above a table of the same."""
    if not report.points:
        return None
    last = report.points[-1]
    now = f"{last.lines:,} lines in {how_many(last.patches)}"
    text = element("p", f"Lines that the patches add and remove, from the stack's git history. Now: {now}.", class_="quiet")
    drawn = charts.curve(report.points, until=report.made, name=f"Lines carried over time, now {now}")
    rows = [
        element(
            "tr",
            element("th", charts.day(point.when), scope="row", class_="fixed"),
            _number(point.patches),
            _number(point.lines),
        )
        for point in thinned(report.points, _TABLE_POINTS)
    ]
    table = _table(("Date", "Patches", "Lines"), rows, "Lines carried over time", numbers=(1, 2), wide=False)
    return _section(
        "lines", "Lines carried over time", text, drawn, element("details", element("summary", "As a table"), table)
    )


def landed(report: Report) -> Element | None:
    """List what landed upstream, by release."""
    if not report.landings:
        return None
    parts: list[Element] = []
    for release, its in by_release(report.landings):
        parts += [element("h3", release or "Unknown release"), element("ul", *(_landing(landing) for landing in its))]
    return _section("landed", "What landed when", *parts)


def _section(name: str, heading: str, *content: Element | None) -> Element:
    return element("section", element("h2", heading), *content, id=name)


def _reason(row: Row, target: str, *, expanded: bool) -> Element:
    where = f" ({row.decided})" if row.decided else ""
    subject = element("strong", row.subject) if row.open else element("span", row.subject)
    summary = element("summary", chip(row.outcome, needs_person=row.open), " ", subject)
    add(summary, f": {row.outcome.value}{where}")
    evidence = element("ul")
    causes: Element | None = None
    for line in row.evidence or ("no evidence: it applies as before",):
        if line.startswith(CAUSE) and len(evidence):
            if causes is None:
                causes = element("ul")
                add(evidence[-1], causes)
            add(causes, element("li", line.strip()))
        else:
            causes = None
            add(evidence, element("li", line.strip()))
    # The id is inside, so that a browser unfolds the entry when a link leads to it.
    name = element("div", element("span", row.name, class_="name quiet"), id=target)
    return element("details", summary, name, evidence, open="" if expanded else None)


def _landing(landing: Landing) -> Element:
    item = element("li", element("span", landing.name, class_="name"))
    if landing.commit is not None:
        add(item, " with ", link(landing.address, element("code", landing.commit)), f" {landing.subject or ''}".rstrip())
    elif landing.subject:
        add(item, f": {landing.subject}")
    if not landing.carried:
        add(item, element("span", " (recorded in series.toml)", class_="quiet"))
    return item


def _patch(report: Report, patch: PatchLine) -> Element:
    name = element("th", element("span", patch.name, class_="name"), scope="row")
    size = f"+{patch.added} -{patch.removed}"
    cells = (("Subject", patch.subject), ("Age", age_words(report.age(patch))), ("Lines", size))
    return element("tr", name, *(_cell(label, value) for label, value in cells))


def _cell(label: str, value: str | Element) -> Element:
    kind = {"Patches": "number", "Lines": "number", "Age": "fixed", "Oldest": "fixed", "State": "fixed"}.get(label)
    return element("td", value, class_=kind, data_label=label)


def _number(value: int) -> Element:
    return element("td", f"{value:,}", class_="number")


def _table(
    heads: tuple[str, ...], rows: list[Element], name: str, *, numbers: tuple[int, ...] = (), wide: bool = True
) -> Element:
    right = {place for place, head in enumerate(heads) if head in ("Patches", "Lines")} | set(numbers)
    cells = (element("th", head, scope="col", class_="number" if place in right else None) for place, head in enumerate(heads))
    caption = element("caption", name, class_="sr")
    table = element("table", caption, element("thead", element("tr", *cells)), element("tbody", *rows))
    if wide:
        table.set("class", "wide")
    return scrolling(table, name)
