# SPDX-License-Identifier: Apache-2.0
"""Recipes of a stack's own, and how they are written."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import own_recipes, recipes

TEXT = """title = "Mine"
model = "some/model"
arguments = ["--max-model-len", "4096"]
environment = {}
hardware = { name = "spark", nodes = 1, memory = 64 }
"""


def test_a_stack_has_recipes_of_its_own(tmp_path: Path) -> None:
    written = own_recipes.write(tmp_path, "mine", TEXT)
    assert (tmp_path / "validation/recipes/mine.toml").read_text() == TEXT
    assert written == recipes.load("mine", tmp_path)
    assert "mine" in recipes.known(tmp_path)
    assert "mine" not in recipes.known()
    assert set(recipes.known()) < set(recipes.known(tmp_path))
    assert written.checkpoint is not None
    assert (written.checkpoint.repository, written.checkpoint.revision) == ("some/model", None)
    assert [path.name for path in (tmp_path / recipes.OWN).iterdir()] == ["mine.toml"]


def test_one_that_exists_is_kept(tmp_path: Path) -> None:
    own_recipes.write(tmp_path, "mine", TEXT)
    for name in ("mine", "gpt-oss-120b-spark"):
        with pytest.raises(StackError, match=f"the recipe {name} exists already: .*--force"):
            own_recipes.write(tmp_path, name, TEXT.replace("Mine", "Other"))
    assert recipes.load("mine", tmp_path).title == "Mine"
    assert own_recipes.write(tmp_path, "mine", TEXT.replace("Mine", "Other"), force=True).title == "Other"
    assert own_recipes.write(tmp_path, "gpt-oss-120b-spark", TEXT, force=True).title == "Mine"
    assert recipes.load("gpt-oss-120b-spark").title != "Mine"


@pytest.mark.parametrize("name", ["../mine", "Mine", "mine.toml", "", "a/b", "-a", "a\n"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(StackError, match="is not a valid name of a recipe"):
        own_recipes.write(tmp_path, name, TEXT)
    assert not (tmp_path / "validation").exists()


def test_what_is_no_recipe_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"modal is an unknown key|model is missing"):
        own_recipes.write(tmp_path, "mine", TEXT.replace("model =", "modal ="))
    assert not (tmp_path / "validation").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for place in ("validation", "validation/recipes"):
        root = tmp_path / place.replace("/", "-")
        (root / place).parent.mkdir(parents=True)
        (root / place).symlink_to(elsewhere, target_is_directory=True)
        with pytest.raises(StackError, match="is a link"):
            own_recipes.write(root, "mine", TEXT)
    root = tmp_path / "linked"
    (root / recipes.OWN).mkdir(parents=True)
    (root / recipes.OWN / "mine.toml").symlink_to(elsewhere / "target.toml")
    with pytest.raises(StackError, match="is a link"):
        own_recipes.write(root, "mine", TEXT)
    with pytest.raises(StackError, match="is a link"):
        recipes.known(root)
    assert [*elsewhere.iterdir()] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Nemotron-3-Nano-NVFP4", "nemotron-3-nano-nvfp4"),
        ("OpenAI GPT-OSS 120B (MXFP4)", "openai-gpt-oss-120b-mxfp4"),
        ("qwen3.6_35b", "qwen3-6-35b"),
        ("x" * 500, "x" * 60),
    ],
)
def test_a_name_is_made_of_a_title(text: str, name: str) -> None:
    assert own_recipes.named(text) == name


@pytest.mark.parametrize("text", ["", "***", "120b", "\u6a21\u578b"])
def test_a_title_without_a_letter(text: str) -> None:
    with pytest.raises(StackError, match="--name"):
        own_recipes.named(text)


def test_a_folder_of_somebody_else_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_recipes.write(tmp_path, "mine", TEXT)
    own_recipes.write(tmp_path, "other", TEXT)
    monkeypatch.setattr(recipes, "_MOST", 1)
    with pytest.raises(StackError, match="has more than 1 recipes"):
        recipes.known(tmp_path)
    (tmp_path / recipes.OWN / "other.toml").unlink()
    (tmp_path / recipes.OWN / "mine.toml").write_text(TEXT + "#" * 2**17)
    with pytest.raises(StackError, match="is larger than 128 KiB"):
        recipes.load("mine", tmp_path)
