# SPDX-License-Identifier: Apache-2.0
"""The page of planned pull requests: foreign text stays text, and nothing is loaded or run."""

import base64
import hashlib
import re

import pytest

from stack.reporting import pulls
from stack.reporting.pulls import PullRequest

from .test_html import HOSTILE, check_harmless

DIFF = "diff --git a/up.py b/up.py\n--- a/up.py\n+++ b/up.py\n@@ -1 +1,2 @@\n ONE = 1\n+TWO = 2\n-THREE = 3\n"


def pull(text: str = "", *, refused: bool = False) -> PullRequest:
    finding = (f"rule{text}", f"place{text}", f"what{text}")
    return PullRequest(
        f"up/one{text}",
        f"[Bugfix] Do it{text}",
        f"pr/up/one{text}",
        f"up v1.0{text}",
        f"## What\n\nWhy{text}\n",
        DIFF.replace("TWO", f"TWO{text}"),
        1,
        1,
        (f"Do it{text}",),
        (finding,) if refused else (),
        (finding,),
    )


@pytest.mark.parametrize("hostile", HOSTILE)
def test_foreign_text_stays_text(hostile: str) -> None:
    made = pulls.render(f"All{hostile}", [pull(hostile, refused=True)], [(f"up/two{hostile}", f"up/one{hostile}")])
    plain = pulls.render("All", [pull(refused=True)], [("up/two", "up/one")])
    pages = [
        check_harmless(page.replace("<pre", "<div").replace("</pre>", "</div>")) for page in (made, plain)
    ]  # a page of lines
    assert [tag for tag, _ in pages[0].tags] == [tag for tag, _ in pages[1].tags]
    assert " ".join(hostile.split()) in " ".join(pages[0].text.split())


def test_the_style_is_the_one_that_the_policy_allows() -> None:
    made = pulls.render("All", [pull()])
    style = re.search("<style>(.*?)</style>", made, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in made
    assert "prefers-color-scheme:dark" in style[1]
    assert ".refused{" in style[1]


def test_lines_of_a_diff_are_marked() -> None:
    made = pulls.render("All", [pull()])
    assert '<span class="more">+TWO = 2\n</span>' in made
    assert '<span class="less">-THREE = 3\n</span>' in made
    assert "## What\n\nWhy\n" in made
    assert '<span class="place">@@ -1 +1,2 @@\n</span>' in made
    assert "<span>+++ b/up.py\n</span>" in made


def test_what_is_refused_and_what_waits_is_said() -> None:
    made = pulls.render("All", [pull(), pull(refused=True)], [("up/two", "up/one")])
    assert "In the first wave: 2, of which 1 refused. In later waves: 1." in made
    assert made.count('class="refused"') == 1
    assert "<code>up/two</code> needs up/one" in made
    assert "Later waves" not in pulls.render("All", [pull()])
