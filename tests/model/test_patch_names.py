# SPDX-License-Identifier: Apache-2.0
"""A patch is named by its path or by any part of it that no other patch has."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model.patch_names import find

from ..carry.world import World, home, template, world

__all__ = ["home", "template", "world"]


@pytest.mark.parametrize(
    "name",
    [
        "one/gamma/tool-flag.patch",
        "stacks/one/gamma/tool-flag.patch",
        "./stacks/one/gamma/tool-flag",
        "gamma/tool-flag",
        "one/tool-flag",
        "tool-flag",
        "tool",
        "gamma/to",
        "flag",
        "mma/tool-fl",
        "one/gamma/tool",
    ],
)
def test_names(world: World, name: str) -> None:
    assert find(world.load(), name).path == "one/gamma/tool-flag.patch"


def test_a_file_by_any_path(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.root / "stacks/one")
    file = Path("gamma/tool-flag.patch")
    assert find(world.load(), str(file)).path == find(world.load(), str(file.absolute())).path == "one/gamma/tool-flag.patch"


def test_errors(world: World) -> None:
    stack = world.load()
    with pytest.raises(StackError, match="unknown patch 'three': the stack has one/gamma/hook-main, "):
        find(stack, "three")
    with pytest.raises(StackError, match="did you mean 'one/gamma/tool-flag"):
        find(stack, "tol-flag")
    with pytest.raises(StackError, match="unknown patch ''"):
        find(stack, "")


def test_several(world: World) -> None:
    (world.root / "stacks/two/gamma/tool-box.patch").write_bytes((world.root / "stacks/two/gamma/fix-limit.patch").read_bytes())
    (world.root / "stacks/two/gamma/fix-limit.patch").unlink()
    world.edit("stacks/two/series.toml", "fix-limit", "tool-box")
    with pytest.raises(StackError, match=r"'tool' names 2 patches: name one: one/gamma/tool-flag, two/gamma/tool-box"):
        find(world.load(), "tool")


def test_one_that_has_landed(world: World) -> None:
    world.edit(
        "stacks/two/series.toml",
        'state = "draft"',
        'state = "draft"\nlanded = [{ file = "gamma/gone.patch", release = "v2.1", before = "v2.0" }]',
    )
    with pytest.raises(StackError, match=r"two/gamma/gone has landed in gamma v2\.1"):
        find(world.load(), "gone")


def test_a_part_of_several_paths(world: World) -> None:
    with pytest.raises(StackError, match=r"'mma/' names \d patches: name one: one/gamma/hook-main, one/gamma/tool-flag"):
        find(world.load(), "mma/")


def test_an_unknown_name_among_many(world: World) -> None:
    raw = (world.root / "stacks/one/gamma/tool-flag.patch").read_bytes()
    names = [f"gamma/another-patch-with-a-long-name-{number}.patch" for number in range(8)]
    for number, name in enumerate(names):
        (world.root / "stacks/one" / name).write_bytes(raw.replace(b"+flag", b"+flag %d" % number))
    listed = "".join(f'\n[[patch]]\nupstream = "gamma"\nfile = "{name}"\n' for name in names)
    file = world.root / "stacks/one/series.toml"
    file.write_text(file.read_text() + listed)
    with pytest.raises(StackError, match="`stack status --all` lists all"):
        find(world.load(), "quux")
