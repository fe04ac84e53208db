# SPDX-License-Identifier: Apache-2.0
"""The README's picture is what the example prints today."""

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def picture() -> ModuleType:
    spec = importlib.util.spec_from_file_location("picture", ROOT / "examples/picture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_todays() -> None:
    drawn = picture().pictures()
    assert sorted(drawn) == ["rebase-dark.svg", "rebase-light.svg"]
    for name, drawing in drawn.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == drawing, "run `make transcripts`"
        text = "".join(ElementTree.fromstring(drawing).itertext()).replace("\N{NO-BREAK SPACE}", " ")
        assert "$ stack rebase serve --onto release-1.31.4" in text
        assert "landed" in text
        assert "http" not in drawing.replace("http://www.w3.org/2000/svg", ""), "a picture loads nothing"
