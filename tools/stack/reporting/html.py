# SPDX-License-Identifier: Apache-2.0
"""Write a report as one HTML page that loads nothing and runs nothing."""

import base64
import hashlib
from xml.etree.ElementTree import Element

from stack.reporting import heat_map, sections
from stack.reporting.charts import day
from stack.reporting.elements import add, clean, element, link, written
from stack.reporting.looks import STYLE
from stack.reporting.report import Report, summary

_POLICY = "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'"
"""The content security policy: no script, no image, no request; only the style of this page, by its hash."""


def render(report: Report) -> str:
    """Return the page. It needs no JavaScript, and follows the reader's light or dark scheme."""
    shown = [section for section in _sections(report) if section is not None]
    page = element("html", head(report.title), lang="en")
    body = element(
        "body",
        element("a", "To the contents", href="#main", class_="skip"),
        _header(report),
        _contents(shown),
        element("main", *shown, id="main"),
        element("footer", f"Made by stack on {day(report.made)}. This page loads nothing and runs no script."),
    )
    add(page, body)
    return written(page)


def head(title: str, more: str = "") -> Element:
    """Return the head of a page that loads and runs nothing; `more` is style beside the common one."""
    # The policy has the hash of the style's exact bytes, so the text is set as it is; it holds nothing from the report.
    style = Element("style")
    style.text = STYLE + more
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode("ascii")
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": _POLICY.format(digest)}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", clean(title)),
        style,
    )


def _header(report: Report) -> Element:
    made = element("header", element("h1", report.title))
    for ladder in report.ladders:
        add(made, element("p", summary(ladder) + "."))
    if report.ladders:
        add(made, element("p", _need_words(report.open), class_="quiet" if not report.open else None))
    for note in report.notes:
        add(made, element("p", note))
    pins = element("p", class_="quiet")
    for number, pin in enumerate(report.pins):
        commit = link(pin.address, element("code", pin.commit))
        add(pins, ", " if number else "Pins: ", f"{pin.upstream} {pin.tag or ''}".rstrip(), " (", commit, ")")
    if report.pins:
        add(made, pins)
    if report.digest is not None:
        add(made, element("p", "Stack digest: ", element("code", report.digest), class_="quiet"))
    return made


def _need_words(count: int) -> str:
    if not count:
        return "No patch needs a person."
    return "One patch needs a person." if count == 1 else f"{count} patches need a person."


def _contents(shown: list[Element]) -> Element:
    items = []
    for section in shown:
        heading = section.find("h2")
        assert heading is not None
        items.append(element("li", element("a", heading.text or "", href=f"#{section.get('id')}")))
    return element("nav", element("ul", *items), aria_label="Contents")


def _sections(report: Report) -> list[Element | None]:
    return [
        sections.needing(report),
        *(heat_map.section(ladder, number) for number, ladder in enumerate(report.ladders)),
        sections.series(report),
        sections.ages(report),
        sections.lines(report),
        sections.landed(report),
        sections.reasons(report),
    ]
