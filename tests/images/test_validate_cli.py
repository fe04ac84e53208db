# SPDX-License-Identifier: Apache-2.0
"""`stack image validate`: what is refused before anything is made."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.cli import main
from stack.images import image, layout
from stack.images.reference import Reference
from stack.model import verdict as verdicts
from stack.model.ids import Sha256

from . import factories
from .world import World


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "--model", ".", "--weights", "real", "--recipe", "cpu-fp32"], "--recipe serves the tiny models"),
        (["serve", "--recipe", "gpt-oss"], "recipe gpt-oss has no model of ours: name its folder with --model"),
        (["kernels", "--recipe", "nobody"], "unknown recipe 'nobody'"),
        (["serve", "--model", "."], "--model goes with --weights"),
        (["serve", "--flags", "x"], "go with --model"),
        (["serve", "--model", ".", "--weights", "real", "--flags", "'"], "cannot be read"),
    ],
)
def test_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    world.image()
    monkeypatch.setattr(sys, "argv", ["stack", "--root", str(world.root), "image", "validate", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert line in said.err.splitlines()[-1]


def test_verdicts_of_another_image_or_of_other_gates_are_not_resumed(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = verdicts.load(world.verdict(world.image()))
    for verdict, line in (
        (replace(good, image="sha256:" + "1" * 64), "it is of another image"),
        (replace(good, gates={"cpu": Sha256("0" * 64)}), "it is of other gates"),
        (replace(good, stack=Sha256("2" * 64)), "it is of the stack 222222222222, this one is"),
    ):
        world.written(verdict, "serve.json")
        asked = ["image", "validate", "serve", "--recipe", "cpu-fp32", "--resume", "--out", str(world.root)]
        monkeypatch.setattr(sys, "argv", ["stack", "--root", str(world.root), *asked])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert f"serve.json cannot be resumed: {line}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("entry", [7, "sh", {"a": 1}, [1], ["a\0b"]])
def test_an_entry_point_that_is_no_list_of_words(tmp_path: Path, entry: object) -> None:
    with pytest.raises(StackError, match=r"entry point of .* is not a list of strings"):
        image.read(made(tmp_path / "image", entry))


def test_the_entry_point(tmp_path: Path) -> None:
    assert image.read(made(tmp_path / "image", ["a", "", "a"])).platforms[0].entry == ("a", "", "a")


def made(folder: Path, entry: object) -> Reference:
    """An image with an entry point."""
    layout.finish(folder, {"latest": factories.manifest(folder, {}, {}, entry=entry)})
    return Reference(str(folder), layout=True)
