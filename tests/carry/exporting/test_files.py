# SPDX-License-Identifier: Apache-2.0
"""Names and contents of exported files, and the places where nothing is written."""

import subprocess
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.exporting import files
from stack.carry.exporting.files import Form, Written

from ..trees import FILE
from ..world import World
from .random_stacks import Drawn, make

GAMMA = ["one/hook-main.patch", "one/tool-flag.patch", "two/fix-limit.patch"]


def export(world: World, form: Form, place: Path, *, plain: bool = False) -> Written:
    with world.stores() as stores:
        return files.export(stores, "gamma", form, place, plain=plain)


def test_a_quilt_folder(world: World, tmp_path: Path) -> None:
    written = export(world, "quilt", tmp_path / "patches")
    assert (tmp_path / "patches/series").read_text() == (
        "# one: One\none/hook-main.patch\none/tool-flag.patch\n# two: Two\ntwo/fix-limit.patch\n"
    )
    assert list(written.names.values()) == GAMMA
    hook = (tmp_path / "patches" / GAMMA[0]).read_text()
    assert hook.partition("\n\n")[0].endswith("\nForwarded: no")
    assert "\nSigned-off-by: A Person <a@person>\nStack-Series: one\nStack-Patch: gamma/hook-main.patch\n" in hook


def test_patch_applies_a_quilt_folder(world: World, tmp_path: Path) -> None:
    """As quilt does: with `patch -p1`, in the order of the list."""
    export(world, "quilt", tmp_path / "patches")
    with world.stores() as stores:
        tree, tip = stores.obtain("gamma").tree, stores.tip("gamma")
        objects = stores.objects("gamma")
        for path in ("gamma/main.py", "gamma/tool.py"):
            entry = objects.entry(tree, path)
            assert entry is not None
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_bytes(objects.read(entry.id))
        for name in GAMMA:
            command = ["patch", "-p1", "--fuzz=0", "-i", f"patches/{name}"]
            subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        for path in ("gamma/main.py", "gamma/tool.py"):
            entry = objects.entry(objects.tree_of(tip), path)
            assert entry is not None
            assert (tmp_path / path).read_bytes() == objects.read(entry.id)


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ('state = "draft"', ["Forwarded: no"]),
        ('state = "submitted"\npull = "https://forge.test/p/1"', ["Forwarded: https://forge.test/p/1"]),
        (
            'state = "merged"\npull = "https://forge.test/p/1"',
            ["Forwarded: https://forge.test/p/1", "Applied-Upstream: https://forge.test/p/1"],
        ),
        ('state = "inappropriate"\nreason = "Ours."', ["Forwarded: not-needed"]),
    ],
)
def test_the_state_stands_in_dep_3_fields(world: World, tmp_path: Path, state: str, facts: list[str]) -> None:
    world.edit("stacks/two/series.toml", 'state = "draft"', state)
    export(world, "quilt", tmp_path / "patches")
    head = (tmp_path / "patches" / GAMMA[2]).read_text().partition("\n\n")[0].splitlines()
    assert [line for line in head if line.startswith(("Forwarded", "Applied"))] == facts


def test_an_imported_field_is_not_contradicted(world: World, tmp_path: Path) -> None:
    world.edit("stacks/two/gamma/fix-limit.patch", "\n\ndiff --git", "\n\nForwarded: not-needed\n\ndiff --git")
    export(world, "quilt", tmp_path / "patches")
    lines = (tmp_path / "patches" / GAMMA[2]).read_text().splitlines()
    assert {line for line in lines if line.startswith("Forwarded")} == {"Forwarded: not-needed"}


def test_numbered_mails_and_one_mailbox(world: World, tmp_path: Path) -> None:
    written = export(world, "am", tmp_path / "new/am")
    names = ["0001-hook-main.patch", "0002-tool-flag.patch", "0003-fix-limit.patch"]
    assert sorted(path.name for path in (tmp_path / "new/am").iterdir()) == names == list(written.names.values())
    export(world, "mbox", tmp_path / "all.mbox")
    assert (tmp_path / "all.mbox").read_bytes() == b"".join((tmp_path / "new/am" / name).read_bytes() for name in names)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_plain_mails_are_the_patch_files(world: World, tmp_path: Path) -> None:
    export(world, "am", tmp_path / "am", plain=True)
    raws = [patch.raw for patch in world.load().order("gamma")]
    assert [path.read_bytes() for path in sorted((tmp_path / "am").iterdir())] == raws


@pytest.mark.parametrize("form", ["quilt", "am", "mbox"])
def test_nothing_is_overwritten(world: World, tmp_path: Path, form: Form) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    before = world.files()
    for place in (tmp_path / "full", tmp_path / "full/mine", tmp_path / "link", world.root / "stacks/new"):
        with pytest.raises(StackError):
            export(world, form, place)
    assert (tmp_path / "full/mine").read_text() == "mine"
    assert sorted(path.name for path in (tmp_path / "full").iterdir()) == ["mine"]
    assert not (tmp_path / "nowhere").exists()
    assert world.files() == before


def test_a_patch_that_does_not_apply_leaves_nothing(world: World, tmp_path: Path) -> None:
    world.edit("stacks/one/gamma/hook-main.patch", " main 9\n", " main nine\n")
    with pytest.raises(StackError, match="does not apply"):
        export(world, "quilt", tmp_path / "patches")
    assert not (tmp_path / "patches").exists()


def test_a_message_that_git_am_would_cut(tmp_path: Path) -> None:
    message = "A\n\nFrom 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nis how a mail begins."
    made = make(tmp_path, Drawn({"a": (FILE, b"1\n")}, (({"a": (FILE, b"2\n")}, message, "one"),)))
    with made.stores() as stores:
        for form in ("am", "mbox"):
            with pytest.raises(StackError, match=r"one/up/p1.patch has a line that `git am` takes for the next mail"):
                files.export(stores, "up", form, tmp_path / form, plain=False)
            assert not (tmp_path / form).exists()
        files.export(stores, "up", "quilt", tmp_path / "quilt", plain=False)


def test_a_series_of_quilts_own_name(tmp_path: Path) -> None:
    made = make(tmp_path, Drawn({"a": (FILE, b"1\n")}, (({"a": (FILE, b"2\n")}, "A", "series"),)))
    with made.stores() as stores:
        with pytest.raises(StackError, match="rename it, or use --am"):
            files.export(stores, "up", "quilt", tmp_path / "quilt", plain=False)
        files.export(stores, "up", "am", tmp_path / "am", plain=False)


def test_what_only_git_applies_is_named(tmp_path: Path) -> None:
    made = make(tmp_path, Drawn({"a": (FILE, b"1\n")}, (({"a": (FILE, b"\0\1")}, "A", "one"),)))
    with made.stores() as stores:
        written = files.export(stores, "up", "quilt", tmp_path / "quilt", plain=False)
    assert [ref.path for ref in written.needs_git] == ["one/up/p1.patch"]
