# SPDX-License-Identifier: Apache-2.0
"""The Markdown, as a renderer of it reads it: foreign text stays text, and a pull request can hold it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from stack.carry.outcome import Outcome
from stack.reporting import markdown
from stack.reporting.report import Report

from .factories import told

HOSTILE = [
    "<script>alert(1)</script>",
    "a | b `c` ``d`` \\",
    "](https://example.org) ![x](https://example.org/x.png)",
    "@somebody fixes #12 https://example.org",
    "\n# A heading\n\n- [x] a task\n",
    "**bold** _it_ ~~no~~ <b>x</b> &amp;",
    "\\|",
]
TAGS = {"<details>", "</details>", "<summary>", "</summary>", "<details><summary>Why, patch by patch</summary>\n"}


def rendered(text: str) -> list[Token]:
    """Return all tokens of the text, inline ones too."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    return [inner for token in tokens for inner in (token, *(token.children or []))]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_foreign_text_stays_in_code_spans(hostile: str) -> None:
    found = rendered(markdown.render(told(lambda name: f"{name} {hostile} end")))
    plain = rendered(markdown.render(told(lambda name: f"{name} plain_code end")))
    assert [token.type for token in found] == [token.type for token in plain]
    assert [token.content for token in found if token.type in ("text", "html_block", "html_inline")] == [
        token.content for token in plain if token.type in ("text", "html_block", "html_inline")
    ]
    assert {token.type for token in found} & {"link_open", "image", "html_inline", "fence", "code_block"} == set()


def test_a_table_has_a_row_for_each_patch() -> None:
    text = markdown.render(told())
    assert "| `first/up/conflict` |  | **X** | conflict (`v3`) |\n" in text
    drifted = list(Outcome).index(Outcome.DRIFTED)
    assert f"- `first/up/drifted`: **drifted** at `v3`\n  - `evidence {drifted}`\n    - `cause {drifted}`\n" in text
    assert "| `third` | draft | `first, second` | 0 |  |\n" in text
    assert "  - `first/up/landed` with `0123456789ab Bring it`\n" in text


@pytest.mark.parametrize("text", ["Rebase of up onto v1.2", "flashinfer: v0.6.4 to v0.6.12", "alpha v1.3 needs beta (b2)"])
def test_harmless_words_stand_as_they_are(text: str) -> None:
    assert markdown.words(text) == text
    assert [token.content for token in rendered(text) if token.type == "text"] == [text]


@pytest.mark.parametrize(
    "text", ["x *a* b", "an _a_ b", "see WWW.example.org", "at https://x.org", "by @x", "as #1", "a:smile:", "1. x", "x <b>", "x\ny", "x | y", " x"]
)  # fmt: skip
def test_other_words_are_code(text: str) -> None:
    assert markdown.words(text) == markdown.code(text)
    assert [token.type for token in rendered(markdown.words(text)) if token.type != "inline"] == [
        "paragraph_open",
        "code_inline",
        "paragraph_close",
    ]


@given(st.text(alphabet="aB1 .,:()/-_*#@&<>[]!~+=|`\\\n\t\u00e9", max_size=12))
def test_any_words_are_text_or_a_code_span(text: str) -> None:
    found = [
        token.type for token in rendered(f"- {markdown.words('x' + text)} end") if token.type not in ("text", "code_inline")
    ]
    expected = [
        "bullet_list_open",
        "list_item_open",
        "paragraph_open",
        "inline",
        "paragraph_close",
        "list_item_close",
        "bullet_list_close",
    ]
    assert found == expected


def many(count: int, *, wrong: bool) -> Report:
    report = told()
    [ladder] = report.ladders
    rows = [replace(row, name=f"{row.name}-{number}", open=wrong) for number in range(count) for row in ladder.rows]
    return replace(report, ladders=(replace(ladder, rows=tuple(rows)),))


def test_a_pull_request_can_hold_it() -> None:
    assert len(markdown.render(many(20, wrong=False))) < markdown.LARGEST
    quiet = markdown.render(many(500, wrong=False))
    assert len(quiet) <= markdown.LARGEST
    assert f"{500 * len(Outcome)} patches that need nobody are left out" in quiet
    assert "## What landed when" in quiet
    loud = markdown.render(many(500, wrong=True))
    assert len(loud) <= markdown.LARGEST
    assert loud.endswith("\n\nThis text was cut, since it is too long for a pull request.\n")
