# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from stack.base.errors import StackError
from stack.deploy import hardware, recipes
from stack.serving import plot, roofline
from stack.serving.measured import Measured
from stack.serving.roofline import Roofline
from stack.serving.traffic import COMPONENTS

from ..deploy.shapes.configs import QWEN35


@pytest.fixture(scope="module")
def found() -> list[Roofline]:
    recipe = recipes.load("gpt-oss-120b-spark")
    return [roofline.of(recipe, roofline.machine(recipe), batches=(1, 4))]


def texts(file: Path) -> list[str]:
    return ["".join(one.itertext()).strip() for one in ElementTree.parse(file).iter() if one.tag.endswith("text")]


def test_a_picture(found: list[Roofline], tmp_path: Path) -> None:
    files = [tmp_path / "one.png", tmp_path / "two.png"]
    for file in files:
        plot.draw(found, file)
    one, two = (file.read_bytes() for file in files)
    assert one.startswith(b"\x89PNG")
    assert one == two


def test_an_svg_says_all(found: list[Roofline], tmp_path: Path) -> None:
    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        plot.draw(found, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    said = texts(files[0])
    assert {*COMPONENTS, "ms to read all that it needs"} <= {*said}
    assert "gpt-oss-120b-spark, 4 requests, 2048 tokens" in said
    assert [f"{point.limit:.1f}" for point in found[0].points] == [one for one in said if one.count(".") == 1 and len(one) > 3][
        -6:
    ]
    assert len([one for one in said if one.startswith("measured: ")]) == 2


def test_steps(found: list[Roofline], tmp_path: Path) -> None:
    plot.draw(found, tmp_path / "steps.svg", steps=True)
    said = texts(tmp_path / "steps.svg")
    titles = [step.title for step in found[0].steps]
    assert [one for one in said if one in titles] == titles[:-1]
    assert f"{titles[-1]} = gpt-oss-120b-spark" in said
    assert any("512 tokens of context" in one for one in said)


def test_the_picture_of_the_documentation_is_of_today(found: list[Roofline], tmp_path: Path) -> None:
    shown = Path(__file__).parents[2] / "docs/roofline.png"
    command = "stack roofline gpt-oss-120b-spark --steps --png docs/roofline.png"
    assert f"\n    {command}\n" in (shown.parent / "roofline.md").read_text()
    said = plot.in_words(found, steps=True)
    assert "qkv and o in MXFP4: at most 61.2 tok/s; lm_head in MXFP4: at most 78.9 tok/s" in said
    with Image.open(shown) as picture:
        assert picture.info["Description"] == said, f"draw it again: {command}"
    assert shown.stat().st_size < 60_000


def measured(one: Roofline, sources: int) -> Roofline:
    """A roofline, each of whose points so many sources have measured, and no others."""
    many = tuple(Measured(2048, 50.0 + place, f"source {place}") for place in range(sources))
    return replace(one, points=tuple(replace(point, measured=many) for point in one.points))


@pytest.mark.parametrize("sources", [None, 0, 1, 40])
@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("one", [False, True])
def test_nothing_overlaps_or_is_cut(found: list[Roofline], *, steps: bool, sources: int | None, one: bool) -> None:
    from matplotlib.text import Text  # noqa: PLC0415 - collecting the tests does not wait for it

    elsewhere = roofline.of(found[0].recipe, hardware.load("h200"), contexts=(2048,))
    if sources is not None:
        elsewhere = measured(elsewhere, sources)
    figure = plot.figure([elsewhere] if one else [*found, elsewhere], steps=steps)
    figure.draw_without_rendering()
    [axes] = figure.axes
    assert axes.get_window_extent().height >= 0.9 * plot._BAR * figure.dpi * len(axes.get_yticklabels())
    assert max(bar.get_x() + bar.get_width() for bar in axes.patches) < axes.get_xlim()[1]
    titles = [one for one in axes.get_children() if isinstance(one, Text) and one.get_text().startswith("What the next")]
    assert len(titles) == 1
    words = [*axes.get_yticklabels(), *axes.texts, *figure.legends, axes.xaxis.label, *titles]
    boxes = [*(one.get_window_extent() for one in words), axes.get_window_extent()]
    for place, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 <= box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 <= box.y1 <= figure.bbox.y1
        assert not [other for other in boxes[place + 1 :] if box.overlaps(other)]


def test_a_configuration_with_an_odd_name(tmp_path: Path) -> None:
    file = tmp_path / "$\\frac{$.json"
    file.write_text(json.dumps(QWEN35))
    drawn = roofline.of(roofline.anonymous(), hardware.load("spark"), config=file, contexts=(512,), drafts=2, acceptance=0.5)
    plot.draw([drawn], tmp_path / "one.svg")
    said = texts(tmp_path / "one.svg")
    assert {"MLP", "attention", "linear attention", "lm_head", "drafts", "state", "KV"} <= {*said}
    assert any(one.endswith(", 512 tokens") for one in said)


def test_other_files(found: list[Roofline], tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"neither \.png nor \.svg"):
        plot.draw(found, tmp_path / "one.pdf")
    with pytest.raises(StackError, match="cannot be written"):
        plot.draw(found, tmp_path / "missing" / "one.png")


def test_without_matplotlib(tmp_path: Path) -> None:
    """As where the extra `plot` is not installed: Python takes None for a module that is not there."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.argv = "
        f"['stack', 'roofline', 'gpt-oss-120b-spark', '--png', {str(tmp_path / 'one.png')!r}]; "
        "from stack.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stack: drawing needs matplotlib: pip install matplotlib, or leave --png out\n"
