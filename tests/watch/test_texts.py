# SPDX-License-Identifier: Apache-2.0
"""The texts of issues and pull requests: what they say, that foreign text stays text, and that they are never too long."""

import pytest
from markdown_it import MarkdownIt

from stack.carry.outcome import Outcome
from stack.watch import issue_text, marks, pull_text
from stack.watch.marks import IssueMark, PullMark
from stack.watch.night import Aim, Night, PatchRow, Trial

from .model import carried, night

MARK = IssueMark("a", "a", "a", "2026-11-27")
HOSTILE = "x` <script> @somebody #12 -->\n# Heading | cell [link](https://example.org)"


def test_an_issue_says_what_needs_a_person_and_until_when_it_is_fresh() -> None:
    found = night(Outcome.CLEAN, Outcome.CONFLICT)
    text = issue_text.body(found, MARK, "Pull request #4 carries the stack to `v2.1`.")
    shown = issue_text.body(found, MARK, page="https://forge/me/stack/actions")
    assert "[The forge](https://forge/me/stack/actions) and `stack watch status` say when the nightly run last ran." in shown
    assert "renewed" not in shown
    assert issue_text.title(found) == "gamma: 1 patch needs a person"
    assert marks.issue(text, "gamma") == MARK
    assert marks.issue(text, "alpha") is None
    assert "| `main` | `v2.0` | `v2.1` (release) | 1 clean, 1 conflict; **1 patch for a person** |" in text
    assert "- `one/gamma/p1`: **conflict** at `v2.1` (release) in lane `main`, `abc` (main) in lane `main`\n  - `why`" in text
    assert "If nothing here changes before 2026-12-06, the nightly run has stopped" in text
    assert "Pull request #4 carries" in text
    assert "<summary>The whole report</summary>\n\n# Report\n" in text


def test_a_pull_request_says_what_was_dropped_and_why() -> None:
    made = carried(range_diffs=(("gamma", "1:  a = 1:  b Hook"),), newest="v2.2", emptied=("old",), proofs=("hook: passes",))
    text = pull_text.body(made, PullMark("v2.1", made.content))
    assert marks.pull(text, "gamma") == PullMark("v2.1", made.content)
    for part in (
        "The newest release is `v2.2`. Not all patches carry to it",
        "| `one/gamma/hook` | clean |",
        "- `one/gamma/gone`: `1234 Fix`",
        "- Series `old` carries no patch any more.",
        "- `hook: passes`",
        "```diff\n1:  a = 1:  b Hook\n```",
    ):
        assert part in text


def test_foreign_text_stays_text() -> None:
    row = PatchRow(HOSTILE, Outcome.CONFLICT, True, (HOSTILE,))
    found = Night("gamma", (Trial(HOSTILE, Aim.RELEASE, HOSTILE, HOSTILE, (row,), (HOSTILE,)),))
    made = carried(HOSTILE, rows=(row,), newest="v9", emptied=(HOSTILE,), moved=((HOSTILE,) * 3,) * 2, proofs=(HOSTILE,))
    for text in (issue_text.body(found, MARK), issue_text.comment(found), pull_text.body(made, PullMark(HOSTILE, ""))):
        shown = text.partition("-->\n")[2] if text.startswith("<!--") else text
        rendered = MarkdownIt("commonmark").enable("table").render(shown)
        for part in ("<script", "<h1", "<a ", "@somebody</p>"):
            assert part not in rendered, part
    assert marks.pull(pull_text.body(made, PullMark(HOSTILE, "")), "gamma") == PullMark(HOSTILE, "")
    assert pull_text.title(carried("v1\u202e\x1b[31m")).isprintable()


@pytest.mark.parametrize("lines", [1, 20_000])
def test_a_code_block_cannot_be_ended_from_within(lines: int) -> None:
    text = "````\n# Heading\n" * lines
    made = carried(range_diffs=(("gamma", text),))
    shown = pull_text.body(made, PullMark("v2.1", ""))
    assert len(shown) < 65_536
    assert "<h1" not in MarkdownIt("commonmark").render(shown)


def test_nothing_is_too_long_for_a_forge() -> None:
    rows = tuple(
        PatchRow(f"one/gamma/{number}" + "x" * 200, Outcome.CONFLICT, True, ("y" * 900,) * 20) for number in range(3000)
    )
    found = Night("gamma", (Trial("main", Aim.RELEASE, "v2.0", "v2.1", rows),), "z" * 70_000)
    for text in (
        issue_text.body(found, MARK),
        issue_text.comment(found),
        pull_text.body(carried(rows=rows), PullMark("v2.1", "")),
    ):
        assert len(text) < 65_536
    assert "The report is left out" in issue_text.body(found, MARK)
