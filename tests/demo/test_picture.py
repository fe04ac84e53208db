# SPDX-License-Identifier: Apache-2.0
"""The README's picture is what the example prints today."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from ..scripts import loaded

ROOT = Path(__file__).parents[2]


MOST = 150_000
"""Bytes of a picture that a page loads."""


def test_the_reports_picture_is_small() -> None:
    assert "](report.png)" in (ROOT / "docs/report.md").read_text(encoding="utf-8")
    picture = ROOT / "docs/report.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < MOST


def test_the_picture_is_todays() -> None:
    drawn = loaded("examples/picture.py").pictures()
    assert sorted(drawn) == ["rebase-dark.svg", "rebase-light.svg"]
    for name, drawing in drawn.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == drawing, "run `make transcripts`"
        text = "".join(ElementTree.fromstring(drawing).itertext()).replace("\N{NO-BREAK SPACE}", " ")
        assert "$ stack rebase serve --onto release-1.31.4" in text
        assert "landed" in text
        assert "http" not in drawing.replace("http://www.w3.org/2000/svg", ""), "a picture loads nothing"
