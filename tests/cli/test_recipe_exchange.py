# SPDX-License-Identifier: Apache-2.0
"""`stack recipe import` and `export`, and the recipes of a stack's own."""

from pathlib import Path

import pytest

from stack.deploy import recipes

from ..carry.world import World
from ..doctor.test_community import EUGR
from .conftest import Stack
from .test_verbs import parsed


@pytest.fixture(name="shared")
def _shared(tmp_path: Path) -> Path:
    file = tmp_path / "shared.yaml"
    file.write_text(EUGR)
    return file


def test_import(stack: Stack, world: World, shared: Path) -> None:
    """Write the recipe and print every remark; every command that takes recipes then knows it."""
    ran = stack("recipe", "import", shared)
    assert ran.code == 1
    assert f"✗ {shared}:9: mods: not carried over (mods/fix-some-model)" in ran.out
    # This stack pins other upstreams.
    assert "its settings could not be checked against the pinned sources: this stack does not pin vllm" in ran.out
    assert "wrote validation/recipes/some-model-nvfp4.toml (1 x spark, 90 GB, unproven): 4 things above need you." in " ".join(
        ran.out.split()
    )
    text = (world.root / "validation/recipes/some-model-nvfp4.toml").read_text()
    assert "# - mods: not carried over (mods/fix-some-model)" in text
    assert "Unproven" in text
    assert "some-model-nvfp4" in stack("recipe", "list").out
    assert "vllm serve some/Model-NVFP4 --max-model-len 262144" in stack("recipe", "show", "some-model-nvfp4").out
    assert "some/Model-NVFP4" in stack("recipe", "compose", "some-model-nvfp4").out
    assert "vllm serve some/Model-NVFP4" in stack("serve", "some-model-nvfp4", "--dry-run").out
    assert "model: some/Model-NVFP4" in stack("recipe", "export", "some-model-nvfp4", "--sparkrun").out


def test_import_as_json(stack: Stack, shared: Path) -> None:
    told = parsed(stack("recipe", "import", shared, "--name", "mine", "--json"))
    assert (told["recipe"], told["file"], told["clean"]) == ("mine", "validation/recipes/mine.toml", False)
    assert {one["setting"]: one["line"] for one in told["remarks"] if one["needs_person"]} == {
        "mods": 9,
        "build_args": 10,
        "--chat-template": 27,
        "": None,
    }
    assert [one["needs_person"] for one in told["remarks"]] == sorted(
        (one["needs_person"] for one in told["remarks"]), reverse=True
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--name", "gpt-oss-20b-spark"), "the recipe gpt-oss-20b-spark exists already"),
        (("--name", "../x"), "'../x' is not a valid name of a recipe"),
        (("--hardware", "toaster"), "unknown hardware 'toaster'"),
        (("--model", "/models/x"), "the model is '/models/x', no repository"),
    ],
)
def test_a_refused_import_writes_nothing(
    stack: Stack, world: World, shared: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in stack("recipe", "import", shared, *arguments).refused()
    assert not (world.root / "validation").exists()


def test_force_replaces(stack: Stack, world: World, shared: Path) -> None:
    assert stack("recipe", "import", shared).code == 1
    assert "exists already" in stack("recipe", "import", shared).refused()
    assert stack("recipe", "import", shared, "--force", "--model", "some/Other").code == 1
    assert recipes.load("some-model-nvfp4", world.root).model == "some/Other"


def test_a_hostile_stack_is_refused(stack: Stack, world: World, shared: Path, tmp_path: Path) -> None:
    """A checkout's own recipes come from somebody else: nothing is read or written through a link, and nothing steers the terminal."""
    folder = world.root / "validation/recipes"
    folder.mkdir(parents=True)
    (folder / "evil.toml").write_text('title = "a\\u001b]0;x"\nmodel = "a/b"\narguments = []\nenvironment = {}\n')
    assert "has control characters" in stack("recipe", "list").refused()
    (folder / "evil.toml").unlink()
    (folder / "secret.toml").symlink_to("/etc/passwd")
    for command in (("list",), ("show", "secret"), ("import", shared)):
        assert "is a link" in stack("recipe", *command).refused()


def test_export(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "out.yaml"
    assert (
        stack("recipe", "export", "gpt-oss-20b-spark", "--sparkrun", "--container", "image:1", "--output", file).out
        == f"wrote {file}\n"
    )
    text = file.read_text()
    assert "container: image:1" in text
    assert parsed(stack("recipe", "export", "gpt-oss-20b-spark", "--sparkrun", "--container", "image:1", "--json")) == {
        "file": None,
        "text": text,
    }
    assert "--sparkrun" in stack("recipe", "export", "gpt-oss-20b-spark").refused()
    assert "no published model" in stack("recipe", "export", "cpu-fp32", "--sparkrun").refused()
