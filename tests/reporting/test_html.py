# SPDX-License-Identifier: Apache-2.0
"""The page: whatever texts a report holds, they stay text; and everybody can read it."""

import base64
import hashlib
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.base.text import shortened
from stack.carry.outcome import Outcome
from stack.reporting import html
from stack.reporting.elements import clean, is_safe
from stack.reporting.looks import LOOKS, STYLE
from stack.reporting.report import Report

from .factories import told
from .parsed import Page

HOSTILE = [
    "<script>alert(1)</script>",
    "</style></title></table><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "' autofocus onfocus='alert(1)",
    "<!-- --><![CDATA[ ]]><?xml?>",
    "&lt;script&gt; &#60;b&#62; &amp;",
    "{{7*7}} ${7*7} {%x%}",
    "<svg/onload=alert(1)>",
]
ALLOWED = """
html head meta title style body header nav main section footer h1 h2 h3 p ul li a code span strong div table caption thead tbody
tr th td details summary svg g path rect line text
"""
ATTRIBUTES = """
lang charset http-equiv content name id class href rel role tabindex title scope colspan open data-label aria-label aria-hidden
viewbox width height d x y x1 x2 y1 y2 rx text-anchor
"""


def check_harmless(text: str) -> Page:
    """Return a page that can load and run nothing."""
    page = Page.of(text)
    assert {tag for tag, _ in page.tags} <= set(ALLOWED.split())
    assert {name for _, attributes in page.tags for name in attributes} <= set(ATTRIBUTES.split())
    for address in page.values("href"):
        assert address.startswith(("#", "https://")), address
    return page


@pytest.mark.parametrize("hostile", HOSTILE)
def test_foreign_text_stays_text(hostile: str) -> None:
    report = told(lambda name: f"{name}{hostile}")
    text = html.render(report)
    page = check_harmless(text)
    plain = check_harmless(html.render(told(lambda name: f"{name}plain")))
    shown = page.text
    for release in ("v2", "v3"):  # the names of releases above the columns are shortened
        shown = shown.replace(shortened(f"{release}{hostile}", 26), f"{release}{hostile}")
    assert shown == plain.text.replace("plain", hostile)
    assert page.values("title") == [title.replace("plain", hostile) for title in plain.values("title")]
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "//example.org/x", "file:///etc/passwd", "https:", "https://[", "x"]
)  # fmt: skip
def test_an_address_that_opens_no_page_is_no_link(address: str) -> None:
    assert not is_safe(address)
    page = check_harmless(html.render(told(address=address)))
    assert address not in page.values("href")


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_any_text_is_shown_as_it_is(text: str) -> None:
    page = check_harmless(html.render(Report(title=f"<{text}>", made=0)))
    assert page.text.count(clean(f"<{text}>")) >= 2


def test_no_control_character_comes_through() -> None:
    page = html.render(told(lambda name: f"{name}\0\x1b[31m\u202e\ud800\r\x85"))
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", page) == []


def test_the_policy_allows_this_style_and_nothing_else() -> None:
    page = Page.of(html.render(told()))
    policy = next(
        attributes["content"] for _, attributes in page.tags if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    hashed = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in STYLE and "@import" not in STYLE and "<" not in STYLE


def test_each_link_leads_somewhere_and_each_id_is_one() -> None:
    page = Page.of(html.render(told()))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    inside = {address[1:] for address in page.values("href") if address.startswith("#")}
    assert inside <= set(ids)
    assert {name for name in ids if name.startswith("patch-")} <= inside


def test_who_hears_the_page_hears_everything() -> None:
    page = Page.of(html.render(told()))
    drawings = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(drawings) == 3
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawings)
    # The numbers of each drawing stand in a table, too: what needs what, ages, and lines.
    for told_elsewhere in ("first, second", "All 3 patches, the oldest first", "As a table", "8.2 years"):
        assert told_elsewhere in page.text
    cells = [attributes for tag, attributes in page.tags if tag == "td" and (attributes.get("class") or "").startswith("o-")]
    assert len(cells) == len(Outcome)
    hidden = [attributes for _, attributes in page.tags if attributes.get("aria-hidden")]
    assert not any(attributes.get("href") or attributes.get("tabindex") for attributes in hidden)
    for outcome in Outcome:
        assert page.text.count(outcome.value) >= 3
    assert all(attributes["scope"] for tag, attributes in page.tags if tag == "th")


def test_evidence_is_on_hover_and_in_the_list() -> None:
    page = Page.of(html.render(told()))
    for number, _ in enumerate(Outcome):
        assert any(f"evidence {number}" in title for title in page.values("title"))
        assert page.text.count(f"evidence {number}") == page.text.count(f"cause {number}") == 1


def test_an_empty_report_is_a_page() -> None:
    page = check_harmless(html.render(Report(title="Nothing", made=0)))
    assert "Nothing" in page.text
    assert "svg" not in {tag for tag, _ in page.tags}


def test_dates_that_no_calendar_has() -> None:
    report = told()
    far = tuple(replace(point, when=10**15) for point in report.points)
    assert "unknown" in Page.of(html.render(replace(report, points=far, made=10**15))).text


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb`, as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_each_letter_can_be_read_on_its_colour() -> None:
    assert {outcome: look for outcome, look in LOOKS.items() if contrast(*look.light) < 4.5 or contrast(*look.dark) < 4.5} == {}
    letters = [look.letter.lower() for look in LOOKS.values()]
    assert len(set(letters)) == len(LOOKS) == len(Outcome)


# How people see colours whose eyes lack one kind of cones (Machado and others, 2009, full severity, on linear values).
DICHROMACY = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def seen(colour: str, by: str) -> tuple[float, ...]:
    parts = [(int(colour[place : place + 2], 16) / 255) ** 2.2 for place in (1, 3, 5)]
    rows = DICHROMACY[by]
    return tuple(max(0.0, sum(a * b for a, b in zip(row, parts, strict=True))) ** (1 / 2.2) for row in rows)


@pytest.mark.parametrize("by", DICHROMACY)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_differ_for_the_colour_blind(by: str, scheme: str) -> None:
    grounds = {outcome: seen(getattr(look, scheme)[0], by) for outcome, look in LOOKS.items()}
    near = {
        (one.value, other.value): round(distance, 3)
        for one, other in itertools.combinations(grounds, 2)
        if (distance := sum((a - b) ** 2 for a, b in zip(grounds[one], grounds[other], strict=True)) ** 0.5) < 0.06
    }
    assert near == {}
