# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: wide and narrow, light and dark, with a hostile report, and folded entries that a link opens."""

import re
from pathlib import Path

import pytest
from PIL import Image  # of matplotlib

from stack.carry.outcome import Outcome
from stack.reporting import collect, html
from stack.reporting.looks import LOOKS
from tests import system

from . import browser
from .factories import MADE, carried, told
from .test_html import HOSTILE

pytestmark = pytest.mark.images


@pytest.fixture(scope="module", autouse=True)
def chromium() -> None:
    system.demand("chromium")


FOUND = [outcome for outcome in Outcome if outcome is not Outcome.LEFT_OUT]
"""The outcomes that a triage finds; no engine leaves a patch out, a person does."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a real triage with each outcome."""
    return html.render(collect.of_triage(carried(tmp_path_factory.mktemp("ladder")), base="v1", made=MADE))


def rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return red, green, blue


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_runs_out_of_the_page(page: str, tmp_path: Path, width: int, dark: bool) -> None:
    for text in (page, html.render(told(lambda name: f"{name} {'long-' * 40}"))):
        found = browser.measured(text, tmp_path, width=width, dark=dark)
        assert (found["width"], found["outside"]) == (width, [])
        assert found["smallest"] >= 11
        assert 0 <= found["first"] < 60


@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_follow_the_reader(page: str, tmp_path: Path, dark: bool) -> None:
    found = browser.measured(page, tmp_path, width=1400, dark=dark)
    for outcome in FOUND:
        ground, _ = LOOKS[outcome].dark if dark else LOOKS[outcome].light
        assert found["cells"][f"o-{outcome.value}"] == f"rgb{rgb(ground)}"
    assert sum(map(int, re.findall(r"\d+", found["ground"]))) < 150 if dark else found["ground"] == "rgb(255, 255, 255)"


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_shows_every_outcome(page: str, tmp_path: Path, dark: bool) -> None:
    (tmp_path / "page.html").write_text(page)
    browser.screenshot(tmp_path / "page.html", tmp_path / "page.png", width=1400, height=2400, dark=dark)
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.size == (1400, 2400)
        colours = {colour: count for count, colour in picture.convert("RGB").getcolors(1 << 24) or []}
    for outcome in FOUND:
        look = LOOKS[outcome]
        # A cell and a chip have some hundred points each.
        assert colours.get(rgb((look.dark if dark else look.light)[0]), 0) > 500, outcome


def test_no_text_runs(tmp_path: Path) -> None:
    runs = "<script>window.parent.ran = 1; document.documentElement.dataset.ran = 1</script>"
    hostile = runs + "".join(HOSTILE).replace("alert(1)", "window.parent.ran=1")
    found = browser.measured(html.render(told(lambda name: f"{name}{hostile}")), tmp_path, width=1400)
    assert found["ran"] is None
    # Even markup that came through would not run, because of the page's policy.
    page = html.render(told()).replace("<h1>", f"{runs}<img src=x onerror='window.parent.ran=1'><h1>")
    assert browser.measured(page, tmp_path, width=1400)["ran"] is None
    without = re.sub(r"<meta http-equiv=[^>]*>", "", page)
    assert browser.measured(without, tmp_path, width=1400)["ran"] is not None
